"""Registration of faults in an Ottla broker, over its admin port, or in a proxy of this process. shell"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from ottla.testkit.faults.fault import Fault, FaultError, parse_fault
from ottla.testkit.kit.admin import Admin, AdminFailed
from ottla.testkit.kit.process import NeedsOwnBroker
from ottla.testkit.proxying import ProxyServer

__tracebackhide__ = True  # pytest then shows the line of the test and the message

FaultState = dict[str, Any]
"""A fault as JSON, with its counters and the number of requests it holds."""

_UNPROCESSABLE = 422
_ENDING: Final = ("crash", "fail")
"""Faults after which the broker ends: it stops when a call of the disk fails, as Kafka does."""


class FaultRegistry(Protocol):
    """Registry of planned faults and their counters. Raises FaultError for an invalid fault."""

    def add(self, given: FaultState) -> FaultState: ...

    def show(self, fault_id: int, hits: int = 0, timeout_s: float = 0.0) -> FaultState:
        """Return the fault after `hits` hits or `timeout_s` seconds."""

    def release(self, fault_id: int) -> FaultState: ...

    def remove(self, fault_id: int) -> FaultState: ...

    def clear(self) -> list[FaultState]: ...


class BrokerFaultRegistry:
    """The faults of an Ottla broker. Its admin port changes with each start."""

    def __init__(self, admin: Callable[[], Admin], *, can_restart: bool = True) -> None:
        """Without `can_restart` a fault that ends the broker is refused with NeedsOwnBroker."""
        self._admin = admin
        self._can_restart = can_restart

    def add(self, given: FaultState) -> FaultState:
        if not self._can_restart and given.get("do") in _ENDING:
            raise NeedsOwnBroker(
                f"the fault {given['do']!r} ends the broker, and the test kit can restart only one that it has started"
            )
        try:
            return self._admin().post("/v1/faults", given)  # type: ignore[no-any-return]
        except AdminFailed as error:
            if error.status == _UNPROCESSABLE:
                raise FaultError(str(error)) from None
            raise

    def show(self, fault_id: int, hits: int = 0, timeout_s: float = 0.0) -> FaultState:
        query = f"?hits={hits}&wait_ms={int(timeout_s * 1000)}" if hits else ""
        return self._admin().get(f"/v1/faults/{fault_id}{query}")  # type: ignore[no-any-return]

    def release(self, fault_id: int) -> FaultState:
        return self._admin().post(f"/v1/faults/{fault_id}/release")  # type: ignore[no-any-return]

    def remove(self, fault_id: int) -> FaultState:
        return self._admin().delete(f"/v1/faults/{fault_id}")  # type: ignore[no-any-return]

    def clear(self) -> list[FaultState]:
        return self._admin().delete("/v1/faults")  # type: ignore[no-any-return]


class ProxyFaultRegistry:
    """The faults of a proxy."""

    def __init__(self, proxy: ProxyServer) -> None:
        self._proxy = proxy
        self._plan = proxy.plan

    def add(self, given: FaultState) -> FaultState:
        return self._plan.show(self._plan.add(parse_fault(given)))

    def show(self, fault_id: int, hits: int = 0, timeout_s: float = 0.0) -> FaultState:
        fault = self._fault(fault_id)
        if hits and timeout_s:
            with suppress(TimeoutError):
                self._proxy.await_hits(fault, hits, timeout_s)
        return self._plan.show(fault)

    def release(self, fault_id: int) -> FaultState:
        fault = self._fault(fault_id)
        self._plan.release(fault_id)
        return self._plan.show(fault)

    def remove(self, fault_id: int) -> FaultState:
        fault = self._fault(fault_id)
        self._plan.remove(fault_id)
        return self._plan.show(fault)

    def clear(self) -> list[FaultState]:
        return [self._plan.show(fault) for fault in self._plan.clear()]

    def _fault(self, fault_id: int) -> Fault:
        fault = self._plan.get(fault_id)
        if fault is None:
            raise KeyError(f"there is no fault {fault_id} any more")
        return fault
