"""Faults that a test plans: what to say, what happened. free

    faults.on("EndTxn", nth=2).reply("COORDINATOR_NOT_AVAILABLE")
    held = faults.on("Produce", topic="orders").hold()
    held.wait_hit(); held.release()
    faults.on_marker(topic="orders").lose()
    faults.crash(at="after_prepare", restart=True)

A fault that never strikes is a test that tests nothing: `clear` names them, and the pytest plugin fails the test.
"""

from typing import Any, Final

from ottla.testkit.kit.desks import FaultDesk
from ottla.testkit.kit.process import BrokerProcess

__tracebackhide__ = True  # pytest then shows the line of the test, and what it was told
WAIT_S: Final = 60.0

_CRASHES: Final = {
    "before_decide": ("request", "EndTxn"),
    "after_prepare": ("marker", None),
    "after_markers": ("marker_reply", None),
    "marker_reply_lost": ("marker_reply", None),
    "before_ack": ("reply", "EndTxn"),
}
"""Where in a commit the broker can die: (point, API).

    before_decide      EndTxn has come in, and nothing is decided
    after_prepare      Prepare is in the log, no marker is
    after_markers      so many markers are written (`after_markers(2)`; else one), Complete is not logged
    marker_reply_lost  the same: the first marker is written, and the coordinator has not heard of it
    before_ack         EndTxn was carried out, its reply is not sent
"""


class PlannedFault:
    """A fault that is planned."""

    def __init__(self, desk: FaultDesk, shown: dict[str, Any], optional: bool) -> None:
        self._desk = desk
        self._shown = shown
        self.id: int = shown["id"]
        self.optional = optional

    def __repr__(self) -> str:
        given = {name: self._shown[name] for name in ("at", "api", "where", "do", "error", "ms") if name in self._shown}
        return f"fault {self.id} {given}"

    @property
    def hits(self) -> int:
        """How often it has struck."""
        return int(self._look()["hits"])

    @property
    def held(self) -> int:
        """How many it holds now."""
        return int(self._look()["held"])

    def wait_hit(self, hits: int = 1, timeout_s: float = WAIT_S) -> None:
        """Wait until it has struck so often. TimeoutError."""
        self._shown = shown = self._desk.show(self.id, hits, timeout_s)
        if shown["hits"] < hits:
            raise TimeoutError(f"{self!r} has struck {shown['hits']} times in {timeout_s:g} s, of {shown['seen']} seen")

    def release(self) -> None:
        """Let go what it holds; it holds nothing any more."""
        self._shown = self._desk.release(self.id)

    def remove(self) -> None:
        """Take it back."""
        self._shown = self._desk.remove(self.id)

    def _look(self) -> dict[str, Any]:
        self._shown = self._desk.show(self.id)
        return self._shown


class _At:
    """Whom a fault is to strike; the next word says what happens to them."""

    def __init__(self, faults: "Faults", given: dict[str, Any], optional: bool) -> None:
        self._faults = faults
        self._given = given
        self._optional = optional

    def _plan(self, do: str, **more: object) -> PlannedFault:
        return self._faults.add({**self._given, "do": do, **more}, optional=self._optional)


class OnRequest(_At):
    """Requests of an API. What happens `after` happens when the request was carried out, before its reply leaves."""

    def reply(self, error: str) -> PlannedFault:
        """Answer with an error of Kafka's, and do nothing."""
        return self._plan("reply", error=error)

    def drop_connection(self, *, after: bool = False) -> PlannedFault:
        """Close the connection instead of an answer."""
        return self._plan("drop", at=_when(after))

    def lose_reply(self) -> PlannedFault:
        """Carry it out and say nothing: the client waits."""
        return self._plan("lose", at="reply")

    def delay(self, ms: float, *, after: bool = False) -> PlannedFault:
        """Wait so long, by the machine's clock."""
        return self._plan("delay", at=_when(after), ms=ms)

    def hold(self, *, after: bool = False) -> PlannedFault:
        """Keep it until `release`."""
        return self._plan("hold", at=_when(after))

    def duplicate(self) -> PlannedFault:
        """Carry it out twice, as if the network had delivered it twice."""
        return self._plan("duplicate")

    def crash(self, *, after: bool = False, restart: bool = False) -> PlannedFault:
        """Kill the broker. `restart`: start it again at once."""
        return self._faults.add_crash({**self._given, "do": "crash", "at": _when(after)}, restart=restart)


class OnMarker(_At):
    """Transaction markers on their way to partitions."""

    def reply(self, error: str) -> PlannedFault:
        """The leader refuses it (`NOT_LEADER_OR_FOLLOWER`); the coordinator comes again."""
        return self._plan("reply", error=error)

    def lose(self) -> PlannedFault:
        """It never arrives; the coordinator comes again."""
        return self._plan("lose")

    def lose_reply(self) -> PlannedFault:
        """It is written, and the coordinator does not hear of it: it is written once more."""
        return self._plan("lose", at="marker_reply")

    def hold(self) -> PlannedFault:
        """Keep it until `release`: the transaction is decided and does not end."""
        return self._plan("hold")


class OnDisk(_At):
    """Calls of the broker's disk."""

    def fail(self, error: str = "EIO") -> PlannedFault:
        """The call fails with an errno: EIO, ENOSPC."""
        return self._plan("fail", error=error)

    def delay(self, ms: float) -> PlannedFault:
        """The call is slow; syncs only."""
        return self._plan("delay", ms=ms)


class Faults:
    """The faults of one broker, or of the proxy in front of one."""

    def __init__(self, desk: FaultDesk, process: BrokerProcess | None = None) -> None:
        self._desk = desk
        self._process = process
        self._planned: dict[int, PlannedFault] = {}
        self._crashes: list[PlannedFault] = []
        self._starts = 0

    def on(self, api: str, *, nth: int = 1, times: int | None = 1, optional: bool = False, **where: Any) -> OnRequest:
        """Requests of an API (`EndTxn`): the `nth` and so many `times` (None: all from then on) of those that have the
        `client_id`, `transactional_id`, `producer_id`, `group`, `topic` or `partition`. An `optional` one need not
        strike."""
        return OnRequest(self, {"api": api, "nth": nth, "times": times, "where": where}, optional)

    def on_marker(self, *, nth: int = 1, times: int | None = None, optional: bool = False, **where: Any) -> OnMarker:
        """Markers, of a `transactional_id` or `producer_id`, to a `topic` and `partition`: all of them unless told
        otherwise."""
        return OnMarker(self, {"at": "marker", "nth": nth, "times": times, "where": where}, optional)

    def on_append(self, *, nth: int = 1, times: int | None = 1, optional: bool = False, **where: Any) -> OnDisk:
        """Writes into the log of a `topic` and `partition`."""
        return OnDisk(self, {"at": "append", "nth": nth, "times": times, "where": where}, optional)

    def on_sync(self, *, nth: int = 1, times: int | None = 1, optional: bool = False, **where: Any) -> OnDisk:
        """Syncs of the log of a `topic` and `partition`; there are some with `log.flush.interval.messages` only."""
        return OnDisk(self, {"at": "sync", "nth": nth, "times": times, "where": where}, optional)

    def crash(self, at: str, *, nth: int = 1, restart: bool = False, **where: Any) -> PlannedFault:
        """Kill the broker within a commit, at one of `before_decide`, `after_prepare`, `after_markers(2)`,
        `marker_reply_lost`, `before_ack`. ValueError for another.

        `restart`: start it again at once, on the same port and files, while clients try again. Without it the broker is
        gone until `Broker.restart`.
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
        """The partition has no leader: Produce, Fetch and ListOffsets are refused, and so are markers."""
        where: dict[str, Any] = {"topic": topic, "partition": partition}
        refused = [
            self.on(api, times=times, optional=True, **where).reply("NOT_LEADER_OR_FOLLOWER")
            for api in ("Produce", "Fetch", "ListOffsets")
        ]
        return [*refused, self.on_marker(times=times, optional=True, **where).reply("NOT_LEADER_OR_FOLLOWER")]

    def coordinator_moved(self, *, times: int = 1, **where: Any) -> list[PlannedFault]:
        """Whoever asks a coordinator is told so many times that it is not the one."""
        apis = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "OffsetCommit")
        return [self.on(api, times=times, optional=True, **where).reply("NOT_COORDINATOR") for api in apis]

    def add(self, given: dict[str, Any], *, optional: bool = False) -> PlannedFault:
        """Plan a fault of its JSON (`ottla/testkit/faults/fault.py`). FaultError says what is wrong with it."""
        fault = PlannedFault(self._desk, self._desk.add(given), optional)
        self._planned[fault.id] = fault
        return fault

    def add_crash(self, given: dict[str, Any], *, restart: bool = False) -> PlannedFault:
        """Plan the end of the broker: with it go all faults that are planned, and their counters."""
        if self._process is None:
            raise ValueError("only a broker that this test has started can be crashed")
        fault = self.add(given)
        self._crashes.append(fault)
        self._starts = self._process.starts
        if restart:
            self._process.plan_restart()
        else:
            self._process.forget_restart()
        return fault

    def clear(self) -> list[PlannedFault]:
        """Take all back; those that have struck nobody and should have."""
        planned, self._planned = self._planned, {}
        if self._process is not None:
            self._process.await_restart(exit_s=0)
            self._process.forget_restart()
        crashed = self._has_crashed()
        self._crashes.clear()
        if crashed:
            return []
        hits = {shown["id"]: shown["hits"] for shown in self._desk.clear()}
        return [fault for fault in planned.values() if not fault.optional and not hits.get(fault.id, 1)]

    def _has_crashed(self) -> bool:
        process = self._process
        return bool(self._crashes) and process is not None and (process.pid is None or process.starts > self._starts)


def _when(after: bool) -> str:
    return "reply" if after else "request"
