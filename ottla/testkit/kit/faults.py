"""Faults that a test plans, and their results. free

    faults.on("EndTxn", nth=2).reply("COORDINATOR_NOT_AVAILABLE")
    held = faults.on("Produce", topic="orders").hold()
    held.wait_hit(); held.release()
    faults.on_marker(topic="orders").lose()
    faults.crash(at="after_prepare", restart=True)

A test whose fault never fires tests nothing: `clear` returns such faults, and the pytest plugin fails the test.
"""

from typing import Any, Final

from ottla.testkit.faults.fault import CLUSTER
from ottla.testkit.kit.fault_registries import FaultRegistry
from ottla.testkit.kit.process import BrokerProcess, NeedsOwnBroker

__tracebackhide__ = True  # pytest then shows the line of the test and the message
WAIT_S: Final = 60.0

_CRASHES: Final = {
    "before_decide": ("request", "EndTxn"),
    "after_prepare": ("marker", None),
    "after_markers": ("marker_reply", None),
    "marker_reply_lost": ("marker_reply", None),
    "before_ack": ("reply", "EndTxn"),
}
"""Points of a commit at which the broker can crash: (point, API).

    before_decide      EndTxn was received, and nothing is decided
    after_prepare      Prepare is in the log, no marker is written
    after_markers      N markers are written (`after_markers(2)`; default 1), Complete is not logged
    marker_reply_lost  the first marker is written, and the coordinator has no answer yet; same as after_markers
    before_ack         EndTxn is done, its reply is not sent
"""


class PlannedFault:
    """A planned fault."""

    def __init__(self, registry: FaultRegistry, state: dict[str, Any], optional: bool) -> None:
        self._registry = registry
        self._state = state
        self.id: int = state["id"]
        self.optional = optional

    def __repr__(self) -> str:
        if self.is_change:
            return " ".join([self._state["do"], *(f"{name}={value}" for name, value in self._state["where"].items())])
        given = {name: self._state[name] for name in ("at", "api", "where", "do", "error", "ms") if name in self._state}
        return f"fault {self.id} {given}"

    @property
    def is_change(self) -> bool:
        """Return whether it is a change to several brokers, which fires when a client meets it."""
        return bool(self._state["at"] == CLUSTER)

    @property
    def hits(self) -> int:
        """The number of times the fault has fired."""
        return int(self._refresh()["hits"])

    @property
    def held(self) -> int:
        """The number of requests or markers that the fault holds now."""
        return int(self._refresh()["held"])

    def wait_hit(self, hits: int = 1, timeout_s: float = WAIT_S) -> None:
        """Wait until the fault has fired `hits` times. Raises TimeoutError."""
        self._state = state = self._registry.show(self.id, hits, timeout_s)
        if state["hits"] < hits:
            raise TimeoutError(
                f"{self!r} has fired {state['hits']} times in {timeout_s:g} s, and matched {state['seen']}"
            )

    def release(self) -> None:
        """Release everything that the fault holds; it holds nothing from now on."""
        self._state = self._registry.release(self.id)

    def remove(self) -> None:
        """Remove the fault from the plan."""
        self._state = self._registry.remove(self.id)

    def _refresh(self) -> dict[str, Any]:
        self._state = self._registry.show(self.id)
        return self._state


class _At:
    """Conditions of a fault that is not planned yet. The method that is called on it chooses the effect."""

    def __init__(self, faults: "Faults", given: dict[str, Any], optional: bool) -> None:
        self._faults = faults
        self._given = given
        self._optional = optional

    def _plan(self, do: str, **more: object) -> PlannedFault:
        return self._faults.add({**self._given, "do": do, **more}, optional=self._optional)


class OnRequest(_At):
    """Requests of an API. With `after`, the fault fires when the request is handled and the reply is not yet sent."""

    def reply(self, error: str) -> PlannedFault:
        """Answer with a Kafka error; the broker does not handle the request."""
        return self._plan("reply", error=error)

    def drop_connection(self, *, after: bool = False) -> PlannedFault:
        """Close the connection instead of answering."""
        return self._plan("drop", at=_when(after))

    def lose_reply(self) -> PlannedFault:
        """Handle the request and send no reply: the client keeps waiting."""
        return self._plan("lose", at="reply")

    def delay(self, ms: float, *, after: bool = False) -> PlannedFault:
        """Wait `ms` milliseconds of the machine's clock."""
        return self._plan("delay", at=_when(after), ms=ms)

    def hold(self, *, after: bool = False) -> PlannedFault:
        """Hold the request until `release`."""
        return self._plan("hold", at=_when(after))

    def duplicate(self) -> PlannedFault:
        """Handle the request twice, as if the network had delivered it twice."""
        return self._plan("duplicate")

    def crash(self, *, after: bool = False, restart: bool = False) -> PlannedFault:
        """Kill the broker. With `restart`, start it again at once."""
        return self._faults.add_crash({**self._given, "do": "crash", "at": _when(after)}, restart=restart)


class OnMarker(_At):
    """Transaction markers that the coordinator sends to partitions."""

    def reply(self, error: str) -> PlannedFault:
        """Answer for the leader with an error (such as `NOT_LEADER_OR_FOLLOWER`); the coordinator retries."""
        return self._plan("reply", error=error)

    def lose(self) -> PlannedFault:
        """Drop the marker before it is written; the coordinator retries."""
        return self._plan("lose")

    def lose_reply(self) -> PlannedFault:
        """Write the marker and drop the answer: the coordinator retries, and the marker is written twice."""
        return self._plan("lose", at="marker_reply")

    def hold(self) -> PlannedFault:
        """Hold the marker until `release`: the transaction is decided but not complete."""
        return self._plan("hold")


class OnDisk(_At):
    """Calls of the broker's disk."""

    def fail(self, error: str = "EIO") -> PlannedFault:
        """Fail the call with an errno such as EIO or ENOSPC."""
        return self._plan("fail", error=error)

    def delay(self, ms: float) -> PlannedFault:
        """Delay the call by `ms` milliseconds; for syncs only."""
        return self._plan("delay", ms=ms)


class Faults:
    """The faults of one broker, or of a proxy to a broker."""

    def __init__(self, registry: FaultRegistry, process: BrokerProcess | None = None) -> None:
        self._registry = registry
        self._process = process
        self._planned: dict[int, PlannedFault] = {}
        self._crashes: list[PlannedFault] = []
        self._starts = 0

    def on(self, api: str, *, nth: int = 1, times: int | None = 1, optional: bool = False, **where: Any) -> OnRequest:
        """Choose requests of an API (such as `EndTxn`).

        `where` restricts them by `client_id`, `transactional_id`, `producer_id`, `group`, `topic`, `partition` or, with
        several brokers, by the id of the `broker` that gets them. The fault fires on the `nth` matching request, and on
        `times` requests in all (None: on all from then on). An `optional` fault need not fire.
        """
        return OnRequest(self, {"api": api, "nth": nth, "times": times, "where": where}, optional)

    def on_marker(self, *, nth: int = 1, times: int | None = None, optional: bool = False, **where: Any) -> OnMarker:
        """Choose markers by `transactional_id`, `producer_id`, `topic`, `partition` or `broker`, the leader that gets
        them; by default all markers."""
        return OnMarker(self, {"at": "marker", "nth": nth, "times": times, "where": where}, optional)

    def on_append(self, *, nth: int = 1, times: int | None = 1, optional: bool = False, **where: Any) -> OnDisk:
        """Choose writes to the log of a `topic` and `partition`."""
        return OnDisk(self, {"at": "append", "nth": nth, "times": times, "where": where}, optional)

    def on_sync(self, *, nth: int = 1, times: int | None = 1, optional: bool = False, **where: Any) -> OnDisk:
        """Choose log syncs of a `topic` and `partition`. Syncs happen only with `log.flush.interval.messages`."""
        return OnDisk(self, {"at": "sync", "nth": nth, "times": times, "where": where}, optional)

    def crash(self, at: str, *, nth: int = 1, restart: bool = False, **where: Any) -> PlannedFault:
        """Kill the broker within a commit, at one of `before_decide`, `after_prepare`, `after_markers(2)`,
        `marker_reply_lost`, `before_ack`. ValueError for any other.

        With `restart`, start it again at once, on the same port and files, while clients retry. Without it the broker
        stays down until `Broker.restart`.
        """
        name, _, count = at.partition("(")
        if name not in _CRASHES:
            raise ValueError(f"a broker crashes at one of {', '.join(_CRASHES)}, not at {at!r}")
        if count:
            nth = int(count.removesuffix(")"))
        point, api = _CRASHES[name]
        given = {"at": point, "nth": nth, "where": where, "do": "crash"} | ({} if api is None else {"api": api})
        return self.add_crash(given, restart=restart)

    def no_leader(self, topic: str, partition: int = 0, *, times: int | None = None) -> list[PlannedFault]:
        """Make the partition leaderless: refuse Produce, Fetch, ListOffsets and markers."""
        where: dict[str, Any] = {"topic": topic, "partition": partition}
        refused = [
            self.on(api, times=times, optional=True, **where).reply("NOT_LEADER_OR_FOLLOWER")
            for api in ("Produce", "Fetch", "ListOffsets")
        ]
        return [*refused, self.on_marker(times=times, optional=True, **where).reply("NOT_LEADER_OR_FOLLOWER")]

    def coordinator_moved(self, *, times: int = 1, **where: Any) -> list[PlannedFault]:
        """Answer requests to coordinators with NOT_COORDINATOR, `times` times for each API."""
        apis = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "OffsetCommit")
        return [self.on(api, times=times, optional=True, **where).reply("NOT_COORDINATOR") for api in apis]

    def add(self, given: dict[str, Any], *, optional: bool = False) -> PlannedFault:
        """Plan a fault given as JSON (`ottla/testkit/faults/fault.py`). FaultError if it is invalid."""
        return self.follow(self._registry.add(given), optional=optional)

    def follow(self, state: dict[str, Any], *, optional: bool) -> PlannedFault:
        """Return a fault that is planned already. If it never fires and is not `optional`, `clear` returns it."""
        fault = PlannedFault(self._registry, state, optional)
        self._planned[fault.id] = fault
        return fault

    def add_crash(self, given: dict[str, Any], *, restart: bool = False) -> PlannedFault:
        """Plan a crash of the broker. The crash also loses all planned faults and their counters."""
        if self._process is None:
            raise NeedsOwnBroker("the test kit can restart only a broker that it has started, so it crashes no other")
        fault = self.add(given)
        self._crashes.append(fault)
        self._starts = self._process.starts
        if restart:
            self._process.plan_restart()
        else:
            self._process.forget_restart()
        return fault

    def clear(self) -> list[PlannedFault]:
        """Remove all faults, and return those that never fired and are not optional."""
        planned, self._planned = self._planned, {}
        if self._process is not None:
            self._process.await_restart(exit_s=0)
            self._process.forget_restart()
        crashed = self._has_crashed()
        self._crashes.clear()
        if crashed:
            return []
        hits = {state["id"]: state["hits"] for state in self._registry.clear()}
        return [fault for fault in planned.values() if not fault.optional and not hits.get(fault.id, 1)]

    def _has_crashed(self) -> bool:
        process = self._process
        return bool(self._crashes) and process is not None and (process.pid is None or process.starts > self._starts)


def _when(after: bool) -> str:
    return "reply" if after else "request"
