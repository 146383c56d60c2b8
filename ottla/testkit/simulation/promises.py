"""What an answer promises, looked at when its client reads it. free

A client may read an answer late, so only what stays true is looked at: what is durable stays durable, a decision
stays decided. Nothing is said while the broker is down, and of writes nothing after a power loss.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from ottla.testkit.simulation import wire

if TYPE_CHECKING:
    from ottla.testkit.simulation.world import World

_DECIDED: Final = {True: TransactionStatus.COMPLETE_COMMIT, False: TransactionStatus.COMPLETE_ABORT}


def of_write(world: "World", topic: str, index: int, last_offset: int) -> Iterator[str]:
    """Produce is acknowledged, a repeated one too: it is below the high watermark."""
    partition = None if world.assembly is None else world.assembly.broker.cluster.partition(topic, index)
    if partition is None or world.lost_power or partition.high_watermark > last_offset:
        return
    yield (
        f"acknowledged-early: {topic}-{index} is durable up to {partition.high_watermark}, "
        f"offset {last_offset} is acknowledged"
    )


def of_end(
    world: "World", transactional_id: str, producer: tuple[int, int], commit: bool, error: int, v2: bool
) -> Iterator[str]:
    """EndTxn is answered: the transaction is open no more; and nobody is fenced by what he has done himself.

    `v2`: the client speaks transactions V2, where an epoch ends one transaction: the outcome is that of this request.
    """
    state = _state_of(world, transactional_id)
    if state is None or world.lost_power:
        return
    producer_id, epoch = producer
    if error == wire.NONE:
        if state.status is TransactionStatus.ONGOING and (state.producer_id, state.producer_epoch) == producer:
            yield f"acknowledged-early: {transactional_id} is told that its transaction has ended, and it is {state}"
        return
    mine = state.previous_producer_id == producer_id and state.producer_epoch == epoch + 1
    if v2 and mine and error in wire.FENCED and state.status is _DECIDED[commit]:
        yield f"fenced-by-itself: {transactional_id} is refused with {error}, and its transaction is {state}"


def _state_of(world: "World", transactional_id: str) -> TransactionState | None:
    if world.assembly is None:
        return None
    for shard in world.assembly.broker.transactions.shards():
        if transactional_id in shard.states:
            return shard.states[transactional_id]
    return None
