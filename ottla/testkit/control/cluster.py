"""The brokers of a process as a test changes them: leaders, stops, pauses, links and frozen metadata. shell"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from ottla.admin.routes import AdminError
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.leadership import LeadershipProblem
from ottla.broker.cluster.links import Links
from ottla.broker.turns import Wait
from ottla.protocol.values import TopicPartition
from ottla.testkit.control.changes import FREEZE, MOVE, STOP, Changes, Key
from ottla.testkit.faults.fault import Fault
from ottla.testkit.faults.plan import Plan

PAUSE: Final = "pause_broker"
DISCONNECT: Final = "disconnect"
_MOST_KIT_PEERS: Final = 100

Where = dict[str, object]
Work = Coroutine[Wait[Any], None, None]


class ClusterControl:
    """The leaders and the brokers of a process. A change that is not possible is an AdminError, and changes nothing.

    A change returns the fault that counts the clients that meet it.
    """

    def __init__(self, assembly: Assembly, plan: Plan) -> None:
        self._assembly = assembly
        self._broker = assembly.broker
        self._held: dict[int, list[Callable[[], None]]] = {}
        self._kit_peers: set[str] = set()
        self.changes = Changes(assembly.broker, plan)
        if self._broker.links is not None:
            links: Any = self._broker.links
            self._reaches: Callable[[int, int], bool] = links.reaches
            links.reaches = self._count_lost

    @property
    def ids(self) -> range:
        """The ids of the brokers."""
        return self._broker.cluster.own_ids

    def describe(self) -> Iterator[dict[str, object]]:
        """Yield a row for each broker."""
        cluster, links = self._broker.cluster, self._broker.links
        leaders = [leader for _, leader, _ in self._leaders()]
        for broker in self._broker.brokers:
            node_id = broker.cluster.node_id
            state = "paused" if self.is_paused(node_id) else "running"
            others = {other for pair in links.cut if node_id in pair for other in pair} if links is not None else set()
            yield {
                "broker": node_id,
                "state": "stopped" if node_id in cluster.stopped_ids else state,
                "metadata": "current" if broker.metadata is broker.cluster else "frozen",
                "disconnected_from": sorted(others - {node_id}),
                "leads": leaders.count(node_id) if links is not None else len(leaders),
            }

    def _leaders(self) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield each partition with its leader and its first replica."""
        for name, topic in list(self._broker.cluster.topics.items()):
            for index, place in enumerate(topic.registrations):
                yield (name, index), place.leader, place.replicas[0]

    # ---- leaders and coordinators

    async def move_leader(self, to: int, topic: str, index: int) -> Fault:
        """Make a replica the leader."""
        return await self._move("move_leader", {"topic": topic, "partition": index}, (topic, index), to)

    async def move_coordinator(self, to: int, kind: str, name: str) -> Fault:
        """Move the coordinator of a group or of a transactional id. `kind` is `group` or `transactional_id`."""
        place = self.changes.group_place(name) if kind == "group" else self.changes.transaction_place(name)
        if not self._broker.cluster.has_partition(*place):
            raise AdminError(409, f"There is no {place[0]} yet: clients create it when they look for a coordinator")
        return await self._move("move_coordinator", {kind: name}, place, to)

    async def _move(self, do: str, where: Where, place: TopicPartition, to: int) -> Fault:
        leadership = self._assembly.leadership
        return await self._change(do, where | {"to": to}, (MOVE, place), lambda: leadership.move_leader(*place, to))

    # ---- brokers that stop and start

    async def stop_broker(self, node_id: int) -> Fault:
        """Stop a broker. When it starts again, it is not paused, and its metadata are current."""
        clients = [
            each
            for each in self._assembly.connections
            if each.session.node_id == node_id and each.session.peer not in self._kit_peers
        ]
        key = STOP, node_id
        change = await self._change(STOP, {"broker": node_id}, key, lambda: self._assembly.stop_broker(node_id))
        for _ in clients:
            self.changes.count(key)
        await self._recover(node_id)
        return change

    async def start_broker(self, node_id: int) -> None:
        """Start a stopped broker."""
        await self._undo((STOP, node_id), lambda: self._assembly.start_broker(node_id))

    def note_kit(self, peer: str) -> None:
        """Note a connection of the test kit itself, which meets no change."""
        if len(self._kit_peers) > _MOST_KIT_PEERS:
            self._kit_peers &= {each.session.peer for each in self._assembly.connections}
        self._kit_peers.add(peer)

    # ---- brokers that are paused

    async def pause_broker(self, node_id: int) -> Fault:
        """Let a broker accept requests and answer nothing."""
        return await self._change(PAUSE, {"broker": node_id}, (PAUSE, node_id), lambda: self._links.pause(node_id))

    async def resume_broker(self, node_id: int) -> None:
        """Let a paused broker answer what it has received."""
        await self._undo((PAUSE, node_id), lambda: self._links.resume(node_id))
        for go_on in self._held.pop(node_id, ()):
            go_on()

    def is_paused(self, node_id: int) -> bool:
        """Return whether a broker answers nothing."""
        links = self._broker.links
        return links is not None and node_id in links.paused_ids

    def hold(self, node_id: int, go_on: Callable[[], None]) -> Callable[[], None]:
        """Call `go_on` when the paused broker is resumed. Return a function that cancels this."""
        self.changes.count((PAUSE, node_id))
        held = self._held.setdefault(node_id, [])
        held.append(go_on)

        def leave() -> None:
            if go_on in held:
                held.remove(go_on)

        return leave

    # ---- links and metadata

    async def disconnect(self, one: int, other: int) -> Fault:
        """Cut the link between two brokers."""
        where: Where = {"broker": one, "other": other}
        return await self._change(DISCONNECT, where, _link(one, other), lambda: self._links.disconnect(one, other))

    async def reconnect(self) -> None:
        """Restore all links."""
        for pair in self._links.cut:
            self.changes.forget((DISCONNECT, pair))
        self._links.reconnect()

    async def freeze_metadata(self, node_id: int) -> Fault:
        """Let Metadata and FindCoordinator of a broker answer what is true now."""
        return await self._change(
            FREEZE, {"broker": node_id}, (FREEZE, node_id), lambda: self._assembly.freeze_metadata(node_id)
        )

    async def unfreeze_metadata(self, node_id: int) -> None:
        """Let a broker answer what is true."""
        await self._undo((FREEZE, node_id), lambda: self._assembly.unfreeze_metadata(node_id))

    def _count_lost(self, one: int, other: int) -> bool:
        """Count a message that is lost because a link is cut. Replaces `Links.reaches`."""
        arrives = self._reaches(one, other)
        if not arrives:
            self.changes.count(_link(one, other))
        return arrives

    # ---- all

    async def reset(self) -> None:
        """Undo all changes: each broker runs, and leads the partitions of which it is the first replica."""
        if self._broker.links is None:
            return
        await self.reconnect()
        for broker in self._broker.brokers:
            await self._recover(broker.cluster.node_id)
        for node_id in sorted(self._broker.cluster.stopped_ids):
            await self.start_broker(node_id)
        for place, leader, first in list(self._leaders()):
            if leader != first and self._broker.cluster.has_partition(*place):
                await self._return_leader(place, first)

    async def _return_leader(self, place: TopicPartition, to: int) -> None:
        await self._undo((MOVE, place), lambda: self._assembly.leadership.move_leader(*place, to))

    async def _recover(self, node_id: int) -> None:
        """End a pause of the broker and its frozen metadata."""
        if self.is_paused(node_id):
            await self.resume_broker(node_id)
        if any(each.metadata is not each.cluster for each in self._broker.brokers if each.cluster.node_id == node_id):
            await self.unfreeze_metadata(node_id)

    @property
    def _links(self) -> Links:
        if self._broker.links is None:
            raise AdminError(409, "The process is one broker: ottla serve --brokers 3 starts three")
        return self._broker.links

    async def _change(self, do: str, where: Where, key: Key, work: Callable[[], Work | None]) -> Fault:
        assert self._links is not None
        change = self.changes.add(do, where, key)
        try:
            await _carry_out(work)
        except AdminError:
            self.changes.cancel(change)
            raise
        return change

    async def _undo(self, key: Key, work: Callable[[], Work | None]) -> None:
        assert self._links is not None
        await _carry_out(work)
        self.changes.forget(key)


async def _carry_out(work: Callable[[], Work | None]) -> None:
    try:
        waiting = work()
        if waiting is not None:
            await waiting
    except (LeadershipProblem, OSError) as problem:
        text = str(problem)
        raise AdminError(409, text[:1].upper() + text[1:]) from None


def _link(one: int, other: int) -> Key:
    return DISCONNECT, frozenset((one, other))
