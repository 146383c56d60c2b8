"""Bugs on purpose: each turns off one rule of the broker, to see how soon the simulation notices. free

A plant is a context manager; the broker is as it was when it ends.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from ottla.broker.api import produce, verification
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.table import TABLE
from ottla.broker.group.store import GroupStore
from ottla.broker.log import log_cleaner, producer_state_manager
from ottla.broker.log.cleaner import Cleaner
from ottla.broker.log.compaction import CleanedTransactionMetadata
from ottla.broker.log.partition import Partition
from ottla.broker.log.producer_state_entry import ACCEPTED
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.turns import Wait
from ottla.broker.txn import end_txn_rules, machine, markers
from ottla.broker.txn.state_manager import TransactionStateManager
from ottla.broker.txn.states import PREPARED, RESTING, TransactionStatus
from ottla.broker.txn.values import ANSWERS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TopicPartition, TransactionMarker

GUARD_GAP_MS: Final = 30


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """An attribute of a class or module, made anew from what it was, for a while."""
    known = getattr(owner, name)
    setattr(owner, name, make(known))
    try:
        yield
    finally:
        setattr(owner, name, known)


@contextmanager
def epochs_unchecked() -> Iterator[None]:
    """Data of an older epoch is appended, and its producer is not verified."""

    def lenient(check: Any) -> Any:
        def check_batch(self: ProducerStateManager, header: Any, origin: Any, refuse_reuse: bool = True) -> Any:
            decision = check(self, header, origin, refuse_reuse)
            return ACCEPTED if decision.error is ErrorCode.INVALID_PRODUCER_EPOCH else decision

        return check_batch

    def unverified(_verify: Any) -> Any:
        return lambda broker, request, write: ErrorCode.NONE

    with replaced(ProducerStateManager, "check_batch", lenient), replaced(produce, "_verify", unverified):
        yield


@contextmanager
def append_epoch_unchecked() -> Iterator[None]:
    """Data of an older epoch is appended if the coordinator knows its transaction."""

    def lenient(check: Any) -> Any:
        def check_batch(self: ProducerStateManager, header: Any, origin: Any, refuse_reuse: bool = True) -> Any:
            decision = check(self, header, origin, refuse_reuse)
            return ACCEPTED if decision.error is ErrorCode.INVALID_PRODUCER_EPOCH else decision

        return check_batch

    with replaced(ProducerStateManager, "check_batch", lenient):
        yield


def unverified() -> AbstractContextManager[None]:
    """Nobody asks the coordinator whether a write belongs to an open transaction."""
    return replaced(produce, "_verify", lambda _known: lambda broker, request, write: ErrorCode.NONE)


def markers_before_prepare() -> AbstractContextManager[None]:
    """Markers are written, and only then the decision is logged."""

    def early(append: Any) -> Any:
        def write_durable(self: TransactionStateManager, shard: Any, batch: bytearray, changes: Any) -> Any:
            ((_id, decision), *_others) = changes
            record = decision.record
            if record.status in PREPARED:
                commit = record.status is TransactionStatus.PREPARE_COMMIT
                marker = TransactionMarker(
                    record.producer_id, record.producer_epoch, shard.epoch, commit, record.client_version
                )
                for topic, index in record.partitions:
                    self._fanout._sink.write_marker(topic, index, marker)
            return append(self, shard, batch, changes)

        return write_durable

    return replaced(TransactionStateManager, "write_durable", early)


def duplicates_appended() -> AbstractContextManager[None]:
    """A batch that was sent again is appended again."""

    def make(check: Any) -> Any:
        def check_batch(self: ProducerStateManager, header: Any, origin: Any, refuse_reuse: bool = True) -> Any:
            decision = check(self, header, origin, refuse_reuse)
            return ACCEPTED if decision.duplicate is not None else decision

        return check_batch

    return replaced(ProducerStateManager, "check_batch", make)


def gaps_accepted() -> AbstractContextManager[None]:
    """Any sequence will do, if it is not a repetition."""

    def make(gap: Any) -> Any:
        def sequence_gap(producer: Any, epoch: int, first_sequence: int) -> str | None:
            message: str | None = gap(producer, epoch, first_sequence)
            return None if epoch != producer.epoch or first_sequence > producer.last_sequence else message

        return sequence_gap

    return replaced(producer_state_manager, "sequence_gap", make)


def reuse_acknowledged() -> AbstractContextManager[None]:
    """Sequences of an ended transaction are those of its batches, sent again: Kafka's answer, and an option."""

    def make(check: Any) -> Any:
        return lambda self, header, origin, _refuse_reuse=True: check(self, header, origin, False)

    return replaced(ProducerStateManager, "check_batch", make)


def pending_ignored() -> AbstractContextManager[None]:
    """What waits for its record or its markers stops nobody."""

    def make(decide: Any) -> Any:
        def commit(self: TransactionStateManager, transactional_id: str, decision: Any) -> Any:
            def blind(state: Any, transient: Any, fresh: int) -> Any:
                if state is not None and state.status is TransactionStatus.PREPARE_COMMIT:
                    state = state._replace(status=TransactionStatus.COMPLETE_COMMIT)
                elif state is not None and state.status is TransactionStatus.PREPARE_ABORT:
                    state = state._replace(status=TransactionStatus.COMPLETE_ABORT)
                return decision(state, transient._replace(pending=None), fresh)

            return decide(self, transactional_id, blind)

        return commit

    @contextmanager
    def planted() -> Iterator[None]:
        unchecked = replaced(machine, "check_step", lambda _known: lambda before, after: None)
        with replaced(TransactionStateManager, "commit", make), unchecked:
            yield

    return planted()


def prepare_forgotten() -> AbstractContextManager[None]:
    """Recovery does not finish what was prepared."""

    def make(effects: Any) -> Any:
        return lambda before, after: () if before is None and after.status in PREPARED else effects(before, after)

    return replaced(machine, "effects", make)


def open_forgotten() -> AbstractContextManager[None]:
    """Recovery does not watch the timeout of what was open."""

    def make(effects: Any) -> Any:
        return lambda before, after: () if before is None and after.status not in PREPARED else effects(before, after)

    return replaced(machine, "effects", make)


def init_does_not_fence() -> AbstractContextManager[None]:
    """A new instance gets the epoch of the old one."""

    def make(initialised: Any) -> Any:
        def _initialised(state: Any, epoch: int, *rest: Any) -> Any:
            return initialised(state, max(state.producer_epoch, 0), *rest)

        return _initialised

    return replaced(machine, "_initialised", make)


def markers_once() -> AbstractContextManager[None]:
    """A marker that a leader cannot take now is never tried again."""
    retried = {error: markers.Next.DONE for error, step in markers._NEXT.items() if step is markers.Next.RETRY}
    return replaced(markers, "_NEXT", lambda known: {**known, **retried})


def marker_epochs_unchecked() -> AbstractContextManager[None]:
    """A marker of an older epoch ends the transaction of a newer one."""
    return replaced(ProducerStateManager, "check_marker", lambda _known: lambda self, *marker: ACCEPTED)


def unstable_visible() -> AbstractContextManager[None]:
    """read_committed sees up to the high watermark."""

    def make(_known: Any) -> Any:
        def _move_stable_offset(self: Partition) -> None:
            self.last_stable_offset = self.high_watermark

        return _move_stable_offset

    return replaced(Partition, "_move_stable_offset", make)


def offsets_never_settle() -> AbstractContextManager[None]:
    """A marker does not end what is pending in a group."""
    return replaced(GroupStore, "end_transaction", lambda _known: lambda self, index, producer_id, commit: 0)


def aborted_list_empty() -> AbstractContextManager[None]:
    """The index of aborted transactions is not written."""

    def make(apply: Any) -> Any:
        def apply_marker(self: ProducerStateManager, *marker: Any) -> Any:
            done = apply(self, *marker)
            return None if done is None else done._replace(aborted=False)

        return apply_marker

    return replaced(ProducerStateManager, "apply_marker", make)


@contextmanager
def guard_missing() -> Iterator[None]:
    """A write that was verified may be appended some ms later, whatever came between."""
    verify, known = produce._verify, TABLE[ApiKey.PRODUCE]
    sound: dict[int, set[TopicPartition]] = {}

    async def slow(broker: Broker, request: Request) -> Reply:
        found = sound[id(request)] = set()
        for topic, topic_id, partitions in produce._named(broker, request.body):
            for index, records in partitions:
                write = produce._check(broker, request.api_version, topic, topic_id, index, records)
                if not write.is_ready:
                    write = await produce._check_in_steps(broker, request.api_version, write)
                if not write.error and not verify(broker, request, write):
                    found.add((topic, index))
        await verification._sleep(broker, GUARD_GAP_MS)
        reply = await known.handle(broker, request)
        del sound[id(request)]
        return reply

    def remembered(broker: Broker, request: Request, write: produce.Write) -> ErrorCode:
        if (write.topic, write.partition_index) in sound[id(request)]:
            return ErrorCode.NONE
        return verify(broker, request, write)

    TABLE[ApiKey.PRODUCE] = known._replace(handle=slow)
    try:
        with replaced(produce, "_verify", lambda _known: remembered):
            yield
    finally:
        TABLE[ApiKey.PRODUCE] = known


def overtaking_accepted() -> AbstractContextManager[None]:
    """A batch may come before the one that begins its transaction."""
    return replaced(ProducerStateManager, "_overtaking", lambda _known: lambda self, header, producer: None)


def duplicate_early() -> AbstractContextManager[None]:
    """A batch that was sent again is acknowledged although the first one is not durable yet."""

    def make(durable: Any) -> Any:
        async def _durable(broker: Any, write: Any, result: Any) -> Any:
            return result if result.duplicate else await durable(broker, write, result)

        return _durable

    return replaced(produce, "_wait_durable", make)


def answered_early() -> AbstractContextManager[None]:
    """The coordinator answers as soon as a record is written; the state follows when it is durable."""

    def make(append: Any) -> Any:
        def write_durable(self: TransactionStateManager, shard: Any, batch: bytearray, changes: Any) -> Any:
            outcome = append(self, shard, batch, changes)
            return changes[0][1] if isinstance(outcome, Wait) else outcome

        return write_durable

    return replaced(TransactionStateManager, "write_durable", make)


def abort_does_not_fence() -> AbstractContextManager[None]:
    """Transactions V1: a transaction that timed out is aborted in its own epoch, so its producer goes on."""

    def make(abort: Any) -> Any:
        def decide_abort(state: Any, transient: Any, level: int, *rest: Any) -> Any:
            decision = abort(state, transient, level, *rest)
            if level >= end_txn_rules.V2 or decision.record is None:
                return decision
            record = decision.record._replace(producer_epoch=state.producer_epoch)
            return decision._replace(record=record, fenced_epoch=-1)

        return decide_abort

    return replaced(machine, "decide_abort", make)


# --- transactions V2 (KIP-890)


def end_keeps_epoch() -> AbstractContextManager[None]:
    """EndTxn 5 ends the transaction and leaves the epoch as it is."""

    def still(state: Any, decision: Any) -> Any:
        if decision.record is None or decision.record.next_producer_id >= 0:
            return decision
        record = decision.record._replace(producer_epoch=state.producer_epoch)
        return decision._replace(record=record, producer_epoch=state.producer_epoch)

    return _end_v2(still)


def empty_abort_keeps_epoch() -> AbstractContextManager[None]:
    """EndTxn 5 aborts where nothing is open by doing nothing."""

    def nothing(state: Any, decision: Any) -> Any:
        if decision.record is None or state.status not in RESTING:
            return decision
        return ANSWERS[ErrorCode.NONE]._replace(producer_id=state.producer_id, producer_epoch=state.producer_epoch)

    return _end_v2(nothing)


def repeated_end_refused() -> AbstractContextManager[None]:
    """EndTxn 5 that was sent again is taken for that of a zombie."""

    def refuse(state: Any, decision: Any) -> Any:
        done = decision.record is None and decision.error is ErrorCode.NONE
        return ANSWERS[ErrorCode.PRODUCER_FENCED] if done else decision

    return _end_v2(refuse)


def _end_v2(change: Callable[[Any, Any], Any]) -> AbstractContextManager[None]:
    def make(decide: Any) -> Any:
        def decide_end_v2(state: Any, *rest: Any) -> Any:
            return change(state, decide(state, *rest))

        return decide_end_v2

    return replaced(machine, "decide_end_v2", make)


def equal_marker_accepted() -> AbstractContextManager[None]:
    """A marker of transactions V2 ends a transaction of its own epoch: that of the one before ends the next."""

    def make(check: Any) -> Any:
        return lambda self, producer_id, epoch, coordinator_epoch, version: check(
            self, producer_id, epoch, coordinator_epoch, 0
        )

    return replaced(ProducerStateManager, "check_marker", make)


@contextmanager
def join_skipped() -> Iterator[None]:
    """Produce 12 appends to partitions that the coordinator does not know of."""

    async def join(broker: Any, request: Any, writes: Any) -> dict[Any, Any]:
        return {}

    def make(verify: Any) -> Any:
        def _verify(broker: Any, request: Any, write: Any) -> Any:
            joins = request.api_version >= produce.FIRST_VERSION_THAT_ADDS
            return ErrorCode.NONE if joins else verify(broker, request, write)

        return _verify

    with replaced(produce, "_join", lambda _known: join), replaced(produce, "_verify", make):
        yield


@contextmanager
def exhausted_id_kept() -> Iterator[None]:
    """A producer id whose epochs are used up stays in use."""

    def never(_known: Any) -> Any:
        return lambda epoch: False

    with replaced(end_txn_rules, "is_exhausted", never), replaced(machine, "is_exhausted", never):
        yield


def markers_compacted_early() -> AbstractContextManager[None]:
    """The cleaner takes markers for needless whose transactions have records left."""

    def make(on_control_batch: Any) -> Any:
        return lambda self, header, control_type: on_control_batch(self, header, control_type) or True

    return replaced(CleanedTransactionMetadata, "on_control_batch", make)


def cleaner_ignores_aborts() -> AbstractContextManager[None]:
    """The cleaner takes aborted records for committed ones."""

    async def none(self: Any, partition: Any, upper: int) -> list[Any]:
        return []

    return replaced(Cleaner, "_collect_aborted", lambda _known: none)


def open_transactions_compacted() -> AbstractContextManager[None]:
    """The cleaner does not stop at the last stable offset."""

    def make(cleanable_offsets: Any) -> Any:
        return lambda sizes, first_dirty, _uncleanable_offset: cleanable_offsets(sizes, first_dirty, 1 << 62)

    return replaced(log_cleaner, "cleanable_offsets", make)


PLANTS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    "epochs-unchecked": epochs_unchecked,
    "append-epoch-unchecked": append_epoch_unchecked,
    "unverified": unverified,
    "markers-before-prepare": markers_before_prepare,
    "duplicates-appended": duplicates_appended,
    "gaps-accepted": gaps_accepted,
    "reuse-acknowledged": reuse_acknowledged,
    "pending-ignored": pending_ignored,
    "prepare-forgotten": prepare_forgotten,
    "open-forgotten": open_forgotten,
    "init-does-not-fence": init_does_not_fence,
    "markers-once": markers_once,
    "marker-epochs-unchecked": marker_epochs_unchecked,
    "unstable-visible": unstable_visible,
    "offsets-never-settle": offsets_never_settle,
    "aborted-list-empty": aborted_list_empty,
    "guard-missing": guard_missing,
    "overtaking-accepted": overtaking_accepted,
    "duplicate-early": duplicate_early,
    "answered-early": answered_early,
    "abort-does-not-fence": abort_does_not_fence,
    "end-keeps-epoch": end_keeps_epoch,
    "empty-abort-keeps-epoch": empty_abort_keeps_epoch,
    "repeated-end-refused": repeated_end_refused,
    "equal-marker-accepted": equal_marker_accepted,
    "join-skipped": join_skipped,
    "exhausted-id-kept": exhausted_id_kept,
    "markers-compacted-early": markers_compacted_early,
    "cleaner-ignores-aborts": cleaner_ignores_aborts,
    "open-transactions-compacted": open_transactions_compacted,
}
"""Every plant by its name."""
