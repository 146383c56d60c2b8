"""DescribeProducers 0: what partitions know of the producers that write to them. free

`current_txn_start_offset` is -1 without an open transaction; `coordinator_epoch` is that of the last marker. A hanging
transaction is ended with these numbers (WriteTxnMarkers). A partition that an existing topic does not have is refused
without a message, as Kafka does it. Of a partition with many producers each row is as that producer is when its turn
comes; which producers there are is asked once.
"""

from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.broker.cluster.names import topic_name_problem
from ottla.broker.log.partition import Partition
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import response_prefix
from ottla.protocol.primitives import write_count, write_string
from ottla.protocol.reply_wire import begin_producers_of_partition, write_producer

SLICE_MS = 5.0
CHECK_EVERY = 256
PIECE_BYTES = 1_000_000


async def handle(broker: Broker, request: Request) -> Reply:
    """One row for each partition, in the order asked; a few ms of them per turn."""
    answer = _Answer(broker)
    answer.piece += bytes(4)  # no throttling
    write_count(answer.piece, len(request.body.topics), True)
    for topic in request.body.topics:
        write_string(answer.piece, topic.name, True)
        write_count(answer.piece, len(topic.partition_indexes), True)
        for index in topic.partition_indexes:
            await answer.add(topic.name, index)
        answer.piece.append(0)
    answer.piece.append(0)
    size_bytes = sum(map(len, answer.pieces))
    prefix = response_prefix(ApiKey.DESCRIBE_PRODUCERS, request.api_version, request.correlation_id, size_bytes)
    return Encoded([prefix, *answer.pieces])


class _Answer:
    """The body so far, in pieces: the rows of a million producers are not copied into one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._until_ms = broker.clock.monotonic_ms() + SLICE_MS
        self.piece = bytearray()
        self.pieces = [self.piece]

    async def add(self, name: str, index: int) -> None:
        """One partition."""
        partition = self._broker.cluster.partition(name, index)
        if partition is None:
            error, message = _why_absent(self._broker, name)
        elif partition.offline is not None:
            error, message = ErrorCode.KAFKA_STORAGE_ERROR, partition.offline
        else:
            await self._add_producers(partition, index)
            return
        begin_producers_of_partition(self.piece, index, error, message, 0)
        self.piece.append(0)
        await self._rest()

    async def _add_producers(self, partition: Partition, index: int) -> None:
        producers = list(partition.producers())
        begin_producers_of_partition(self.piece, index, ErrorCode.NONE, None, len(producers))
        for start in range(0, len(producers), CHECK_EVERY):
            for each in producers[start : start + CHECK_EVERY]:
                write_producer(
                    self.piece,
                    each.producer_id,
                    each.epoch,
                    each.last_sequence,
                    each.last_timestamp_ms,
                    each.coordinator_epoch,
                    each.transaction_start,
                )
            await self._rest()
        self.piece.append(0)

    async def _rest(self) -> None:
        """Let others go ahead if this took long."""
        if self._broker.clock.monotonic_ms() <= self._until_ms:
            return
        if len(self.piece) > PIECE_BYTES:
            self.piece = bytearray()
            self.pieces.append(self.piece)
        await self._broker.turns.pause()
        self._until_ms = self._broker.clock.monotonic_ms() + SLICE_MS


def _why_absent(broker: Broker, name: str) -> tuple[ErrorCode, str | None]:
    problem = topic_name_problem(name)
    if problem is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    message = None if name in broker.cluster.topics else "This server does not host this topic-partition."
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message
