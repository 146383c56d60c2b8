"""TxnOffsetCommit 0-6: offsets that become valid when the transaction commits. free

Version notes: 2 adds leader epochs; 3 is flexible and names the member, so that a zombie of the group is refused
(KIP-447); 4 may answer TRANSACTION_ABORTABLE; 5 adds the group's partition of `__consumer_offsets` to the transaction
(KIP-890); 6 has topic ids in place of names, which are stored with the offsets, and answers GROUP_ID_NOT_FOUND and
STALE_MEMBER_EPOCH where older versions answer ILLEGAL_GENERATION (KIP-1319, of Kafka 4.4). Below 5 the transaction must
have the partition (AddOffsetsToTxn); that is verified in the same step as the append.
"""

from collections.abc import Sequence
from typing import Final

from ottla.broker.api import durability, verification
from ottla.broker.api.authorization import READ_GROUP, WRITE_ID
from ottla.broker.api.context import Broker
from ottla.broker.api.offset_commit import Rows, commit_rows, find_topic, or_else, refused_rows, with_topics
from ottla.broker.api.refusals import report_rows as report_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.costs import LOOKUP_US
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ProducerIdAndEpoch, TopicPartition

FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_THAT_ADDS: Final = 5
FIRST_VERSION_WITH_TOPIC_IDS: Final = 6


async def handle(broker: Broker, request: Request) -> Reply:
    """Commit each offset inside the transaction; one row per partition."""
    version, body = request.api_version, request.body
    for need, name in ((WRITE_ID, body.transactional_id), (READ_GROUP, body.group_id)):
        if not broker.may(request, need, name):
            refused = await refused_rows(broker, body.topics, need.error)
            return await _answer(broker, request, refused)
    caller = Caller(body.group_id)
    if version >= 3:
        caller = Caller(body.group_id, body.generation_id, body.member_id, body.group_instance_id)

    joined = await _join(broker, request) if version >= FIRST_VERSION_THAT_ADDS else ErrorCode.NONE

    def commit(rows: Sequence[CommitRow]) -> list[ErrorCode]:
        error = joined or _verify(broker, request)
        if error:
            return [_map_error(error, version)] * len(rows)
        producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        errors = broker.groups.offsets.commit(caller, rows, producer, knows_epochs=by_id)
        return [_map_error(error, version) for error in errors]

    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    rows = await commit_rows(broker, request, version >= 2, -1, commit, by_id)
    return await _answer(broker, request, or_else(rows, await durability.wait_group_durable(broker, body.group_id)))


async def _answer(broker: Broker, request: Request, rows: Rows) -> Reply:
    return await with_topics(broker, request, rows, by_id=request.api_version >= FIRST_VERSION_WITH_TOPIC_IDS)


async def _join(broker: Broker, request: Request) -> ErrorCode:
    """Add the group's partition to the transaction, if any row of the request can be committed."""
    body = request.body
    if not await _names_partitions(broker, request):
        return ErrorCode.NONE
    place, local = _local_verification(broker, request)
    if local is not None:
        return local
    return await verification.add(
        broker, body.transactional_id, body.producer_id, body.producer_epoch, (place,), retry_ms=0
    )


async def _names_partitions(broker: Broker, request: Request) -> bool:
    """Return whether any of the partitions exists and may be read. Mostly the first one does."""
    turns = broker.turns
    for topic in request.body.topics:
        image, _ = find_topic(broker, request, topic, request.api_version >= FIRST_VERSION_WITH_TOPIC_IDS)
        if image is None:
            await turns.spend(LOOKUP_US)
            continue
        for row in topic.partitions:
            if 0 <= row.partition_index < image.partition_count:
                return True
            turns.charged_us += LOOKUP_US
            if turns.must_yield:
                await turns.pause()
    return False


def _verify(broker: Broker, request: Request) -> ErrorCode:
    body = request.body
    place, local = _local_verification(broker, request)
    if local is not None:
        return local
    if not broker.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    knows_abortable = request.api_version == FIRST_VERSION_WITH_ABORTABLE
    return verification.verify(
        broker, body.transactional_id, body.producer_id, body.producer_epoch, place, knows_abortable
    )


def _local_verification(broker: Broker, request: Request) -> tuple[TopicPartition, ErrorCode | None]:
    """Return the group's partition and the error that is known without its coordinator, or None if the coordinator
    must decide."""
    body = request.body
    if not body.group_id:
        return (CONSUMER_OFFSETS_TOPIC, -1), ErrorCode.INVALID_GROUP_ID
    index = broker.groups.offsets.partition_for(body.group_id)
    partition = broker.cluster.partition(CONSUMER_OFFSETS_TOPIC, index)
    if partition is None:
        return (CONSUMER_OFFSETS_TOPIC, index), ErrorCode.NOT_COORDINATOR
    local = verification.local_verification(partition, body.producer_id, body.producer_epoch)
    return (CONSUMER_OFFSETS_TOPIC, index), local


def _map_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error for this version: v0-1 clients do not know that a coordinator can be loading.

    A verification without an answer is COORDINATOR_LOAD_IN_PROGRESS: clients retry then without a look-up
    (`GroupCoordinatorService.handleOperationException`).
    """
    if error == ErrorCode.NETWORK_EXCEPTION:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version <= 1:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
