"""What an answer promises, looked at when its client reads it. free

A client may read an answer late, so only what stays true is looked at: what is durable stays durable, a decision
stays decided. Nothing is said while the broker is down, and of writes nothing after a power loss.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.txn.end_txn_rules import V2
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker
from ottla.testkit.in_memory import wire

if TYPE_CHECKING:
    from lab.simulation.world import World

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


def of_order(world: "World", name: str, answers: Iterable[tuple[tuple[str, int], bool, int]]) -> Iterator[str]:
    """[(partition, whether it may have been appended before, error)] of batches of a transaction in their order: none
    is appended before one that was refused (KAFKA-14402)."""
    if world.lost_power:
        return  # an epoch that the coordinator forgot is given again, and its first owner's sequences are in the log
    refused: set[tuple[str, int]] = set()
    for place, may_be_there, error in answers:
        if error != wire.NONE and not may_be_there:
            refused.add(place)
        elif error == wire.NONE and place in refused:
            yield f"overtaken: a batch of {name} to {place[0]}-{place[1]} is appended, and the one before it is not"


def of_gap(world: "World", name: str, topic: str, index: int) -> Iterator[str]:
    """A batch of transactions V2 is appended that does not follow the one before it."""
    if not world.lost_power:
        yield f"gap-accepted: {name} left a sequence out for {topic}/{index}"


def of_marker(world: "World", marker: TransactionMarker) -> Iterator[str]:
    """A marker is written: its transaction is open no more, for the decision is durable before it is told."""
    if world.lost_power:
        return  # what the coordinator decided may be lost, and the administrator's aborts meet what began anew
    epoch = marker.producer_epoch - (1 if marker.transaction_version >= V2 else 0)
    for transactional_id, state in _states(world):
        open_in = state.producer_id, state.producer_epoch, state.status
        if open_in == (marker.producer_id, epoch, TransactionStatus.ONGOING):
            yield f"marker-before-prepare: {marker} is written, and {transactional_id} is {state}"


class AskedEnd(NamedTuple):
    """An EndTxn. `v2`: its client speaks transactions V2, where an epoch ends one transaction."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    v2: bool
    asked_ms: int


def of_end(world: "World", asked: AskedEnd, error: int) -> Iterator[str]:
    """EndTxn is answered: the transaction is open no more; and nobody is fenced by what he has done himself.

    One that is open may have been opened since, by a late request of the same epoch (KAFKA-17754).
    """
    state = _state_of(world, asked.transactional_id)
    if state is None or world.lost_power:
        return
    producer_id, epoch = asked.producer
    title = f"{asked.transactional_id} is answered with {error}, and it is {state}"
    if error == wire.NONE:
        same = (state.producer_id, state.producer_epoch) == asked.producer
        if same and state.status is TransactionStatus.ONGOING and state.start_ms < asked.asked_ms:
            yield f"acknowledged-early: {title}"
        return
    mine = state.previous_producer_id == producer_id and state.producer_epoch == epoch + 1
    if asked.v2 and mine and error in wire.FENCED and state.status is _DECIDED[asked.commit]:
        yield f"fenced-by-itself: {title}"


def _state_of(world: "World", transactional_id: str) -> TransactionState | None:
    return dict(_states(world)).get(transactional_id)


def _states(world: "World") -> Iterator[tuple[str, TransactionState]]:
    if world.assembly is not None:
        for shard in world.assembly.broker.transactions.shards():
            yield from shard.states.items()
