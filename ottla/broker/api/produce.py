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
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Final, NamedTuple

from ottla.broker.api import duplicates, durability, verification
from ottla.broker.api.authorization import need_of
from ottla.broker.api.context import NO_REPLY, Api, Broker, Close, Encoded, Reply, Request, count_rows
from ottla.broker.api.duplicates import MOST_CHARS, Duplicate
from ottla.broker.api.fencing_log import FENCED
from ottla.broker.api.refusals import record_refusal
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.costs import APPEND_US, COPY_BYTE_US, LOOKUP_US, ROW_US
from ottla.broker.events import Events
from ottla.broker.log.log_validator import ValidationResult, is_recompressed
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import HEADER_SIZE, MAGIC, TRANSACTIONAL, BatchHeader, read_header, says_transactional
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.requests.produce_wire import PartitionResponse, Partitions, ProduceBody, encode_produce_response
from ottla.protocol.requests.produced import BatchCheck, Checked, check_at_once, check_steps
from ottla.protocol.steps import RECORD_US, Steps
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ZERO_UUID, TopicPartition

log = logging.getLogger(__name__)

_WRITE_ID: Final = need_of(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
_WRITE: Final = need_of(AclOperation.WRITE, ResourceType.TOPIC)
CHECK_US = 6.0
"""Look up and check one partition's batch, without its records."""
ROWS_AT_ONCE = 100
"""The rows of a reply that Produce's own encoder writes at once."""
ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13

# Errors of the coordinator, as Produce reports them (AddPartitionsToTxnManager, ReplicaManager 4.3.1).
_COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
_VERIFICATION_ERRORS = _COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS}

# Errors that no correct producer gets: the log line names the producer. Other errors depend on the current state of
# topics, transactions and sequences.
_BAD_INPUT = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    )
)
_WHY_UNVERIFIED = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.NOT_ENOUGH_REPLICAS: "The coordinator does not know yet whether the partition belongs to the transaction",
}
_TOO_LARGE = "The batch of {} bytes exceeds the topic's max.message.bytes, {}"


class Write(NamedTuple):
    """A partition of the request. `partition` is None and `error` set if it is refused before the append.

    `topic` is empty if its id is unknown. The id is zero if the request has names.
    """

    topic: str
    topic_id: bytes
    partition_index: int
    records: memoryview | None
    partition: Partition | None
    check: BatchCheck | None
    error: ErrorCode
    message: str | None
    validated: ValidationResult | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the write is refused, or validated and ready to append."""
        return self.error is not NO_ERROR or self.validated is not None


async def handle(broker: Broker, request: Request) -> Reply:
    """Append every partition's batch; one row per partition with its error or its base offset."""
    body: ProduceBody = request.body
    turns, is_open = broker.turns, broker.authorizer is None
    if not is_open and not await _may_use_id(broker, request):
        return await _reply(broker, request, _refuse_all(body, _WRITE_ID.error))
    if body.acks not in (-1, 0, 1):
        return await _reply(broker, request, _refuse_all(body, ErrorCode.INVALID_REQUIRED_ACKS))
    writes: list[Write] = []
    places: set[tuple[str, bytes, int]] = set()
    owners: set[tuple[int, int]] = set()
    for topic, topic_id, partitions in _iter_topics(broker, body):
        is_denied = not is_open and bool(topic) and not broker.may(request, _WRITE, topic)
        for index, records in partitions:
            if is_denied:
                write = Write(topic, topic_id, index, records, None, None, _WRITE.error, None)
            else:
                if broker.cluster.is_unopened(topic, index):
                    await broker.cluster.get_or_open(topic, index)
                write = _check(broker, request.api_version, topic, topic_id, index, records)
            if not write.is_ready:
                write = await _check_in_steps(broker, request.api_version, write)
            writes.append(write)
            places.add((topic, topic_id, index))
            if (header := _transactional_header(write)) is not None:
                owners.add((header.producer_id, header.producer_epoch))
            turns.charged_us += CHECK_US
            if turns.must_yield:
                await turns.pause()
    # If a partition is named twice, one of its batches would be lost.
    refused = ErrorCode.INVALID_REQUEST if len(places) < len(writes) else _refuse_owners(body, owners)
    if refused:
        return await _reply(broker, request, _refuse_all(body, refused))
    joined = await _join(broker, request, writes) if request.api_version >= FIRST_VERSION_THAT_ADDS else {}
    results = await _append_all(broker, request, writes, joined)
    if body.acks:
        for at, (write, result) in enumerate(zip(writes, results, strict=True)):
            # The high watermark of the log decides: the flush of this append may have failed.
            if not result.error and write.partition and result.last_offset >= write.partition.high_watermark:
                results[at] = await _wait_durable(broker, write.partition, result)
            turns.charged_us += LOOKUP_US
            if turns.must_yield:
                await turns.pause()
    return await _reply(broker, request, map(_row, writes, results))


async def _may_use_id(broker: Broker, request: Request) -> bool:
    """Return whether no batch is transactional, or the client may write with the transactional id.

    The batches' own flag decides, whether they can be written or not (CVE-2018-17196).
    """
    body, turns = request.body, broker.turns
    for _, partitions in body.topics:
        for _, records in partitions:
            if records is not None and says_transactional(records):
                return body.transactional_id is not None and broker.may(request, _WRITE_ID, body.transactional_id)
            turns.charged_us += ROW_US
            if turns.must_yield:
                await turns.pause()
    return True


def _iter_topics(broker: Broker, body: ProduceBody) -> Iterator[tuple[str, bytes, Partitions]]:
    """Yield (name, id, partitions) of each topic; the name is empty if no topic has the id."""
    if not body.topic_ids:
        for name, partitions in body.topics:
            yield name, ZERO_UUID, partitions
        return
    for topic_id, (_, partitions) in zip(body.topic_ids, body.topics, strict=True):
        topic = broker.cluster.topics_by_id.get(topic_id)
        yield "" if topic is None else topic.name, topic_id, partitions


def _check(broker: Broker, version: int, topic: str, topic_id: bytes, index: int, records: memoryview | None) -> Write:
    """Check and validate one partition's batch, if that is short. Otherwise `Write.is_ready` is False."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS and not topic:
        return Write(topic, topic_id, index, records, None, None, ErrorCode.UNKNOWN_TOPIC_ID, None)
    if topic in INTERNAL_TOPICS:
        return Write(topic, topic_id, index, records, None, None, ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    partition = broker.cluster.partition(topic, index)
    if partition is None:
        return Write(topic, topic_id, index, records, None, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    if version >= FIRST_VERSION_WITH_TOPIC_IDS and partition.topic_id != topic_id:
        # The topic was deleted since the request began, and another one has its name.
        return Write(topic, topic_id, index, records, None, None, ErrorCode.UNKNOWN_TOPIC_ID, None)
    if records is None:
        message: str | None = "The records of a partition are null"
        return Write(topic, topic_id, index, None, None, None, ErrorCode.INVALID_RECORD, message)
    limit_bytes = partition.log.config.max_message_bytes
    if len(records) > limit_bytes and (size_bytes := _stated_size(records)) > limit_bytes:
        message = _TOO_LARGE.format(size_bytes, limit_bytes)  # before anything is decompressed
        return Write(topic, topic_id, index, records, partition, None, ErrorCode.MESSAGE_TOO_LARGE, message)
    checked = check_at_once(records)
    if checked is None:
        return Write(topic, topic_id, index, records, partition, None, NO_ERROR, None)
    check = checked.check
    header = check.header
    if check.error or header is None:
        return Write(topic, topic_id, index, records, partition, check, check.error, check.message)
    broker.turns.charged_us += header.record_count * RECORD_US
    validated = partition.log.validate_at_once(check, records)
    return Write(topic, topic_id, index, records, partition, check, NO_ERROR, None, validated)


async def _check_in_steps(broker: Broker, version: int, write: Write) -> Write:
    """Finish the check, over several turns if it is long. The append is then one short step."""
    partition, records = write.partition, write.records
    assert partition is not None and records is not None
    check, validated = await _check_records(broker, partition, records, write.check)
    error, message, header = check.error, check.message, check.header
    if version < FIRST_VERSION_WITH_ZSTD and not error and header is not None and header.compression == ZSTD:
        error, message = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or above"
    return write._replace(check=check, error=error, message=message, validated=validated)


async def _check_records(
    broker: Broker, partition: Partition, records: memoryview, check: BatchCheck | None = None
) -> tuple[BatchCheck, ValidationResult | None]:
    slow = is_recompressed(records, partition.log.config)
    return await broker.long_work.drive(_check_steps(broker, partition, records, check), slow=slow)


def _check_steps(
    broker: Broker, partition: Partition, records: memoryview, check: BatchCheck | None
) -> Steps[tuple[BatchCheck, ValidationResult | None]]:
    checked = Checked(check, None) if check is not None else None
    if checked is None:
        limit_bytes = broker.config.max_decompressed_message_bytes
        checked = yield from check_steps(records, max_decompressed_bytes=limit_bytes)
    if checked.check.error:
        return checked.check, None
    return checked.check, (yield from partition.log.validate(checked, records))


def _stated_size(records: memoryview) -> int:
    """Return the size of the first batch, or 0 if it is not a complete one of magic 2 (the check finds the error)."""
    if len(records) < HEADER_SIZE:
        return 0
    header = read_header(records)
    return header.size_bytes if header.magic == MAGIC and header.size_bytes <= len(records) else 0


def _refuse_owners(body: ProduceBody, owners: Collection[tuple[int, int]]) -> ErrorCode | None:
    """Refuse transactional batches without a transactional id, or with several producer ids and epochs in the
    request."""
    if not owners:
        return None
    if body.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(owners) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None


def _transactional_header(write: Write) -> BatchHeader | None:
    check = write.check
    if check is None or check.error or check.header is None or not check.header.attributes & TRANSACTIONAL:
        return None
    return check.header


async def _join(broker: Broker, request: Request, writes: list[Write]) -> dict[TopicPartition, ErrorCode]:
    """Add the partitions whose log does not know the transaction. Return the errors of those that could not be
    added."""
    places: list[TopicPartition] = []
    owner = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    for write in writes:
        await broker.turns.spend(ROW_US)
        header = _transactional_header(write)
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
        if write.validated is not None and write.partition is not None:
            while write.validated.settings is not write.partition.log.config:
                write = await _revalidate(broker, write)
        if write.partition is not None:
            write.partition.produce_requests += 1
        result = _append(broker, request, write, joined)
        size_bytes = len(write.records or b"")
        if result.duplicate:
            metrics.duplicates += 1
            result = await _judge_duplicate(broker, request, write, result, others)
        elif result.error is NO_ERROR:
            if events is not None:
                _record_write(events, request.body.transactional_id, write)
            partition, records = write.partition, result.last_offset + 1 - result.base_offset
            assert partition is not None
            partition.bytes_in += size_bytes
            partition.records_in += records
            metrics.bytes_in += size_bytes
            metrics.records_in += records
        results.append(result)
        turns.charged_us += APPEND_US + size_bytes * COPY_BYTE_US
        if turns.must_yield:
            await turns.pause()
    if others:
        duplicates.log_duplicates(broker, request, others)
    return results


def _record_write(events: Events, transactional_id: str | None, write: Write) -> None:
    header = _transactional_header(write)
    if header is not None and transactional_id is not None:
        events.wrote(transactional_id, header.record_count, header.size_bytes)


async def _revalidate(broker: Broker, write: Write) -> Write:
    """Validate the write again, because the topic's settings have changed since it was checked."""
    partition, records, check = write.partition, write.records, write.check
    assert partition is not None and records is not None and check is not None
    steps = partition.log.validate(Checked(check, None), records)
    slow = is_recompressed(records, partition.log.config)
    return write._replace(validated=await broker.long_work.drive(steps, slow=slow))


def _append(broker: Broker, request: Request, write: Write, joined: Mapping[TopicPartition, ErrorCode]) -> AppendResult:
    error, message = write.error, write.message
    if not error:
        error = joined.get((write.topic, write.partition_index), NO_ERROR) if joined else NO_ERROR
        error = error or _verify(broker, request, write)
        if error:
            message = _WHY_UNVERIFIED.get(error)
    if error:
        return AppendResult(error, message=message, log_start_offset=_log_start_for(write))
    assert write.partition is not None and write.check is not None and write.records is not None
    return write.partition.append_from_client(write.check, write.records, write.validated)


async def _judge_duplicate(
    broker: Broker, request: Request, write: Write, result: AppendResult, others: list[Duplicate]
) -> AppendResult:
    """Return the answer to a duplicate after comparing it with the batch in the log."""
    partition, records, check = write.partition, write.records, write.check
    assert partition is not None and records is not None and check is not None and check.header is not None
    duplicate = Duplicate(partition, check.header, records, result)
    return await duplicates.judge(broker, request, duplicate, others)


def _log_start_for(write: Write) -> int:
    """Return the log start offset if the log itself would have answered this error with it, else -1."""
    if write.error is ErrorCode.INVALID_RECORD and write.partition and write.check and write.check.header:
        return write.partition.log_start_offset
    return -1


def _verify(broker: Broker, request: Request, write: Write) -> ErrorCode:
    """Ask the coordinator whether the partition is in the open transaction, if the log does not know it."""
    header = _transactional_header(write)
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


async def _wait_durable(broker: Broker, partition: Partition, result: AppendResult) -> AppendResult:
    """Wait until the batch is as durable as the log guarantees. A duplicate waits for the original batch."""
    error = await durability.wait_durable(broker, partition, result.last_offset)
    return AppendResult(error, message=partition.offline) if error else result


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
    """Write a row for each partition; more than a few rows are written in turns."""
    few = list(islice(rows, ROWS_AT_ONCE))
    if len(few) < ROWS_AT_ONCE:
        failed = [row for row in few if row.error]
        if request.body.acks:
            encoded = encode_produce_response(few, request.api_version, request.correlation_id)
            return Encoded([encoded], row_errors=failed)
        return _answer_without_acks(request, failed)
    reply, failed = ReplyBuilder(broker, request), []
    topics = reply.rows("responses")
    for (topic, topic_id), of_topic in groupby(chain(few, rows), _topic_of):
        partitions = reply.rows("responses", "partition_responses")
        for row in of_topic:
            if row.error:
                failed.append(row)
            await partitions.add(*row[1:8])
        await topics.add(name=topic, topic_id=topic_id, partition_responses=partitions)
    if request.body.acks:
        return reply.finish(responses=topics)._replace(row_errors=failed)
    return _answer_without_acks(request, failed)


def _topic_of(row: PartitionResponse) -> tuple[str, bytes]:
    return row.topic, row.topic_id


def _answer_without_acks(request: Request, failed: Sequence[PartitionResponse]) -> Reply:
    """Return the answer to a client that expects no reply. A closed connection is the only failure that it notices."""
    if not failed:
        return NO_REPLY
    return Close(f"Produce v{request.api_version} with acks=0: {_why(failed)}", failed)


def _report_rows(broker: Broker, request: Request, failed: Sequence[PartitionResponse]) -> None:
    """Count failed rows, record the first one, and log those that no correct producer gets."""
    errors = Counter([row.error for row in failed])
    count_rows(broker, request, errors)
    record_refusal(broker, request, failed[0].error, _why(failed))
    broker.metrics.sequence_gaps += errors[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    reused = [row for row in failed if row.error is ErrorCode.UNKNOWN_PRODUCER_ID]
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
API: Final = Api(ApiKey.PRODUCE, 3, 13, handle, (_WRITE_ID, _WRITE), advertised_from=0, report_rows=_report_rows)
