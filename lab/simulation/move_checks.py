"""Checks of several brokers: coordinators that move, leaders of appends, epochs of batches and markers. free

Each step is checked by the state that it leaves, an append and a replay in the moment in which they happen.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from lab.planting import Original, Replacement
from lab.simulation.setting import DATA_DIR
from ottla.broker.api import produce
from ottla.broker.api.context import Broker
from ottla.broker.api.produce_check import Write
from ottla.broker.api.request import Request
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import read_metadata
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.group.shard import GroupShard, GroupStore
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult
from ottla.broker.txn.shard import Shard
from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from lab.simulation.world import World

FORMER_MOST: Final = 8
"""The number of resigned shards whose states are watched."""


class MoveChecks:
    """The brokers of one run as they were at the last step."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._shards: dict[TopicPartition, Any] = {}
        self._former: deque[Shard] = deque(maxlen=FORMER_MOST)
        self._leader_epochs: dict[Partition, int] = {}
        self._parked: dict[Partition, list[Any]] = {}
        self._checked: dict[Partition, tuple[int, int]] = {}
        """The end of the batches that were checked, and the epoch of the last one."""
        self._marker_epochs: dict[tuple[str, int], int] = {}

    def began_life(self) -> None:
        """Check all logs from their start again, and the coordinators once they are loaded."""
        for known in (self._shards, self._leader_epochs, self._parked, self._checked, self._marker_epochs):
            known.clear()
        self._former.clear()

    # --- steps

    def check(self, assembly: Assembly) -> Iterator[str]:
        """Check the coordinators, and the batches and leaders that are new since the last step."""
        yield from self._check_coordinators(assembly)
        yield from self._check_former()
        for partition in assembly.broker.cluster.partitions():
            before, now = self._leader_epochs.get(partition, 0), partition.leader_epoch
            if before != now:
                self._leader_epochs[partition] = now
                yield from self._check_waiting_fetches(partition)
            self._parked[partition] = [*partition._waiting_fetches]
            if self._checked.get(partition, (0, 0))[0] < partition.log_end_offset:
                yield from self._check_batches(partition, before)

    def _check_coordinators(self, assembly: Assembly) -> Iterator[str]:
        found: dict[TopicPartition, Any] = {}
        for broker in assembly.broker.brokers:
            runtimes: tuple[CoordinatorRuntime[Any, Any, Any], ...] = broker.transactions.states, broker.groups._manager
            for runtime in runtimes:
                for index, shard in runtime.shards.items():
                    place, node_id = (runtime.topic, index), broker.cluster.node_id
                    leader, epoch = assembly.broker.cluster.leader_of(*place)
                    if place in found or leader != node_id or shard.resigned:
                        yield f"two-coordinators: broker {node_id} coordinates {place}, and broker {leader} leads it"
                    elif getattr(shard, "epoch", epoch) != epoch:
                        yield f"two-coordinators: broker {node_id} coordinates {place} in {shard.epoch}, not in {epoch}"
                    found[place] = shard
        for place, shard in self._shards.items():
            if found.get(place) is not shard and isinstance(shard, Shard):
                _states_of(shard).moves.clear()
                self._former.append(shard)
        self._shards = found

    def _check_former(self) -> Iterator[str]:
        for shard in self._former:
            for transactional_id, before, after in _states_of(shard).moves:
                yield f"former-coordinator: {transactional_id} moves after the shard has resigned: {before} -> {after}"

    def _check_waiting_fetches(self, partition: Partition) -> Iterator[str]:
        left = [wait for wait in self._parked.get(partition, ()) if wait in partition._waiting_fetches]
        if left:
            yield f"parked: {len(left)} fetches wait for {partition.name}, whose leader has changed"

    def _check_batches(self, partition: Partition, least: int) -> Iterator[str]:
        """Check that new batches have an epoch that was the leader's in this step, and that no epoch falls."""
        if partition.offline is not None:
            return
        end, last = self._checked.get(partition, (0, 0))
        is_new = partition in self._checked
        for header, batch in partition.scan(end):
            epoch = header.partition_leader_epoch
            if epoch < last or epoch > partition.leader_epoch or (is_new and epoch < least):
                yield (
                    f"leader-epoch: {partition.name} has a batch of epoch {epoch} at {header.base_offset}, after "
                    f"{last}; the leader has {partition.leader_epoch}"
                )
            last = epoch
            if header.is_control:
                yield from self._check_marker(partition, header, batch)
        self._checked[partition] = partition.log_end_offset, last

    def _check_marker(self, partition: Partition, header: BatchHeader, batch: memoryview) -> Iterator[str]:
        marker = read_marker(batch, header)
        if marker is None:
            return
        key = partition.name, header.producer_id
        before = self._marker_epochs.get(key, -1)
        self._marker_epochs[key] = marker.coordinator_epoch
        if marker.coordinator_epoch < before:
            yield (
                f"coordinator-epoch: {partition.name} has a marker of coordinator epoch {marker.coordinator_epoch} for "
                f"producer {header.producer_id} at {header.base_offset}, after {before}"
            )

    # --- appends and replays

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Check the appends of clients, and what new coordinators read, where the engine is plain Python."""
        with ExitStack() as stack:
            for owner, name, check in (
                (produce, "_append", self._append),
                (Shard, "replay", self._replay),
                (GroupStore, "replay", self._replay),
            ):
                replacement = Replacement(owner, name, check)
                if not replacement.is_compiled:
                    stack.enter_context(replacement.plant())
            yield

    def _append(
        self, append: Original, broker: Broker, request: Request, write: Write, *arguments: Any
    ) -> AppendResult:
        result: AppendResult = append(broker, request, write, *arguments)
        if not result.error and not result.duplicate:
            leader, _ = broker.cluster.leader_of(write.topic, write.partition_index)
            if leader != broker.cluster.node_id:
                self._world.violations.append(
                    f"not-the-leader: broker {broker.cluster.node_id} appends to {write.topic}-"
                    f"{write.partition_index}, which broker {leader} leads"
                )
        return result

    def _replay(self, replay: Original, store: Shard | GroupStore, header: BatchHeader, batch: memoryview) -> None:
        replay(store, header, batch)
        if not isinstance(store, (Shard, GroupShard)) or header.is_control:
            return  # a group applies a marker when it is appended
        log = store.log
        if header.last_offset >= log.high_watermark:
            self._world.violations.append(
                f"loaded-early: a coordinator reads offset {header.last_offset} of {log.name}, which is durable up to "
                f"{log.high_watermark}"
            )

    # --- the end

    def check_image(self, assembly: Assembly) -> Iterator[str]:
        """Check that the metadata log, replayed, has the topics and leaders of the image."""
        directory = f"{DATA_DIR}/{METADATA_TOPIC}-0"
        disk = self._world.disk
        names = [name for name in disk.list(directory) if name.endswith((".log", ".checkpoint"))]
        image = MetadataImage()
        read_metadata({name: disk.read(f"{directory}/{name}") for name in names}, image)
        live = assembly.broker.cluster.image
        for name in sorted(live.topics.keys() | image.topics.keys()):
            if live.topics.get(name) != image.topics.get(name):
                yield f"replay: {name} is {live.topics.get(name)}, by the metadata log {image.topics.get(name)}"


def _states_of(shard: Shard) -> Any:
    """Return the states of a shard, which `Invariants` watches."""
    return shard.states
