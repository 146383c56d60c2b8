"""Functions that run in the place of functions of the broker, each with a bug. free

The first parameter of each function is the function that it replaces; `plants.py` has the places.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lab.planting import Original
from ottla.broker.api import produce
from ottla.broker.api.context import Broker
from ottla.broker.api.produce import FIRST_VERSION_THAT_ADDS
from ottla.broker.api.produce_check import Write
from ottla.broker.api.request import Request
from ottla.broker.cluster.marker_channels import MarkerAnswer
from ottla.broker.cluster.marker_writer import MarkerWriter
from ottla.broker.deadline import sleep
from ottla.broker.log.cleaning.compaction import CleanableOffsets, SegmentSizes
from ottla.broker.log.partition import Partition
from ottla.broker.log.producer_state_entry import ACCEPTED, AppendDecision, ProducerStateEntry
from ottla.broker.log.producer_state_manager import AppendOrigin, CompletedTxn, ProducerStateManager
from ottla.broker.log.results import AppendResult
from ottla.broker.turns import Wait
from ottla.broker.txn import end_txn_rules, markers
from ottla.broker.txn.markers import MarkerFanout
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.state_manager import Changes, Decide, TransactionStateManager
from ottla.broker.txn.states import COMPLETION_OF, ONGOING, PREPARE_COMMIT, PREPARED
from ottla.broker.txn.values import ANSWERS, NEED_PRODUCER_ID, Decision, TransactionState, TransientState, current_epoch
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.indexes import AbortedTxn
from ottla.protocol.values import TopicPartition, TransactionMarker

VERIFIED: Final = "verified"
"""The message of a write that `verify_early` has verified."""
LATER_MS: Final = 30

# --- checks of appends


def accept_stale_epoch(check_batch: Original, *arguments: Any) -> AppendDecision:
    decision: AppendDecision = check_batch(*arguments)
    return ACCEPTED if decision.error == ErrorCode.INVALID_PRODUCER_EPOCH else decision


def accept_duplicate(check_batch: Original, *arguments: Any) -> AppendDecision:
    decision: AppendDecision = check_batch(*arguments)
    return decision if decision.duplicate is None else ACCEPTED


def accept_gap(sequence_gap: Original, producer: ProducerStateEntry, epoch: int, first_sequence: int) -> str | None:
    if epoch != producer.epoch or first_sequence > producer.last_sequence:
        return None
    gap: str | None = sequence_gap(producer, epoch, first_sequence)
    return gap


def acknowledge_reuse(
    check_batch: Original, producers: ProducerStateManager, header: BatchHeader, origin: AppendOrigin, *_: bool
) -> AppendDecision:
    decision: AppendDecision = check_batch(producers, header, origin, False)
    return decision


def accept_overtaking(_overtaking: Original, *_: object) -> None:
    """Accept a batch before the one that begins its transaction."""


def accept_marker(_check_marker: Original, *_: object) -> AppendDecision:
    return ACCEPTED


def check_marker_as_v1(
    check_marker: Original,
    producers: ProducerStateManager,
    producer_id: int,
    epoch: int,
    coordinator_epoch: int,
    _: int,
) -> AppendDecision:
    decision: AppendDecision = check_marker(producers, producer_id, epoch, coordinator_epoch, 1)
    return decision


# --- Produce


def skip_verification(_verify: Original, *_: object) -> ErrorCode:
    return NO_ERROR


def verify_only_v1(verify: Original, broker: Broker, request: Request, write: Write) -> ErrorCode:
    if request.api_version >= FIRST_VERSION_THAT_ADDS:
        return NO_ERROR
    error: ErrorCode = verify(broker, request, write)
    return error


async def skip_join(_join: Original, *_: object) -> dict[TopicPartition, ErrorCode]:
    return {}


async def verify_early(
    append_all: Original,
    broker: Broker,
    request: Request,
    writes: list[Write],
    joined: Mapping[TopicPartition, ErrorCode],
) -> list[AppendResult]:
    """Verify all writes, and append them later."""
    early = [
        write if write.error or produce._verify(broker, request, write) else write._replace(message=VERIFIED)
        for write in writes
    ]
    await sleep(broker.turns, broker.clock, LATER_MS)
    results: list[AppendResult] = await append_all(broker, request, early, joined)
    return results


def verify_once(verify: Original, broker: Broker, request: Request, write: Write) -> ErrorCode:
    error: ErrorCode = NO_ERROR if write.message == VERIFIED else verify(broker, request, write)
    return error


async def answer_duplicate_early(
    wait_durable: Original, broker: Broker, partition: Partition, result: AppendResult
) -> AppendResult:
    answer: AppendResult = result if result.duplicate else await wait_durable(broker, partition, result)
    return answer


# --- the transaction coordinator


def write_markers_first(
    write_durable: Original, manager: TransactionStateManager, shard: Shard, batch: bytearray, changes: Changes
) -> object:
    for _transactional_id, decision in changes:
        record = decision.record
        if record is not None and record.status in PREPARED:
            commit = record.status is PREPARE_COMMIT
            marker = TransactionMarker(
                record.producer_id, record.producer_epoch, shard.epoch, commit, record.client_version
            )
            for topic, index in record.partitions:
                manager._fanout._sink.write_marker(topic, index, marker)
    return write_durable(manager, shard, batch, changes)


def ignore_pending(commit: Original, manager: TransactionStateManager, transactional_id: str, decide: Decide) -> object:
    """Decide as if the markers of a prepared transaction were written and no record was being logged."""

    def decide_at_once(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
        if state is not None and state.status in PREPARED:
            state = state._replace(status=COMPLETION_OF[state.status])
        return decide(state, transient._replace(pending=None), fresh)

    return commit(manager, transactional_id, decide_at_once)


def skip_step_check(_check_step: Original, *_: object) -> None:
    """Check nothing."""


def answer_early(
    commit: Original, manager: TransactionStateManager, transactional_id: str, decide: Decide
) -> Decision | Wait[Decision]:
    decisions: list[Decision] = []

    def decide_and_keep(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
        decisions.append(decide(state, transient, fresh))
        return decisions[-1]

    outcome: Decision | Wait[Decision] = commit(manager, transactional_id, decide_and_keep)
    return decisions[-1] if isinstance(outcome, Wait) else outcome


def forget_prepared_transactions(effects: Original, before: TransactionState | None, after: TransactionState) -> object:
    return () if before is None and after.status in PREPARED else effects(before, after)


def forget_open_transactions(effects: Original, before: TransactionState | None, after: TransactionState) -> object:
    return () if before is None and after.status not in PREPARED else effects(before, after)


def keep_epoch_of_old_instance(initialize: Original, state: TransactionState, *arguments: int) -> Decision:
    decision: Decision = initialize(state, *arguments)
    assert decision.record is not None
    epoch = max(state.producer_epoch, 0)
    return decision._replace(record=decision.record._replace(producer_epoch=epoch), producer_epoch=epoch)


def abort_in_same_epoch(
    decide_abort: Original, state: TransactionState, transient: TransientState, level: int, *arguments: int
) -> Decision:
    decision: Decision = decide_abort(state, transient, level, *arguments)
    if level >= end_txn_rules.V2:
        return decision
    assert decision.record is not None
    return Decision(decision.error, decision.record._replace(producer_epoch=state.producer_epoch))


def keep_exhausted_id(_is_exhausted: Original, _epoch: int) -> bool:
    return False


# --- EndTxn of transactions V2


def end_in_same_epoch(decide_end_v2: Original, state: TransactionState, *arguments: Any) -> Decision:
    decision: Decision = decide_end_v2(state, *arguments)
    record = decision.record
    if record is None or record.next_producer_id >= 0:
        return decision
    epoch = state.producer_epoch
    return decision._replace(record=record._replace(producer_epoch=epoch), producer_epoch=epoch)


def skip_empty_abort(decide_end_v2: Original, state: TransactionState, *arguments: Any) -> Decision:
    decision: Decision = decide_end_v2(state, *arguments)
    prepares = decision.record is not None or decision is NEED_PRODUCER_ID
    if not prepares or state.status is ONGOING:
        return decision
    return Decision(NO_ERROR, producer_id=state.producer_id, producer_epoch=state.producer_epoch)


def refuse_repeated_end(decide_end_v2: Original, *arguments: Any) -> Decision:
    decision: Decision = decide_end_v2(*arguments)
    is_repeated = decision.error is NO_ERROR and decision.record is None
    return ANSWERS[ErrorCode.PRODUCER_FENCED] if is_repeated else decision


def end_next_transaction(
    decide_end_v2: Original,
    state: TransactionState | None,
    transient: TransientState,
    producer_id: int,
    epoch: int,
    *arguments: Any,
) -> Decision:
    if state is not None and epoch + 1 == current_epoch(state, transient):
        epoch += 1
    decision: Decision = decide_end_v2(state, transient, producer_id, epoch, *arguments)
    return decision


# --- markers


class UnrepeatedMarkers:
    """A marker sink that answers NONE where the coordinator would try again."""

    def __init__(self, sink: MarkerWriter) -> None:
        self._sink = sink

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode | MarkerAnswer:
        """Write the marker once."""
        error = self._sink.write_marker(topic, index, marker)
        return NO_ERROR if markers._NEXT.get(error) is markers.Next.RETRY else error

    @property
    def flushing(self) -> bool:
        """Return the result of the sink."""
        return self._sink.flushing

    def when_durable(self, topic: str, index: int, callback: Callable[[ErrorCode], None]) -> None:
        """Pass the callback to the sink."""
        self._sink.when_durable(topic, index, callback)


def write_markers_once(
    init: Original, fanout: MarkerFanout, cluster: object, sink: MarkerWriter, *arguments: object
) -> None:
    init(fanout, cluster, UnrepeatedMarkers(sink), *arguments)


def leave_offsets_pending(_end_transaction: Original, *_: object) -> int:
    return 0


def show_unstable(move_last_stable_offset: Original, partition: Partition) -> None:
    move_last_stable_offset(partition)
    partition.last_stable_offset = partition.high_watermark


def leave_out_of_index(apply_marker: Original, *arguments: Any) -> CompletedTxn | None:
    completed: CompletedTxn | None = apply_marker(*arguments)
    return None if completed is None else completed._replace(aborted=False)


# --- the cleaner


def drop_every_marker(on_control_batch: Original, *arguments: Any) -> bool:
    on_control_batch(*arguments)
    return True


async def find_no_aborted_txns(_collect_aborted_txns: Original, *_: object) -> list[AbortedTxn]:
    return []


def clean_unstable(
    cleanable_offsets: Original, segments: Sequence[SegmentSizes], first_dirty: int, _uncleanable_offset: int
) -> CleanableOffsets:
    offsets: CleanableOffsets = cleanable_offsets(segments, first_dirty, 1 << 62)
    return offsets
