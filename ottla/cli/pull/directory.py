"""A pulled log directory: its check before a run, the copy of each partition, and the files that complete it. shell

The mark comes first, then the partitions, then `bootstrap.checkpoint` (topics, configs, leader epochs, producer ids:
what `ottla graduate` writes, and a broker reads if it finds no other metadata), then the checkpoints, then the mark of
a clean stop. Each is replaced by a rename, so a killed run leaves sound files, and the next run continues.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ottla import files
from ottla.broker.cluster.adoption_records import PRODUCER_ID_BLOCK
from ottla.broker.cluster.features import (
    GROUP_FEATURE,
    GROUP_VERSION,
    METADATA_FEATURE,
    METADATA_VERSION,
    TRANSACTION_FEATURE,
)
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, UNREGISTERED, MetadataImage, TopicImage
from ottla.broker.cluster.kraft import BOOTSTRAP
from ottla.broker.cluster.kraft_bootstrap import bootstrap_records
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.config import Config
from ottla.broker.ports.disk import Disk
from ottla.broker.ports.locks import LockHeld
from ottla.cli.pull.mark import MARK, MARK_BYTES, Mark, PartitionMark, TopicMark, decode_mark, encode_mark
from ottla.cli.pull.partition import SEGMENT_BYTES, Calls, PartitionCopy, make_directory
from ottla.cli.pull.positions import CONFIGS, PARTITIONS, ask_positions, write_positions
from ottla.cli.pull.segment_writer import Refused
from ottla.cli.pull.source import Range, Source, SourceTopic
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.kraft_records import build_snapshot
from ottla.protocol.internal_topics.metadata_records import (
    NO_LEADER,
    MetadataRecord,
    PartitionRecord,
    encode_metadata_record,
)
from ottla.protocol.java.properties import read_properties
from ottla.protocol.values import ZERO_UUID, TopicPartition
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.cluster import EARLIEST
from ottla.wire.topology import DELETED

NODE_ID: Final = Config().node_id
_LAST_PRODUCER_ID: Final = 2**62
_OF_A_START: Final = (checkpoints.LOCK, f"{MARK}.tmp", "lost+found")
"""Names in a new file system, or after a first run that was killed before it wrote the mark."""
_UNMARKED_BYTES: Final = 256 * 1024 * 1024
"""The mark is written after about as many copied bytes: a killed run checks its partitions from there on again."""


class CannotPull(Exception):
    """The directory cannot take this copy, and was not changed. The text is one line with the reason."""


class Row(NamedTuple):
    """The result for a partition: the copy has offsets [start_offset, end_offset); this run read `size_bytes`."""

    partition: str
    start_offset: int
    end_offset: int
    batches: int
    size_bytes: int


class Progress(NamedTuple):
    """Callbacks of a run: the number of partitions that are done, and the bytes of each chunk that was written."""

    on_partition: Callable[[int, int], None]
    on_bytes: Callable[[int], None]


@contextmanager
def open_directory(disk: Disk, place: str) -> Iterator[Mark | None]:
    """Lock a directory, and yield its mark; None for a new or empty one. Raises CannotPull, OSError."""
    path = Path(place)
    if path.exists():
        names = {name for name in disk.list(place) if name not in _OF_A_START}
        if names and MARK not in names:
            raise CannotPull(f"{place} has other files, and no {MARK}: name a new directory, or one that was pulled")
    else:
        path.mkdir(mode=0o700, parents=True)
    try:
        lock = disk.lock(f"{place}/{checkpoints.LOCK}")
    except LockHeld as held:
        raise CannotPull(str(held)) from None
    try:
        yield _read_mark(disk, place)
    finally:
        lock.release()


def _read_mark(disk: Disk, place: str) -> Mark | None:
    path = f"{place}/{MARK}"
    if not disk.exists(path):
        return None
    if disk.exists(f"{place}/{METADATA_TOPIC}-0"):
        raise CannotPull(f"{place} has served or graduated since it was pulled: pull into a new directory")
    try:
        mark = decode_mark(files.read(path, MARK_BYTES))
    except ProtocolError as broken:
        raise CannotPull(f"{path}: {broken}; pull into a new directory") from None
    return mark


class Pull:
    """A run of `ottla pull`: copies the topics of a source into a directory that the caller has locked.

    `rows` has the partitions that were copied, `left_out` what was not, with the reasons. `positions` is the number of
    committed offsets that OffsetFetch gave.
    """

    def __init__(
        self, disk: Disk, place: str, address: KafkaAddress, found: Mark | None, source: Source, now_ms: int
    ) -> None:
        """Raises CannotPull if the directory is a copy of another cluster."""
        if found is not None and found.cluster_id != source.cluster_id:
            raise CannotPull(f"{place} is a copy of cluster {found.cluster_id}, and {address} is {source.cluster_id}")
        self._disk = disk
        self._place = place
        self._address = address
        self._source = source
        self._now_ms = now_ms
        self.mark = found or Mark(str(address), source.cluster_id, now_ms)
        self.rows: list[Row] = []
        self.positions = 0
        self.left_out = list(source.left_out)
        self._unmarked_bytes = 0

    def run(self, progress: Progress, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Copy all topics. A partition whose leader fails is left out.

        Raises CannotPull, and Unanswered if no broker answers, OSError: the next run continues.
        """
        self._begin()
        if self._source.lacks_groups:
            self._copy_positions()
        topics = [topic for topic in self._source.topics if self._accept(topic)]
        self._write_mark()
        count, done = sum(len(topic.ranges) for topic in topics), 0
        for topic in topics:
            for index, found in topic.ranges.items():
                progress.on_partition(done, count)
                done += 1
                self._guard(f"{topic.name}-{index}", partial(self._copy, topic, index, found, progress, segment_bytes))
        if any(row.batches for row in self.rows):
            reasons = self._explain_other_topics(topics)
            self.left_out += [f"{name}: {reason}" for name, reason in reasons.items()]
        progress.on_partition(done, count)

    def _guard(self, name: str, work: Callable[[], str | None]) -> None:
        """List what fails as left out. Raises Unanswered if no broker answers: then the rest need not be tried."""
        try:
            reason = work()
        except (Refused, Unanswered, ProtocolError) as error:
            reason = str(error)
        if reason:
            self.left_out.append(f"{name}: {reason}")
            with connections_to(self._address).borrow() as cluster:
                cluster.topology([])

    # --- partitions -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Mark the directory as one whose copy is not finished."""
        Path(self._place).chmod(0o700)
        self.mark.source, self.mark.began_ms, self.mark.ended_ms = str(self._address), self._now_ms, None
        self._write_mark()
        clean = f"{self._place}/{checkpoints.CLEAN_SHUTDOWN}"
        if self._disk.exists(clean):
            self._disk.remove(clean)
            self._disk.sync_dir(self._place)
        if not self._disk.exists(f"{self._place}/{checkpoints.META_PROPERTIES}"):
            properties = {
                "version": "1",
                "cluster.id": self.mark.cluster_id,
                "node.id": str(NODE_ID),
                "directory.id": checkpoints.encode_id(self._disk.random_id()),
            }
            self._replace(checkpoints.META_PROPERTIES, checkpoints.encode_properties(properties))

    def _read_identity(self) -> tuple[int, bytes]:
        """Return the node id and the directory id. Raises CannotPull if `meta.properties` lacks them."""
        path = f"{self._place}/{checkpoints.META_PROPERTIES}"
        try:
            found = read_properties(self._disk.read(path))
            return int(found["node.id"]), checkpoints.decode_id(found["directory.id"])
        except (ProtocolError, KeyError, ValueError) as broken:
            raise CannotPull(f"{path} was changed ({broken}): remove it, and run the same command again") from None

    def _accept(self, topic: SourceTopic) -> bool:
        """Update the mark of a topic. Return False if it is another one than that of the copy."""
        known = self.mark.topics.get(topic.name)
        if topic.name == CONSUMER_OFFSETS_TOPIC and self.mark.has_positions:
            self.left_out.append(f"{topic.name}: the copy has positions of OffsetFetch; pull into a new directory")
            return False
        if known is None:
            topic_id = topic.topic_id if topic.topic_id != ZERO_UUID else self._disk.random_id()
            known = self.mark.topics[topic.name] = TopicMark(topic_id, topic.partition_count)
        if topic.topic_id not in (known.topic_id, ZERO_UUID):
            self.left_out.append(f"{topic.name}: {_RECREATED}")
            return False
        known.count = max(known.count, topic.partition_count)
        known.configs = topic.configs
        for index, found in topic.ranges.items():
            known.partitions.setdefault(index, PartitionMark(found.log_start, None, found.leader_epoch))
        return True

    def _copy(self, topic: SourceTopic, index: int, found: Range, progress: Progress, segment_bytes: int) -> str:
        """Copy a partition. Return the reason why it is not whole; empty if it is. Raises Refused, Unanswered."""
        marked = self.mark.topics[topic.name]
        known = marked.partitions[index]
        directory = f"{self._place}/{topic.name}-{index}"
        make_directory(self._disk, directory, marked.topic_id)
        calls = Calls(
            find_start=lambda: self._find_start(topic, index),
            find_epoch_end=lambda epoch: self._find_epoch_end(topic.name, index, epoch),
            on_start=lambda start: self._move_start(known, start),
            on_damage=lambda damage: self._add_missing(known, damage),
            on_bytes=progress.on_bytes,
        )
        limit = min(segment_bytes, int(topic.configs.get("segment.bytes", SEGMENT_BYTES)))
        copy = PartitionCopy(self._disk, directory, self._now_ms, calls, limit)
        first = found.start if known.end is not None else max(found.start, known.start)
        window = OffsetWindow(self._address, topic.name, topic.topic_id, index, first, found.end)
        copied = copy.run(window, known.start, known.end, has_new_leader=found.leader_epoch > known.leader_epoch)
        self.rows.append(Row(f"{topic.name}-{index}", copied.start, copied.end, copied.batches, copied.size_bytes))
        self.left_out += [f"{topic.name}-{index}: {damage}" for damage in (*known.missing, *copied.damage)]
        known.leader_epoch = max(known.leader_epoch, found.leader_epoch, copied.leader_epoch)
        known.start, known.end = copied.start, copied.end
        if not copied.failure:
            known.copied_ms = self._now_ms
        highest = min(copied.highest_producer_id, _LAST_PRODUCER_ID)
        if highest >= self.mark.next_producer_id:
            self.mark.next_producer_id = (highest // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK
        self._unmarked_bytes += copied.size_bytes
        if self._unmarked_bytes >= _UNMARKED_BYTES:
            self._write_mark()
        return copied.failure

    def _move_start(self, known: PartitionMark, start: int) -> None:
        known.start, known.end = start, None
        self._write_mark()

    def _add_missing(self, known: PartitionMark, damage: Sequence[str]) -> None:
        known.missing = [*dict.fromkeys((*known.missing, *damage))]
        self._write_mark()

    def _explain_other_topics(self, topics: Sequence[SourceTopic]) -> dict[str, str]:
        """Return the topics that are other ones now, with the reason. Brokers before Kafka 3.1 send records by name."""
        with connections_to(self._address).borrow() as cluster:
            topology = cluster.topology([topic.name for topic in topics])
        deleted = [topic.name for topic in topics if topology.errors.get(topic.name) in DELETED]
        other = [topic.name for topic in topics if topology.topic_ids.get(topic.name, topic.topic_id) != topic.topic_id]
        return dict.fromkeys(other, _RECREATED) | dict.fromkeys(deleted, "the topic was deleted while it was read")

    def _find_start(self, topic: SourceTopic, index: int) -> int:
        """Return the log start of a partition at the source. Raises Refused if the topic is another one now."""
        if reason := self._explain_other_topics([topic]).get(topic.name):
            raise Refused(reason)
        place = topic.name, index
        with connections_to(self._address).borrow() as cluster:
            starts = cluster.offsets([place], EARLIEST)
        if place not in starts.offsets:
            raise Refused(starts.errors.get(place, "the topic was deleted while it was read"))
        return starts.offsets[place]

    def _find_epoch_end(self, name: str, index: int, leader_epoch: int) -> int:
        with connections_to(self._address).borrow() as cluster:
            return cluster.epoch_end(name, index, leader_epoch)

    def _copy_positions(self) -> None:
        """Make `__consumer_offsets` of the answers of OffsetFetch. If a broker fails, those of the last run stay."""
        name, topics = CONSUMER_OFFSETS_TOPIC, self.mark.topics
        if name in topics and not self.mark.has_positions:
            self.left_out.append(f"{name}: this user lacks READ on the topic, of which the directory has a copy")
            return
        try:
            with connections_to(self._address).borrow() as cluster:
                found = ask_positions(cluster, self._now_ms)
        except (Unanswered, ProtocolError) as error:
            self.left_out.append(f"{name}: {error}")
            return
        self.mark.has_positions = True
        marked = topics.setdefault(name, TopicMark(self._disk.random_id(), PARTITIONS, dict(CONFIGS)))
        self.left_out += found.gaps
        write_positions(self._disk, self._place, marked, found.commits, self._now_ms, self._write_mark)
        self.positions = len(found.commits)

    # --- the rest of the directory ----------------------------------------------------------------------------------

    def finish(self, now_ms: int) -> None:
        """Write the metadata, the checkpoints and the mark, and declare a clean stop."""
        records = self._records()
        content = build_snapshot([], [encode_metadata_record(record) for record in records], now_ms)
        self._replace(BOOTSTRAP, content)
        ends: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        for name, topic in self.mark.topics.items():
            for index, one in topic.partitions.items():
                if one.end is not None:
                    starts[name, index], ends[name, index] = one.start, one.end
        self._replace(checkpoints.LOG_STARTS, checkpoints.encode_offsets(starts))
        self._replace(checkpoints.HIGH_WATERMARKS, checkpoints.encode_offsets(ends))
        self._replace(checkpoints.RECOVERY_POINTS, checkpoints.encode_offsets(ends))
        self.mark.ended_ms, self.mark.left_out = now_ms, [*self.left_out, *self._source.notes]
        self._write_mark()
        self._replace(checkpoints.CLEAN_SHUTDOWN, checkpoints.CLEAN_SHUTDOWN_CONTENT)

    def _records(self) -> list[MetadataRecord]:
        """Return the metadata of the copy. A partition that was not copied has no replica."""
        node_id, directory_id = self._read_identity()
        features = {METADATA_FEATURE: METADATA_VERSION, TRANSACTION_FEATURE: Config().transaction_version}
        image = MetadataImage(next_producer_id=self.mark.next_producer_id)
        image.features |= features | {GROUP_FEATURE: GROUP_VERSION}
        absent: set[tuple[bytes, int]] = set()
        for name, topic in self.mark.topics.items():
            ends = [topic.partitions.get(index) for index in range(topic.count)]
            epochs = [max(one.leader_epoch, 0) if one is not None else 0 for one in ends]
            absent |= {(topic.topic_id, index) for index, one in enumerate(ends) if one is None or one.end is None}
            image.add_topic(TopicImage(name, topic.topic_id, epochs, [UNREGISTERED] * topic.count, topic.configs))
        return [
            PartitionRecord(record.partition_id, record.topic_id, (), (), NO_LEADER, leader_epoch=0, partition_epoch=0)
            if isinstance(record, PartitionRecord) and (record.topic_id, record.partition_id) in absent
            else record
            for record in bootstrap_records(image, node_id, directory_id, METADATA_VERSION)
        ]

    def _write_mark(self) -> None:
        self._unmarked_bytes = 0
        self._replace(MARK, encode_mark(self.mark))

    def _replace(self, name: str, content: bytes) -> None:
        self._disk.write_atomically(f"{self._place}/{name}", content)


_RECREATED: Final = "the topic was created again since it was copied; pull it into a new directory"
