"""The planned faults, and the matching of requests, markers and disk calls. pure"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ottla.protocol.api_keys import ApiKey
from ottla.testkit.faults.fault import Fault

Release = Callable[[], None]


class FaultPoint(Protocol):
    """A request, marker or disk call at a point where faults can fire."""

    def answers_to(self, name: str, value: object) -> bool:
        """Return whether a condition holds, such as `transactional_id`, "tx-1"."""


class Plan:
    """The planned faults. Each fault that fires is passed to the functions in `watchers`."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._held: dict[int, list[Release]] = {}
        self._last_id = 0
        self.watchers: set[Callable[[Fault], None]] = set()

    def __iter__(self) -> Iterator[Fault]:
        return iter(tuple(self._faults.values()))

    def __len__(self) -> int:
        return len(self._faults)

    def get(self, fault_id: int) -> Fault | None:
        """Return the fault with this id, or None."""
        return self._faults.get(fault_id)

    def check(self, fault: Fault) -> None:
        """Raise FaultError if the fault is not supported here."""

    def add(self, fault: Fault) -> Fault:
        """Plan a fault and give it a new `id`. Raises FaultError if it is not supported here."""
        self.check(fault)
        self._last_id += 1
        fault.id = self._last_id
        self._faults[fault.id] = fault
        return fault

    def remove(self, fault_id: int) -> Fault | None:
        """Remove the fault from the plan, and release its requests or markers."""
        self.release(fault_id)
        return self._faults.pop(fault_id, None)

    def clear(self) -> list[Fault]:
        """Remove and return all faults."""
        return [fault for fault_id in list(self._faults) if (fault := self.remove(fault_id)) is not None]

    def release(self, fault_id: int) -> int:
        """Release the fault, which holds nothing from then on. Return the number of released requests or markers."""
        fault = self._faults.get(fault_id)
        if fault is not None and fault.do == "hold":
            fault.released = True
        held = self._held.pop(fault_id, [])
        for go_on in held:
            go_on()
        return len(held)

    def hold(self, fault: Fault, go_on: Release) -> Callable[[], None]:
        """Call `go_on` when the fault is released. Return a function that cancels this, such as for a closed client."""
        waiting = self._held.setdefault(fault.id, [])
        waiting.append(go_on)

        def leave() -> None:
            if go_on in waiting:
                waiting.remove(go_on)

        return leave

    def count_held(self, fault_id: int) -> int:
        """Return the number of requests or markers that the fault holds now."""
        return len(self._held.get(fault_id, ()))

    def show(self, fault: Fault) -> dict[str, object]:
        """Return the fault as JSON, with its counters and the number of requests or markers that it holds."""
        return fault.to_json() | {"held": self.count_held(fault.id)}

    def watches(self, point: str, api: ApiKey | int | None = None) -> bool:
        """Return whether any fault could fire here. If not, the caller need not decode the request."""
        for fault in self._faults.values():
            if fault.at == point and not fault.is_spent and (fault.api is None or fault.api == api):
                return True
        return False

    def find_firing(self, point: str, occasion: FaultPoint, api: ApiKey | int | None = None) -> list[Fault]:
        """Return the faults that fire on this occasion, in the order in which they were planned."""
        fired = []
        for fault in tuple(self._faults.values()):
            if fault.at != point or (fault.api is not None and fault.api != api):
                continue
            if all(occasion.answers_to(name, value) for name, value in fault.where.items()) and self.fire(fault):
                fired.append(fault)
        return fired

    def fire(self, fault: Fault) -> bool:
        """Count a match, and return whether the fault fires on it."""
        if not fault.count_match():
            return False
        for watcher in tuple(self.watchers):
            watcher(fault)
        return True


class Named:
    """An occasion made of plain values."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def answers_to(self, name: str, value: object) -> bool:
        """Return whether the value of this name is `value`."""
        return self._values.get(name) == value
