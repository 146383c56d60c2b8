"""The producers of the cases: each step is sent to the broker and entered into the books. free"""

from collections.abc import Collection
from typing import Any, Final

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assemble, increment_sequence, read_header
from ottla.protocol.internal_topics.offsets_records import OffsetValue, encode_offset_value, offset_key
from ottla.protocol.records import NewRecord
from ottla.protocol.values import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition
from ottla.testkit.corpus.case_run import TIMEOUT_MS, CaseRun, Line, Refused, new_record
from ottla.testkit.corpus.expected import ExpectedPartition
from ottla.testkit.in_memory import wire
from ottla.testkit.in_memory.wire import V1, V2, Generation

__all__ = ["V1", "V2", "Producer"]

OFFSETS: Final[TopicPartition] = (CONSUMER_OFFSETS_TOPIC, 0)
# A coordinator uses the highest epoch for fencing, so a producer never gets it.
LAST_EPOCH: Final = MAX_PRODUCER_EPOCH - 1
_EMPTY, _ONGOING = "Empty", "Ongoing"
_COMPLETE = {True: "CompleteCommit", False: "CompleteAbort"}


class Producer:
    """A producer with the API versions of its generation; without a transactional id it is only idempotent."""

    def __init__(self, run: CaseRun, transactional_id: str | None, generation: Generation = V2) -> None:
        self.run = run
        self.transactional_id = transactional_id
        self.generation = generation
        self.places: list[TopicPartition] = []
        self._sent = 0
        if transactional_id is not None:
            run.find_coordinator(transactional_id, for_groups=False)
        reply = run.send_on(wire.init_producer_id(transactional_id, TIMEOUT_MS))
        self.become(ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch))

    def become(self, identity: ProducerIdAndEpoch) -> None:
        """Use this producer id and epoch from now on, with nothing sent yet."""
        self.identity = identity
        self.sequences: dict[TopicPartition, int] = {}
        self._forget(_EMPTY)

    def restart(self) -> None:
        """Initialise again, as after a crash.

        An open transaction is aborted with the next epoch; the producer then gets the epoch after that.
        """
        began_ms = self.run.now_ms
        reply = self.run.send_on(wire.init_producer_id(self.transactional_id, TIMEOUT_MS))
        producer_id, epoch = self.identity
        if self.places:
            epoch += 1
            self._close(ProducerIdAndEpoch(producer_id, epoch), False, began_ms)
        expected = ProducerIdAndEpoch(producer_id, epoch + 1)
        _hold(expected == (reply.producer_id, reply.producer_epoch), f"{self.transactional_id} is {reply}")
        self.become(expected)
        self.run.tick()

    def send(self, *lines: Line, partition: int = 0, topic: str | None = None, **batch: Any) -> None:
        """Send a batch, in a transaction if the producer has a transactional id."""
        place = (topic or self.run.name, partition)
        self.join(place)
        self._append(place, self._records(lines), **batch)
        self.run.tick()

    def send_late(self, *lines: Line) -> None:
        """Send a batch after the end of its transaction, without adding the partition at the coordinator."""
        self._append((self.run.name, 0), self._records(lines))
        self.run.tick()

    def _records(self, lines: Collection[Line]) -> list[NewRecord]:
        owner, first = self.transactional_id or "idempotent", self._sent
        self._sent += len(lines)
        return [new_record(line, owner, first + index) for index, line in enumerate(lines)]

    def join(self, *places: TopicPartition) -> None:
        """Make partitions part of the transaction, whether anything is sent there or not: the first generation only."""
        new = [place for place in places if place not in self.places]
        if self.transactional_id is None or not new:
            return
        if self.generation.adds_by_itself:
            self.run.send_on(wire.add_partitions(self.transactional_id, self.identity, new))
        self.places += new
        self._record(_ONGOING)

    def commit(self, *lines: Line) -> None:
        """Send a batch of these lines, if there are any, and commit."""
        if lines:
            self.send(*lines)
        self.end(commit=True)

    def abort(self, *lines: Line) -> None:
        """Send a batch of these lines, if there are any, and abort."""
        if lines:
            self.send(*lines)
        self.end(commit=False)

    def end(self, commit: bool, lost: Collection[TopicPartition] = ()) -> None:
        """End the transaction, and wait for its markers. The books omit the markers in `lost`."""
        assert self.transactional_id is not None
        began_ms = self.run.now_ms
        reply = self.run.send_on(wire.end_txn(self.generation, self.transactional_id, self.identity, commit))
        identity = marker = self.identity
        if not self.generation.adds_by_itself:
            # The epoch grows with every transaction, and the marker has the new one (KIP-890).
            marker = ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1)
            identity = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
            # The last epoch is followed by a new producer id.
            expected = marker if marker.epoch <= LAST_EPOCH else ProducerIdAndEpoch(identity.producer_id, 0)
            _hold(identity == expected, f"{self.transactional_id} is {identity}, not {expected}")
        self._close(marker, commit, began_ms, lost)
        if identity != self.identity:
            self.become(identity)
        self._forget(_COMPLETE[commit])
        self.run.tick()

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset of a group in the transaction."""
        assert self.transactional_id is not None
        run = self.run
        run.find_coordinator(group, for_groups=True)
        if self.generation.adds_by_itself:
            run.send_on(wire.add_offsets(self.transactional_id, self.identity, group))
        rows = [(topic, partition, offset)]
        fields = self.transactional_id, self.identity, group, rows, "", (-1, "")
        run.send_on(wire.txn_offset_commit(self.generation, *fields))
        if OFFSETS not in self.places:
            self.places.append(OFFSETS)
        self._record(_ONGOING)
        value = encode_offset_value(OffsetValue(offset, -1, "", run.now_ms))
        record = NewRecord(offset_key(group, topic, partition), value)
        # A group coordinator begins each of its batches with the sequence 0 (`CoordinatorRuntime`).
        run.expected[OFFSETS].append([record], run.now_ms, self.identity, 0, transactional=True)
        self._offsets[group, topic, partition] = offset
        committed, _ = run.offsets.get((group, topic, partition), (None, False))
        run.offsets[group, topic, partition] = (committed, True)
        run.tick()

    def _append(
        self, place: TopicPartition, records: list[NewRecord], codec: int = 0, payload: bytes = b"", **batch: Any
    ) -> None:
        """Append a batch; `payload` is its records section, compressed by a client with `codec`."""
        transactional = self.transactional_id is not None
        sequence = self.sequences.get(place, 0)
        content = build_batch(
            records,
            timestamp_ms=self.run.now_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            transactional=transactional,
            **batch,
        )
        if codec:
            header = read_header(content)
            content = assemble(header._replace(attributes=header.attributes | codec), payload)
        self.run.produce(self.transactional_id, place, bytes(content), self.generation.produce)
        self.sequences[place] = increment_sequence(sequence, len(records))
        partition = self._partition(place)
        append_time_ms = self.run.append_time_ms(place[0])
        partition.append(records, self.run.now_ms, self.identity, sequence, transactional, append_time_ms)

    def _close(
        self, marker: ProducerIdAndEpoch, commit: bool, timestamp_ms: int, lost: Collection[TopicPartition] = ()
    ) -> None:
        """Enter the markers into the books, and apply or drop the group offsets."""
        for place in self.places:
            if place in lost:
                continue
            self._partition(place).end_transaction(marker, commit, timestamp_ms)
        for key, offset in self._offsets.items():
            before, _ = self.run.offsets[key]
            self.run.offsets[key] = (offset if commit else before, False)

    def _forget(self, state: str) -> None:
        """Record that no transaction is open."""
        self.places = []
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._record(state)

    def _record(self, state: str) -> None:
        if self.transactional_id is not None:
            self.run.transactions[self.transactional_id] = (state, self.identity)

    def _partition(self, place: TopicPartition) -> ExpectedPartition:
        return self.run.expected[place]


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Refused(otherwise)
