"""DescribeTransactions 0: state, producer and partitions of transactional ids. free

Partitions of a prepared transaction are those whose markers are not written yet. An id in error has its error and
nothing else. `transaction_start_time_ms` is -1 when the id never began one. Topics that the client may not DESCRIBE
are left out.
"""

from ottla.broker.api.authorization import DESCRIBE_ID, SEE_TOPIC, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import REPLY_ROW_US


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each id once, in the order of the request."""
    reply = ReplyBuilder(broker, request)
    states = reply.rows("transaction_states")
    for transactional_id in dict.fromkeys(request.body.transactional_ids):
        if not broker.may(request, DESCRIBE_ID, transactional_id):
            await states.add(DESCRIBE_ID.error, transactional_id)
            continue
        error, state, partitions = broker.transactions.describe(transactional_id)
        if state is None:
            await states.add(error, transactional_id)
            continue
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        broker.turns.charge(len(partitions) * REPLY_ROW_US)
        for topic in await find_denials(broker, request, SEE_TOPIC, topics):
            del topics[topic]
        await states.add(
            error_code=error,
            transactional_id=transactional_id,
            transaction_state=state.status.wire_name,
            transaction_timeout_ms=state.timeout_ms,
            transaction_start_time_ms=state.start_ms,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            topics=topics.items(),
        )
    return reply.finish(transaction_states=states)
