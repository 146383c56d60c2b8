"""Produce 3-13: check the batches, verify the transaction or join it, append. free

Version notes: 3 carries the transactional id and only batch v2; 5 adds the log start offset; 7 allows zstd; 8 adds
record errors; 9 is flexible; 10 adds leader hints (empty here: one broker leads everything); 11 may answer
TRANSACTION_ABORTABLE; 12 adds the partitions of transactional batches to the transaction (KIP-890); 13 has topic ids
instead of names and may answer UNKNOWN_TOPIC_ID.

A batch is checked before the transaction is verified. The last verification and the append share one step without a
suspension, so no marker is written between them (`verification.py`).
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Final

from ottla.broker.api import duplicates, durability, verification
from ottla.broker.api.context import Broker, count_rows
from ottla.broker.api.duplicates import MOST_CHARS, Duplicate
from ottla.broker.api.fencing_log import FENCED
from ottla.broker.api.produce_check import Write, check_all, check_records, transactional_header
from ottla.broker.api.refusals import record_refusal
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import NO_REPLY, Close, Encoded, Reply, Request
from ottla.broker.costs import APPEND_US, COPY_BYTE_US, LOOKUP_US, ROW_US
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.requests.produce_wire import PartitionResponse, ProduceBody, encode_produce_response
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ZERO_UUID, TopicPartition

log = logging.getLogger(__name__)

ROWS_AT_ONCE: Final = 100
"""The rows of a reply that Produce's own encoder writes at once."""
FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12

# Errors of the coordinator, as Produce reports them (AddPartitionsToTxnManager, ReplicaManager 4.3.1).
_COORDINATOR_ERRORS: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
_VERIFICATION_ERRORS: Final = _COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS}

# Errors that no correct producer gets: the log line names the producer. Other errors depend on the current state of
# topics, transactions and sequences.
_BAD_INPUT: Final = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    )
)
FIRST_VERSION_WITH_LEADERS: Final = 10
_WHY_UNVERIFIED: Final = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.NOT_ENOUGH_REPLICAS: "The coordinator does not know yet whether the partition belongs to the transaction",
}


async def handle(broker: Broker, request: Request) -> Reply:
    """Append every partition's batch; one row per partition with its error or its base offset."""
    body: ProduceBody = request.body
    writes, refused = await check_all(broker, request)
    if refused:
        return await _reply(broker, request, _refuse_all(body, refused))
    joined = await _join(broker, request, writes) if request.api_version >= FIRST_VERSION_THAT_ADDS else {}
    results = await _append_all(broker, request, writes, joined)
    if body.acks:
        await _wait_all_durable(broker, writes, results)
    return await _reply(broker, request, map(_row, writes, results))


# ---- append ----------------------------------------------------------------------------------------------------------


async def _join(broker: Broker, request: Request, writes: list[Write]) -> dict[TopicPartition, ErrorCode]:
    """Add the partitions whose log does not know the transaction. Return the errors of those that could not be
    added."""
    places: list[TopicPartition] = []
    owner = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    for write in writes:
        await broker.turns.spend(ROW_US)
        header = transactional_header(write)
        if header is None or write.error:
            continue
        partition = write.partition
        assert partition is not None
        owner = (header.producer_id, header.producer_epoch)
        if verification.local_verification(partition, *owner) is None:
            partition.maybe_start_transaction_verification(*owner, header.base_sequence, supports_epoch_bump=True)
            places.append((write.topic, write.partition_index))
    if not places:
        return {}
    retry_ms = broker.config.add_partitions_to_txn_retry_backoff_max_ms
    error = await verification.add(broker, request.body.transactional_id, *owner, places, retry_ms)
    return dict.fromkeys(places, _COORDINATOR_ERRORS.get(error, error)) if error else {}


async def _append_all(
    broker: Broker, request: Request, writes: list[Write], joined: Mapping[TopicPartition, ErrorCode]
) -> list[AppendResult]:
    results = []
    others: list[Duplicate] = []
    turns, metrics, events = broker.turns, broker.metrics, broker.events
    for write in writes:
        partition, check, size_bytes = write.partition, write.check, len(write.records)
        if partition is not None:
            while write.validated is not None and write.validated.settings is not partition.log.config:
                # The topic's settings have changed since the check.
                _, validated = await check_records(broker, partition, write.records, check)
                write = write._replace(validated=validated)
            partition.produce_requests += 1
        result = _append(broker, request, write, joined)
        if result.duplicate:
            assert partition is not None and check is not None and check.header is not None
            metrics.duplicates += 1
            duplicate = Duplicate(partition, check.header, write.records, result)
            result = await duplicates.judge(broker, request, duplicate, others)
        elif result.error is NO_ERROR:
            assert partition is not None
            records = result.last_offset + 1 - result.base_offset
            partition.bytes_in += size_bytes
            partition.records_in += records
            metrics.bytes_in += size_bytes
            metrics.records_in += records
            if events is not None and (header := transactional_header(write)) is not None:
                events.wrote(request.body.transactional_id, header.record_count, header.size_bytes)
        results.append(result)
        turns.charged_us += APPEND_US + size_bytes * COPY_BYTE_US
        if turns.must_yield:
            await turns.pause()
    if others:
        duplicates.log_duplicates(broker, request, others)
    return results


def _append(broker: Broker, request: Request, write: Write, joined: Mapping[TopicPartition, ErrorCode]) -> AppendResult:
    error, message, partition, check = write.error, write.message, write.partition, write.check
    if broker.links is not None and partition is not None and not broker.leads(partition):
        error = error or broker.cluster.absence(write.topic, write.partition_index)
    if not error:
        error = joined.get((write.topic, write.partition_index), NO_ERROR) if joined else NO_ERROR
        error = error or _verify(broker, request, write)
        if error:
            message = _WHY_UNVERIFIED.get(error)
    if not error:
        assert partition is not None and check is not None
        if partition.in_sync < partition.replicas and request.body.acks == -1 and partition.lacks_replicas:
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, log_start_offset=partition.log_start_offset)
        return partition.append_from_client(check, write.records, write.validated)
    start = -1
    if write.error == ErrorCode.INVALID_RECORD and partition and check and check.header:
        start = partition.log_start_offset  # as if the log had refused the batch
    return AppendResult(error, message=message, log_start_offset=start)


def _verify(broker: Broker, request: Request, write: Write) -> ErrorCode:
    """Ask the coordinator whether the partition is in the open transaction, if the log does not know it."""
    header = transactional_header(write)
    if header is None or not broker.config.transaction_partition_verification_enable:
        return NO_ERROR
    partition = write.partition
    assert partition is not None
    owner = (header.producer_id, header.producer_epoch)
    local = verification.local_verification(partition, *owner)
    if local is not None:
        return local
    version = request.api_version
    if version < FIRST_VERSION_THAT_ADDS:
        partition.maybe_start_transaction_verification(*owner, header.base_sequence, supports_epoch_bump=False)
    place = (write.topic, write.partition_index)
    knows_abortable = version == FIRST_VERSION_WITH_ABORTABLE
    error = verification.verify(broker, request.body.transactional_id, *owner, place, knows_abortable)
    return _VERIFICATION_ERRORS.get(error, error)


async def _wait_all_durable(broker: Broker, writes: list[Write], results: list[AppendResult]) -> None:
    """Wait until all batches are as durable as their logs guarantee. Replace the results of those that cannot be."""
    turns = broker.turns
    for at, (write, result) in enumerate(zip(writes, results, strict=True)):
        # The high watermark of the log decides: the flush of this append may have failed.
        if not result.error and write.partition and result.last_offset >= write.partition.high_watermark:
            results[at] = await _wait_durable(broker, write.partition, result)
        turns.charged_us += LOOKUP_US
        if turns.must_yield:
            await turns.pause()


async def _wait_durable(broker: Broker, partition: Partition, result: AppendResult) -> AppendResult:
    """Wait until the batch is as durable as the log guarantees. A duplicate waits for the original batch."""
    error = await durability.wait_durable(broker, partition, result.last_offset)
    return AppendResult(error, message=partition.offline) if error else result


# ---- report ----------------------------------------------------------------------------------------------------------


def _refuse_all(body: ProduceBody, error: ErrorCode) -> Iterator[PartitionResponse]:
    ids = body.topic_ids or [ZERO_UUID] * len(body.topics)
    for topic_id, (topic, partitions) in zip(ids, body.topics, strict=True):
        for index, _records in partitions:
            yield PartitionResponse(topic, index, error, topic_id=topic_id)


def _row(write: Write, result: AppendResult) -> PartitionResponse:
    return PartitionResponse(
        write.topic,
        write.partition_index,
        result.error,
        result.base_offset,
        result.log_append_time_ms,
        result.log_start_offset,
        result.record_errors,
        result.message,
        write.topic_id,
    )


async def _reply(broker: Broker, request: Request, rows: Iterator[PartitionResponse]) -> Reply:
    """Write a row for each partition; more than a few rows are written in turns. With acks=0 there is no reply: a
    failure closes the connection, because such a client notices nothing else."""
    few, acks = list(islice(rows, ROWS_AT_ONCE)), request.body.acks
    names_leaders = request.api_version >= FIRST_VERSION_WITH_LEADERS
    leaders: set[int] = set()
    if len(few) < ROWS_AT_ONCE:
        failed = [row for row in few if row.error]
        if acks:
            if failed and names_leaders:
                few = [_with_leader(broker, row, leaders) for row in few]
            encoded = encode_produce_response(
                few,
                request.api_version,
                request.correlation_id,
                node_endpoints=broker.endpoints_of(request.session.listener_name, leaders) if leaders else (),
            )
            return Encoded([encoded], row_errors=failed)
    else:
        reply, failed = ReplyBuilder(broker, request), []
        topics = reply.rows("responses")
        for (topic, topic_id), of_topic in groupby(chain(few, rows), _topic_of):
            partitions = reply.rows("responses", "partition_responses")
            for row in of_topic:
                if row.error:
                    failed.append(row)
                    if names_leaders:
                        row = _with_leader(broker, row, leaders)
                await partitions.add(*row[1:8], current_leader=row.current_leader)
            await topics.add(name=topic, topic_id=topic_id, partition_responses=partitions)
        if acks:
            endpoints = broker.endpoints_of(request.session.listener_name, leaders) if leaders else []
            return reply.finish(responses=topics, node_endpoints=endpoints)._replace(row_errors=failed)
    return Close(f"Produce v{request.api_version} with acks=0: {_why(failed)}", failed) if failed else NO_REPLY


def _with_leader(broker: Broker, row: PartitionResponse, leaders: set[int]) -> PartitionResponse:
    """Name the leader of a partition that another broker leads, and add it to `leaders` (KIP-951)."""
    if row.error != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return row
    current = broker.cluster.leader_of(row.topic, row.partition)
    leaders.add(current[0])
    return row._replace(current_leader=current)


def _topic_of(row: PartitionResponse) -> tuple[str, bytes]:
    return row.topic, row.topic_id


def report_rows(broker: Broker, request: Request, failed: Sequence[PartitionResponse]) -> None:
    """Count failed rows, record the first one, and log those that no correct producer gets."""
    errors = Counter([row.error for row in failed])
    count_rows(broker, request, errors)
    record_refusal(broker, request, failed[0].error, _why(failed))
    broker.metrics.sequence_gaps += errors[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    reused = [row for row in failed if row.error == ErrorCode.UNKNOWN_PRODUCER_ID]
    if reused:
        _log_sequence_reuse(broker, request, reused)
    if request.body.acks == 0:
        return  # the connection logs why it is closed
    fenced = [row for row in failed if row.error in FENCED]
    if fenced:
        broker.metrics.fenced += 1
        log.info("Fenced client %(client_id).100s at %(peer)s: Produce answered %(why)s", _about(request, fenced))
    bad = [row for row in failed if row.error in _BAD_INPUT]
    if bad:
        log.warning("Refused Produce v%(version)d of %(peer)s: %(why)s", _about(request, bad))


def _log_sequence_reuse(broker: Broker, request: Request, reused: Sequence[PartitionResponse]) -> None:
    """Log refusals with UNKNOWN_PRODUCER_ID. Kafka would have acknowledged some of these batches and dropped them."""
    broker.metrics.reused_sequences += len(reused)
    log.warning(
        "Refused batches of transactional id %(owner)r at %(peer)s that reuse its sequences: %(why)s; "
        "%(count)d such batches since the start",
        _about(request, reused)
        | {
            "owner": (request.body.transactional_id or "")[:MOST_CHARS],
            "count": broker.metrics.reused_sequences,
        },
    )


def _about(request: Request, failed: Sequence[PartitionResponse]) -> dict[str, object]:
    """Return the fields of a log line about failed rows; it names the first one."""
    first = {"topic": failed[0].topic, "partition": failed[0].partition, "error": ErrorCode(failed[0].error).name}
    return request.about | first | {"transactional_id": request.body.transactional_id, "why": _why(failed)}


def _why(failed: Sequence[PartitionResponse]) -> str:
    """Return the first failure and the number of failures. Names are quoted: they may have any bytes."""
    first = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    detail = f": {first.message}" if first.message else ""
    topic = first.topic[:MOST_CHARS] or first.topic_id.hex()
    return f"{topic!r}-{first.partition} {ErrorCode(first.error).name}{detail}{more}"


# Versions 0-2 are advertised and refused: librdkafka derives feature support from them (KAFKA-18659).
