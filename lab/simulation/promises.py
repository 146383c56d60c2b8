"""Checks of each answer against the broker's state when the client reads it. free

A client may read an answer late, so the checks cover only facts that stay true: a durable record stays durable, a
decision stays decided. There are no checks while the broker is down, nor of writes after a power loss.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lab.client_requests import FENCED, NONE
from ottla.broker.txn.end_txn_rules import V2
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker

if TYPE_CHECKING:
    from lab.simulation.world import World

_DECIDED: Final = {True: TransactionStatus.COMPLETE_COMMIT, False: TransactionStatus.COMPLETE_ABORT}


def of_write(world: "World", topic: str, index: int, last_offset: int) -> Iterator[str]:
    """Check that an acknowledged Produce, also a repeated one, is below the high watermark."""
    partition = None if world.assembly is None else world.assembly.broker.cluster.partition(topic, index)
    if partition is None or world.lost_power or partition.high_watermark > last_offset:
        return
    yield (
        f"acknowledged-early: {topic}-{index} is durable up to {partition.high_watermark}, "
        f"offset {last_offset} is acknowledged"
    )


def of_order(world: "World", name: str, answers: Iterable[tuple[tuple[str, int], bool, int]]) -> Iterator[str]:
    """Check that no batch of a transaction is appended after an earlier one was refused (KAFKA-14402).

    `answers` are [(partition, whether the batch may have been appended before, error)] in the order of the batches.
    """
    if world.lost_power:
        return  # the coordinator may assign a lost epoch again, and the log has sequences of its first owner
    refused: set[tuple[str, int]] = set()
    for place, may_be_there, error in answers:
        if error != NONE and not may_be_there:
            refused.add(place)
        elif error == NONE and place in refused:
            yield f"overtaken: a batch of {name} to {place[0]}-{place[1]} is appended, and the one before it is not"


def of_gap(world: "World", name: str, topic: str, index: int) -> Iterator[str]:
    """Report that a batch of transactions V2 was appended after a gap in its sequences."""
    if not world.lost_power:
        yield f"gap-accepted: {name} left a sequence out for {topic}/{index}"


def of_marker(world: "World", marker: TransactionMarker) -> Iterator[str]:
    """Check that the transaction of a written marker is no longer open: the decision is durable before the marker."""
    if world.lost_power:
        return  # the coordinator's decision may be lost, and the administrator's aborts may hit a new transaction
    epoch = marker.producer_epoch - (1 if marker.transaction_version >= V2 else 0)
    for transactional_id, state in _states(world):
        open_in = state.producer_id, state.producer_epoch, state.status
        if open_in == (marker.producer_id, epoch, TransactionStatus.ONGOING):
            yield f"marker-before-prepare: {marker} is written, and {transactional_id} is {state}"


class EndRequest(NamedTuple):
    """An EndTxn request. `v2`: its client uses transactions V2, where each transaction has its own epoch."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    v2: bool
    begun_ms: int


def of_end(world: "World", request: EndRequest, error: int) -> Iterator[str]:
    """Check after EndTxn that the transaction is no longer open, and that its own request did not fence the producer.
    An open transaction may be a later one that a late request of the same epoch began (KAFKA-17754).
    """
    state = _state_of(world, request.transactional_id)
    if state is None or world.lost_power:
        return
    producer_id, epoch = request.producer
    title = f"{request.transactional_id} is answered with {error}, and it is {state}"
    if error == NONE:
        same = (state.producer_id, state.producer_epoch) == request.producer
        if same and state.status is TransactionStatus.ONGOING and state.start_ms < request.begun_ms:
            yield f"acknowledged-early: {title}"
        return
    mine = state.previous_producer_id == producer_id and state.producer_epoch == epoch + 1
    if request.v2 and mine and error in FENCED and state.status is _DECIDED[request.commit]:
        yield f"fenced-by-itself: {title}"


def _state_of(world: "World", transactional_id: str) -> TransactionState | None:
    return dict(_states(world)).get(transactional_id)


def _states(world: "World") -> Iterator[tuple[str, TransactionState]]:
    if world.assembly is not None:
        for shard in world.assembly.broker.transaction_shards():
            yield from shard.states.items()
