"""Producer of transactions of many records, and a read_committed consumer, which need little CPU time. shell

Requests are encoded once. For each transaction only the producer id, epoch, sequence and checksum are written into the
batch.
"""

import statistics
import time
from itertools import pairwise
from struct import Struct

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import seal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from parts import raw
from parts.processes import Broker

PRODUCE, FETCH = 12, 12
IN_FLIGHT = 5
BATCH_BYTES = 16_384
RECORD_OVERHEAD_BYTES = 12
RETRY_S = 0.001
MAX_WAIT_MS = 10_000

TRY_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # Kafka has just created the topic
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)

_PRODUCER_AT = 43  # position in a batch of producer id, epoch and base sequence
_PRODUCER = Struct(">qhi")
_ERROR = Struct(">h")


class Batch:
    """Produce request of one batch of `count` records of `record_bytes` each, plus their framing."""

    def __init__(self, topic: str, transactional_id: str, count: int, record_bytes: int) -> None:
        self.count = count
        records = bytes(
            build_batch(
                [(None, bytes([65 + number % 26]) * record_bytes) for number in range(count)],
                timestamp_ms=time.time_ns() // 1_000_000,
                transactional=True,
            )
        )
        request = codec.request_class(ApiKey.PRODUCE)
        data = request.TopicProduceData
        message = request(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=0, records=records)])],
        )
        self._frame = bytearray(codec.encode_request(message, PRODUCE, 0, "benchmark"))
        self._at = self._frame.index(records)

    def of(self, producer_id: int, epoch: int, sequence: int) -> bytearray:
        """Return the request of this producer. It is the same bytearray each time."""
        _PRODUCER.pack_into(self._frame, self._at + _PRODUCER_AT, producer_id, epoch, sequence)
        seal(self._frame, self._at)
        return self._frame


class Producer(raw.Transactional):
    """Transactional producer (V2) of one partition, with as many requests in flight as Kafka's producer."""

    def __init__(self, connection: BlockingConnection, topic: str, record_bytes: int) -> None:
        super().__init__(connection, f"{topic}-producer", topic, v2=True)
        self.retries = 0
        self._full = max(1, BATCH_BYTES // (record_bytes + RECORD_OVERHEAD_BYTES))
        self._batches: dict[int, Batch] = {}
        self._error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4  # correlation id, tags; topics, name; partitions, index
        self._record_bytes = record_bytes

    def transact_many(self, count: int) -> None:
        """Run a transaction of `count` records in batches of 16 KiB at most.

        The first batch adds the partition to the transaction. The broker may return a retriable error for it while
        markers of the previous transaction are missing. The other batches wait for it: they would arrive out of order.
        """
        first, *others = self._split(count)
        sequence = 0
        while self._answer(self._send(first, sequence)):
            self.retries += 1
            time.sleep(RETRY_S)
        waiting = 0
        for batch in others:
            sequence += self._full
            self._send(batch, sequence)
            waiting += 1
            if waiting == IN_FLIGHT:
                self._answer()
                waiting -= 1
        for _ in range(waiting):
            self._answer()
        self.end()

    def _split(self, count: int) -> list[Batch]:
        full, rest = divmod(count, self._full)
        return [self._batch(self._full)] * full + ([self._batch(rest)] if rest else [])

    def _batch(self, count: int) -> Batch:
        found = self._batches.get(count)
        if found is None:
            found = self._batches[count] = Batch(self._topic, self._id, count, self._record_bytes)
        return found

    def _send(self, batch: Batch, sequence: int) -> None:
        self.connection.write(batch.of(self.producer_id, self.epoch, sequence))

    def _answer(self, _sent: None = None) -> bool:
        """Read an answer; return True if the request has to be sent again."""
        (error,) = _ERROR.unpack_from(self.connection.read_frame(), self._error_at)
        return raw.check(error, *TRY_AGAIN)


class Reader:
    """Consumer of one partition with read_committed, which waits at its end."""

    def __init__(self, connection: BlockingConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._offset = 0

    def catch_up(self) -> None:
        """Move to the end of the log, after the last marker, which may be written after the EndTxn response."""
        while True:
            self._ask(0)
            stable, end = self._receive_offsets()
            self._offset = stable
            if stable == end:
                return
            time.sleep(RETRY_S)

    def wait(self) -> None:
        """Send a Fetch that the broker answers when the next records are committed."""
        self._ask(MAX_WAIT_MS)

    def seen(self) -> float:
        """Return the time when the records that `wait` requested arrived, and move to the last stable offset."""
        stable, _ = self._receive_offsets()
        arrived = time.perf_counter()
        if stable == self._offset:
            raise SystemExit(f"nothing was committed in {MAX_WAIT_MS} ms")
        self._offset = stable
        return arrived

    def _receive_offsets(self) -> tuple[int, int]:
        """Return (last stable offset, high watermark)."""
        (partition,) = self._connection.receive().responses[0].partitions
        raw.check(partition.error_code)
        return partition.last_stable_offset, partition.high_watermark

    def _ask(self, max_wait_ms: int) -> None:
        request = codec.request_class(ApiKey.FETCH)
        topic = request.FetchTopic
        partition = topic.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=self._offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        message = request(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self._topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        self._connection.post(message, FETCH)


class Pair:
    """Producer and reader of one broker, each on its own connection."""

    def __init__(self, broker: Broker, topic: str, record_bytes: int) -> None:
        assert broker.pid is not None
        self.name = broker.name
        self._pid = broker.pid
        self._connections = raw.open_connection(broker.bootstrap), raw.open_connection(broker.bootstrap)
        raw.create_topic(self._connections[0], topic)
        self.producer = Producer(self._connections[0], topic, record_bytes)
        self.producer.transact_many(1)
        self.reader = Reader(self._connections[1], topic)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def write(self, size: int, count: int) -> tuple[float, float]:
        """Run `count` transactions in turn; return the ms of one: median wall time and mean CPU time of the broker."""
        self.producer.transact_many(size)  # encodes its batches, once
        before, times = raw.cpu_s(self._pid), [time.perf_counter()]
        for _ in range(count):
            self.producer.transact_many(size)
            times.append(time.perf_counter())
        cpu_s = raw.cpu_s(self._pid) - before
        return statistics.median(end - begin for begin, end in pairwise(times)) * 1000, cpu_s / count * 1000

    def oldest_ms(self, size: int, count: int) -> float:
        """Return the median ms of `count` times from sending a transaction's first record until the reader has it."""
        self.reader.catch_up()
        samples = []
        for _ in range(count):
            self.reader.wait()
            began = time.perf_counter()
            self.producer.transact_many(size)
            samples.append((self.reader.seen() - began) * 1000)
        return statistics.median(samples)
