"""AddOffsetsToTxn 0-4: add the offsets of a group to the transaction of a transactional id. free

The partition of `__consumer_offsets` that holds the group is added like any other partition; TxnOffsetCommit then
writes to it. While the markers of the previous transaction are written, the request waits for a limited time.

Version notes: 2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 3 is flexible; 4 is the same
with TRANSACTION_ABORTABLE, which the broker does not answer here. Clients of transactions V2 send only TxnOffsetCommit.
"""

from typing import Final

from ottla.broker.api.authorization import READ_GROUP, WRITE_ID
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.protocol.errors import ErrorCode

FIRST_VERSION_WITH_FENCED: Final = 2


async def handle(broker: Broker, request: Request) -> Reply:
    """Add the group's offsets partition."""
    version, body = request.api_version, request.body
    for need, name in ((WRITE_ID, body.transactional_id), (READ_GROUP, body.group_id)):
        if not broker.may(request, need, name):
            return encode_reply(request, error_code=need.error)
    partition = (CONSUMER_OFFSETS_TOPIC, broker.groups.offsets.partition_for(body.group_id))
    error = await broker.transactions.add_partitions(
        body.transactional_id, body.producer_id, body.producer_epoch, (partition,)
    )
    if error == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return encode_reply(request, error_code=error)
