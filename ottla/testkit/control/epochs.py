"""Presetting of producer epochs, to test their exhaustion, and early expiry of transactional ids. shell"""

from collections.abc import Iterable

from ottla.admin.routes import AdminError
from ottla.broker.api.context import Broker
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.coordinator.runtime import await_durable
from ottla.broker.txn import machine
from ottla.broker.txn.log import encode_tombstones
from ottla.broker.txn.states import RESTING, TransactionStatus
from ottla.broker.txn.values import ANSWERS, NEED_PRODUCER_ID, NO_PENDING, Decision, TransactionState, TransientState
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import NO_PRODUCER_ID

TIMEOUT_MS = 60_000


async def preset_epoch(broker: Broker, transactional_id: str, epoch: int) -> TransactionState:
    """Log the id as Empty with a new producer id and this epoch. Its next InitProducerId bumps the epoch.

    Raises AdminError 409 while a transaction of the id is open or the coordinator loads.
    """

    def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
        if state is not None and (state.status not in RESTING or transient.pending is not None):
            return ANSWERS[ErrorCode.CONCURRENT_TRANSACTIONS]
        if fresh == NO_PRODUCER_ID:
            return NEED_PRODUCER_ID
        timeout_ms = TIMEOUT_MS if state is None else state.timeout_ms
        record = TransactionState(fresh, epoch, TransactionStatus.EMPTY, timeout_ms, {}, -1, broker.clock.now_ms())
        return Decision(NO_ERROR, record)

    await broker.cluster.producer_ids()
    await forget_ids(broker, [transactional_id])  # the epoch of a known id only increases
    states = (broker.find_coordinator(TRANSACTION_STATE_TOPIC, transactional_id) or broker).transactions.states
    decision = await await_durable(states.commit(transactional_id, decide))
    if decision.error or decision.record is None:
        raise AdminError(409, f"The epoch of {transactional_id:.100} cannot be set now: {decision.error.name}")
    return decision.record


async def forget_ids(broker: Broker, transactional_ids: Iterable[str] | None = None) -> int:
    """Expire these ids, or all, and return their number. Skips ids with an open transaction or a pending write."""
    forgotten = 0
    managers = [each.transactions.states for each in broker.brokers]
    for manager, shard in [(each, shard) for each in managers for shard in each.shards.values()]:
        for transactional_id in tuple(shard.states if transactional_ids is None else transactional_ids):
            state = shard.states.get(transactional_id)
            transient = shard.transient.get(transactional_id, NO_PENDING)
            if state is None or state.status not in RESTING or transient.pending is not None:
                continue
            tombstone = encode_tombstones([transactional_id], broker.clock.now_ms())
            dead = Decision(NO_ERROR, machine.dead(state))
            decision = await await_durable(manager.write_durable(shard, tombstone, ((transactional_id, dead),)))
            forgotten += not decision.error
    return forgotten
