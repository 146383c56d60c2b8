"""TxnOffsetCommit 0-3: offsets that count when the transaction commits. free

Version notes: 2 adds leader epochs; 3 is flexible and names the member, so that a zombie of the group is refused
(KIP-447). 4 and 5 (TRANSACTION_ABORTABLE, implicit AddOffsets) are not served.

The transaction must have the group's partition of `__consumer_offsets` (AddOffsetsToTxn); that is verified in the same
step as the append.
"""

from collections.abc import Sequence

from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.broker.api.offset_commit import commit_rows
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.log import Producer
from ottla.broker.group.members import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.reply_wire import encode_partition_errors

TXN_OFFSET_COMMIT = 28

# What the coordinator says of the transaction, as TxnOffsetCommit v0-3 reports it (AddPartitionsToTxnManager 4.3.1).
_VERIFICATION_ERRORS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
}


async def handle(broker: Broker, request: Request) -> Reply:
    """Commit each offset inside the transaction; one row per partition."""
    version, body = request.api_version, request.body
    caller = Caller(body.group_id)
    if version >= 3:
        caller = Caller(body.group_id, body.generation_id, body.member_id, body.group_instance_id)

    def commit(rows: Sequence[CommitRow]) -> list[ErrorCode]:
        error = _verify(broker, request)
        if error:
            return [error] * len(rows)
        producer = Producer(body.producer_id, body.producer_epoch)
        return [_told(error, version) for error in broker.groups.offsets.commit(caller, rows, producer)]

    topics = commit_rows(broker, body.topics, version >= 2, -1, commit)
    return Encoded([encode_partition_errors(TXN_OFFSET_COMMIT, version, request.correlation_id, topics)])


def _verify(broker: Broker, request: Request) -> ErrorCode:
    body = request.body
    if not body.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not broker.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    index = broker.groups.offsets.partition_of(body.group_id)
    partition = broker.cluster.partition(CONSUMER_OFFSETS_TOPIC, index)
    assert partition is not None
    if partition.transaction_is_open(body.producer_id, body.producer_epoch):
        return ErrorCode.NONE
    known_epoch = partition.producer_epoch_of(body.producer_id)
    if known_epoch is not None and body.producer_epoch < known_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if not body.transactional_id:
        return ErrorCode.INVALID_REQUEST
    place = (CONSUMER_OFFSETS_TOPIC, index)
    (error,) = broker.transactions.verify(body.transactional_id, body.producer_id, body.producer_epoch, (place,))
    return _VERIFICATION_ERRORS.get(error, error)


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """v0-1 clients do not know that a coordinator can be loading."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version <= 1:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
