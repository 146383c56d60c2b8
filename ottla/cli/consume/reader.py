"""Reader of the records of a topic with their fates, an answer of a broker at a time. shell"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from ottla.fates import AbortedTransactions, Answer, Fate, MarkersAhead
from ottla.protocol.batch_header import BatchHeader, crc_is_valid, is_legacy, iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.records import Record, iter_records
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress
from ottla.wire.cluster import Cluster
from ottla.wire.partition_stream import PartitionStream, open_stream

MOST_IDS: Final = 100_000


class Span(NamedTuple):
    """Offsets [first, end) of a partition. `log_end`: the high watermark, up to which markers count.

    `stable`: the last stable offset, asked for after `log_end`. So no transaction that was open then has a marker below
    `log_end`.
    """

    partition: int
    first: int
    end: int
    log_end: int
    stable: int


class ConsumedRecord(NamedTuple):
    """A record with its fate.

    `waiting_for`: the last stable offset, if the record's fate is settled and committed reads do not reach it yet.
    """

    partition: int
    record: Record
    header: BatchHeader
    fate: Fate
    waiting_for: int | None
    transactional_id: str | None


class TransactionalIds:
    """The transactional ids of producer ids, as far as the coordinators list them to this user."""

    def __init__(self, cluster: Cluster, complain: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._complain = complain
        self._known: dict[int, str | None] = {}
        self._is_refused = False

    def learn(self, answer: Answer) -> None:
        """Ask for the ids of the transactions in an answer that are not known yet."""
        if len(self._known) > MOST_IDS:
            self._known.clear()
        new = {header.producer_id for _, header in answer.batches if header.is_transactional} - self._known.keys()
        if not new or self._is_refused:
            return
        self._known |= dict.fromkeys(new)
        try:
            self._known |= self._cluster.transactional_ids(new)
        except Unanswered as error:
            self._is_refused = True
            self._complain(f"transactional ids are not shown: {error}")

    def find(self, producer_id: int) -> str | None:
        return self._known.get(producer_id)


class TopicReader:
    """Reads spans of the partitions of one topic."""

    def __init__(
        self, address: KafkaAddress, cluster: Cluster, topic: str, topic_id: bytes, complain: Callable[[str], None]
    ) -> None:
        self._address = address
        self._cluster = cluster
        self._topic = topic
        self._topic_id = topic_id
        self._ids = TransactionalIds(cluster, complain)

    def read(self, span: Span, *, committed_only: bool) -> Iterator[ConsumedRecord]:
        """Yield the records of a span in order. Raises Unanswered, ProtocolError, and OSError for deleted records."""
        stable_end = max(span.first, min(span.end, span.stable))
        try:
            if span.first < stable_end:
                yield from self._read_stable(span._replace(end=stable_end), committed_only)
            if stable_end < span.end and not committed_only:
                yield from self._read_unstable(span._replace(first=stable_end))
        except ProtocolError as error:
            raise ProtocolError(f"{self._topic}-{span.partition}: {error}") from None

    def _read_stable(self, span: Span, committed_only: bool) -> Iterator[ConsumedRecord]:
        where = self._address, self._topic, self._topic_id, span.partition
        with open_stream(*where, span.end) as stream:
            for answer in read_answers(stream, span):
                self._ids.learn(answer)
                aborted = AbortedTransactions(answer)
                for position, header in answer.batches:
                    fate = aborted.pass_batch(position, header)
                    if not committed_only or fate is not Fate.ABORTED:
                        yield from self._records(span, answer, position, header, fate)

    def _read_unstable(self, span: Span) -> Iterator[ConsumedRecord]:
        where = self._address, self._topic, self._topic_id, span.partition
        with open_stream(*where) as ahead, open_stream(*where) as stream:
            markers = MarkersAhead(
                read_answers(ahead, span._replace(end=span.log_end)), partial(self._list_open, span.partition)
            )
            for answer in read_answers(stream, span):
                self._ids.learn(answer)
                for position, header in answer.batches:
                    yield from self._records(span, answer, position, header, markers.pass_batch(header), span.stable)

    def _list_open(self, partition: int) -> dict[int, int]:
        """Return producer ids with the first offset of a transaction that the leader still has open.

        Its marker is not below `log_end`.
        """
        opened, _ = self._cluster.open_transactions([(self._topic, partition)])
        return {each.producer_id: each.start_offset for each in opened}

    def _records(
        self,
        span: Span,
        answer: Answer,
        position: int,
        header: BatchHeader,
        fate: Fate,
        stable: int | None = None,
    ) -> Iterator[ConsumedRecord]:
        """Yield the records of a batch in the span, none of a control batch. Raises ProtocolError."""
        if header.is_control:
            return
        if not crc_is_valid(answer.records, header, position):
            raise ProtocolError(f"the CRC of the batch at offset {header.base_offset} is wrong; `ottla dump` shows it")
        name = self._ids.find(header.producer_id) if header.is_transactional else None
        waiting_for = None if fate is Fate.OPEN else stable
        for record in iter_records(answer.records, header, position):
            if span.first <= record.offset < span.end:
                yield ConsumedRecord(span.partition, record, header, fate, waiting_for, name)


def read_answers(stream: PartitionStream, span: Span) -> Iterator[Answer]:
    """Yield the answers of the broker that have the offsets of a span. The next one is requested meanwhile."""
    at = span.first
    while at < span.end:
        records = stream.read(at)
        if not records:
            return
        batches = tuple(iter_batches(records))
        after = batches[-1][1].next_offset if batches else at
        if after <= at:
            raise ProtocolError(f"the answer of the broker has no batch at or after offset {at}")
        aborted = stream.aborted
        if after < span.end:
            stream.request(after)
        yield Answer(records, tuple(each for each in batches if _is_within(each[1], at, span.end)), aborted)
        at = after


def _is_within(header: BatchHeader, first: int, end: int) -> bool:
    """Return whether a batch can have records in [first, end). An old message has the offset of its last record."""
    return header.last_offset >= first and (header.base_offset < end or is_legacy(header.magic))
