"""The check of the batches of a Produce request, before the first of them is appended. free

A short batch is checked at once, a long one in steps. The settings of its topic may change before the append, which
then validates it again.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.broker.api.authorization import WRITE_ID, WRITE_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.costs import ROW_US
from ottla.broker.log.log_validator import ValidationResult, is_recompressed
from ottla.broker.log.partition import Partition
from ottla.protocol.batch_header import HEADER_SIZE, MAGIC, TRANSACTIONAL, BatchHeader, read_header, says_transactional
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.requests.produce_wire import Partitions, ProduceBody
from ottla.protocol.requests.produced import BatchCheck, Checked, check_at_once, check_steps
from ottla.protocol.steps import RECORD_US, Steps
from ottla.protocol.values import ZERO_UUID

CHECK_US: Final = 6.0
"""Look up and check one partition's batch, without its records."""
ZSTD: Final = 4
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_NO_RECORDS: Final = memoryview(b"")
_TOO_LARGE: Final = "The batch of {} bytes exceeds the topic's max.message.bytes, {}"


class Write(NamedTuple):
    """A partition of the request. `partition` is None and `error` set if it is refused before the append.

    `topic` is empty if its id is unknown. The id is zero if the request has names. A write without error is ready to
    append when it is `validated`.
    """

    topic: str
    topic_id: bytes
    partition_index: int
    records: "memoryview"
    partition: Partition | None
    check: BatchCheck | None
    error: ErrorCode
    message: str | None
    validated: ValidationResult | None = None


async def check_all(broker: Broker, request: Request) -> tuple[list[Write], ErrorCode]:
    """Return the checked batch of each partition, and the error that refuses all of them, or NONE."""
    body, turns, is_open = request.body, broker.turns, broker.authorizer is None
    writes: list[Write] = []
    if not is_open and not await _may_use_id(broker, request):
        return writes, WRITE_ID.error
    if body.acks not in (-1, 0, 1):
        return writes, ErrorCode.INVALID_REQUIRED_ACKS
    places: set[tuple[str, bytes, int]] = set()
    owners: set[tuple[int, int]] = set()
    for topic, topic_id, partitions in _iter_topics(broker, body):
        is_denied = not is_open and bool(topic) and not broker.may(request, WRITE_TOPIC, topic)
        for index, records in partitions:
            if is_denied:
                write = Write(topic, topic_id, index, records or _NO_RECORDS, None, None, WRITE_TOPIC.error, None)
            else:
                if broker.cluster.is_unopened(topic, index):
                    await broker.cluster.get_or_open(topic, index)
                write = check_batch(broker, request.api_version, topic, topic_id, index, records)
                if write.error is NO_ERROR and write.validated is None:
                    write = await _check_in_steps(broker, request.api_version, write)
            writes.append(write)
            places.add((topic, topic_id, index))
            if (header := transactional_header(write)) is not None:
                owners.add((header.producer_id, header.producer_epoch))
            turns.charged_us += CHECK_US
            if turns.must_yield:
                await turns.pause()
    if len(places) < len(writes):  # one of the batches of a partition that is named twice would be lost
        return writes, ErrorCode.INVALID_REQUEST
    if owners and body.transactional_id is None:
        return writes, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return writes, ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(owners) > 1 else NO_ERROR


async def _may_use_id(broker: Broker, request: Request) -> bool:
    """Return whether no batch is transactional, or the client may write with the transactional id.

    The batches' own flag decides, whether they can be written or not (CVE-2018-17196).
    """
    body, turns = request.body, broker.turns
    for _, partitions in body.topics:
        for _, records in partitions:
            if records is not None and says_transactional(records):
                return body.transactional_id is not None and broker.may(request, WRITE_ID, body.transactional_id)
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


def check_batch(
    broker: Broker, version: int, topic: str, topic_id: bytes, index: int, records: memoryview | None
) -> Write:
    """Check and validate one partition's batch, if that is short. Otherwise it has no error and is not validated."""
    partition = broker.cluster.partition(topic, index)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    error, message = NO_ERROR, None
    if by_id and not topic:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif topic in INTERNAL_TOPICS:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif partition is None:
        error = broker.cluster.absence(topic, index)
    elif by_id and partition.topic_id != topic_id:
        # The topic was deleted since the request began, and another one has its name.
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif records is None:
        error, message = ErrorCode.INVALID_RECORD, "The records of a partition are null"
    if error or partition is None or records is None:
        return Write(topic, topic_id, index, records or _NO_RECORDS, None, None, error, message)
    limit_bytes = partition.log.config.max_message_bytes
    if len(records) > limit_bytes and (size_bytes := _stated_size(records)) > limit_bytes:
        message = _TOO_LARGE.format(size_bytes, limit_bytes)  # before anything is decompressed
        return Write(topic, topic_id, index, records, partition, None, ErrorCode.MESSAGE_TOO_LARGE, message)
    checked = check_at_once(records)
    if checked is None:
        return Write(topic, topic_id, index, records, partition, None, NO_ERROR, None)
    check, header = checked.check, checked.check.header
    if check.error or header is None:
        return Write(topic, topic_id, index, records, partition, check, check.error, check.message)
    broker.turns.charged_us += header.record_count * RECORD_US
    validated = partition.log.validate_at_once(check, records)
    return Write(topic, topic_id, index, records, partition, check, NO_ERROR, None, validated)


async def _check_in_steps(broker: Broker, version: int, write: Write) -> Write:
    """Finish the check, over several turns if it is long. The append is then one short step."""
    assert write.partition is not None
    check, validated = await check_records(broker, write.partition, write.records, write.check)
    error, message, header = check.error, check.message, check.header
    if version < FIRST_VERSION_WITH_ZSTD and not error and header is not None and header.compression == ZSTD:
        error, message = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or above"
    return write._replace(check=check, error=error, message=message, validated=validated)


async def check_records(
    broker: Broker, partition: Partition, records: memoryview, check: BatchCheck | None = None
) -> tuple[BatchCheck, ValidationResult | None]:
    """Check the batch, or only validate it if it is checked already."""
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


def transactional_header(write: Write) -> BatchHeader | None:
    """Return the header of a sound batch that is transactional, else None."""
    check = write.check
    if check is None or check.error or check.header is None or not check.header.attributes & TRANSACTIONAL:
        return None
    return check.header
