"""The states of all transactional ids: decided, logged, applied, with their effects. shell

    request -> machine decides -> record appended (the id is pending) -> durable -> machine.apply -> answer, effects

`commit` is the only way to change an id. Decide and append happen in one plain function, so no other request is decided
in between. A partition of `__transaction_state` is a `Shard`; it answers COORDINATOR_LOAD_IN_PROGRESS until its log is
replayed.

Source: `TransactionStateManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.cluster.marker_writer import MarkerWriter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.coordinator.runtime import CoordinatorRuntime, client_error
from ottla.broker.coordinator.shard import StateLog
from ottla.broker.costs import APPEND_US, STATE_RECORD_US
from ottla.broker.metrics import TransactionMetrics
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns, Wait
from ottla.broker.txn import machine
from ottla.broker.txn.end_txn_rules import V2, decide_abort
from ottla.broker.txn.event_recording import record_event
from ottla.broker.txn.log import encode_change, encode_tombstones
from ottla.broker.txn.markers import Completion, MarkerFanout
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import ONGOING, PREPARE_COMMIT, RESTING, TransactionStatus
from ottla.broker.txn.values import ANSWERS, NEED_PRODUCER_ID, NO_PENDING, Decision, TransactionState, TransientState
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import NO_PRODUCER_ID, TransactionMarker

if TYPE_CHECKING:
    from ottla.broker.events import Events

log = logging.getLogger(__name__)

_START_TIMEOUT: Final = machine.Effect.START_TIMEOUT
_STOP_TIMEOUT: Final = machine.Effect.STOP_TIMEOUT
_DEAD: Final = TransactionStatus.DEAD

Decide = Callable[[TransactionState | None, TransientState, int], Decision]
"""(state, transient, fresh producer id or -1) -> decision. Called again with a producer id after NEED_PRODUCER_ID, and
after the end of a marker phase."""

Changes = Sequence[tuple[str, Decision]]
"""The content of one batch: one id and its decision, or expired ids, each with a Dead record."""


class TransactionStateManager(CoordinatorRuntime[Shard, Changes, Decision]):
    """The shards of `__transaction_state`. Markers are passed to `sink`, `markers_delay_ms` after the outcome is
    durable."""

    empty_id: ClassVar[ErrorCode] = ErrorCode.INVALID_REQUEST
    _cluster: Cluster

    def __init__(
        self,
        cluster: Cluster,
        sink: MarkerWriter,
        turns: Turns,
        clock: Clock,
        markers_delay_ms: float,
        metrics: TransactionMetrics | None = None,
    ) -> None:
        super().__init__(TRANSACTION_STATE_TOPIC, cluster, turns)
        self._clock = clock
        self._events: Events | None = None
        self.metrics = metrics or TransactionMetrics()
        self._fanout = MarkerFanout(cluster, sink, turns, clock, self.log_complete, markers_delay_ms, self.metrics)

    @property
    def events(self) -> "Events | None":
        """The event history, or None without an admin port."""
        return self._events

    @events.setter
    def events(self, events: "Events") -> None:
        self._events = self._fanout.events = events

    def stop(self) -> None:
        """Stop reading logs and writing markers."""
        super().stop()
        self._fanout.stop()

    def hold_markers(self) -> None:
        """Finish no prepared transaction until `release_markers`. Called before `start`."""
        self._fanout.hold()

    def release_markers(self) -> None:
        """Finish the prepared transactions that were held back."""
        self._fanout.release()

    def retry_markers(self) -> None:
        """Write markers that are in back-off now, because the cause has ended."""
        self._fanout.retry_now()

    @property
    def level(self) -> int:
        """The cluster's `transaction.version`."""
        return self._cluster.feature(TRANSACTION_FEATURE)

    # ---- the one way to change an id

    def commit(self, transactional_id: str, decide: Decide) -> Decision | Wait[Decision]:
        """Decide, log, apply. Return the decision if it needs no record, else a wait until it is durable."""
        shard = self.shard_of(transactional_id)
        if not isinstance(shard, Shard):
            return ANSWERS[shard]
        state = shard.states.get(transactional_id)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        decision = decide(state, transient, NO_PRODUCER_ID)
        if decision is NEED_PRODUCER_ID:
            fresh = self._cluster.next_producer_id()
            if fresh is None:
                return ANSWERS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            decision = decide(state, transient, fresh)
        record = decision.record
        if record is None:
            return decision
        machine.check_step(state, record)
        level = self._cluster.feature(TRANSACTION_FEATURE)
        if record.client_version >= V2 and record.status not in RESTING and level == 0:
            return ANSWERS[ErrorCode.UNSUPPORTED_VERSION]  # the records of level 0 cannot hold it
        self._turns.charged_us += APPEND_US
        batch = encode_change(transactional_id, record, level, self._clock.now_ms())
        return self.write_durable(shard, batch, ((transactional_id, decision),))

    def abort_timed_out(self, transactional_id: str) -> Decision | Wait[Decision]:
        """Abort an open transaction that has timed out, and fence its producer."""
        now_ms, level = self._clock.now_ms(), self.level

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            if state is None or not machine.has_timed_out(state, transient, now_ms):
                return ANSWERS[NO_ERROR]
            return decide_abort(state, transient, level, now_ms, fresh, NO_ERROR)

        try:
            outcome = self.commit(transactional_id, decide)
        except Exception:
            # Other transactions have timed out too. The next scan retries this one.
            log.exception(
                "Could not abort %(transactional_id).100s, which timed out", {"transactional_id": transactional_id}
            )
            return ANSWERS[ErrorCode.UNKNOWN_SERVER_ERROR]
        if isinstance(outcome, Wait) or outcome.record is not None:
            self.metrics.timed_out += 1
            if self._events is not None:
                self._record_timeout(transactional_id)
            log.info(
                "Aborting %(transactional_id).100s: its transaction timed out", {"transactional_id": transactional_id}
            )
        elif outcome.error:
            log.warning(
                "Could not abort %(transactional_id).100s, which timed out: %(error)s",
                {"transactional_id": transactional_id, "error": outcome.error.name},
            )
        return outcome

    def _record_timeout(self, transactional_id: str) -> None:
        shard = self.shard_of(transactional_id)
        state = shard.states.get(transactional_id) if isinstance(shard, Shard) else None
        if self._events is not None and state is not None:
            self._events.timed_out(transactional_id, state.producer_id, state.producer_epoch)

    def forget(self, shard: Shard, expired: Sequence[str]) -> Decision | Wait[Decision]:
        """Log the tombstones of expired ids in one batch. Each id is Dead, and pending, until they are durable."""
        if not expired:
            return ANSWERS[NO_ERROR]
        self._turns.charge(APPEND_US + len(expired) * STATE_RECORD_US)
        changes = [(each, Decision(NO_ERROR, machine.dead(shard.states[each]))) for each in expired]
        return self.write_durable(shard, encode_tombstones(expired, self._clock.now_ms()), changes)

    def log_complete(self, completion: Completion) -> ErrorCode:
        """Log the pending Complete record, when all markers are written. Return the error of the append."""
        shard, transactional_id = completion.shard, completion.transactional_id
        transient = shard.transient.get(transactional_id, NO_PENDING)
        complete = transient.pending
        if complete is None:
            return NO_ERROR  # it is logged; the exception came after that
        machine.check_step(shard.states[transactional_id], complete)
        decision = Decision(NO_ERROR, complete, last_epoch=transient.last_epoch)
        batch = encode_change(transactional_id, complete, self.level, self._clock.now_ms())
        outcome = self.write_durable(shard, batch, ((transactional_id, decision),))
        if isinstance(outcome, Wait) or not outcome.error:
            return NO_ERROR
        # The transaction is decided: it stays pending, so that no other request is decided before Complete.
        shard.transient[transactional_id] = transient
        return outcome.error

    # ---- callbacks of the runtime

    def new_shard(self, partition: StateLog) -> Shard:
        """Return a shard without ids."""
        return Shard(partition)

    async def on_load(self, shard: Shard) -> None:
        """Apply the effects of transactions that a replayed shard has open or prepared."""
        for transactional_id in shard.unfinished:
            state = shard.states[transactional_id]
            for effect in machine.effects(None, state):
                self._run_effect(effect, shard, transactional_id, state)
        shard.unfinished.clear()

    def mark_pending(self, shard: Shard, changes: Changes) -> None:
        """Mark the ids as pending until their records are durable."""
        for transactional_id, decision in changes:
            assert decision.record is not None
            transient = shard.transient.get(transactional_id, NO_PENDING)
            shard.set_transient(
                transactional_id, machine.append_began(transient, decision.record, decision.fenced_epoch)
            )

    def answer_refusal(self, shard: Shard, changes: Changes, error: ErrorCode) -> Decision:
        """Undo the pending state after a failed append, and log it."""
        (first, decision), *others = changes
        assert decision.record is not None
        name, more = decision.record.status.wire_name, f" and {len(others)} others" if others else ""
        log.warning(
            "%(state)s of %(transactional_id).100s%(more)s was not logged: %(error)s",
            {"transactional_id": first, "state": name, "more": more, "error": error.name},
        )
        for transactional_id, decision in changes:
            transient = shard.transient.get(transactional_id, NO_PENDING)
            shard.set_transient(transactional_id, machine.after_failed_append(transient, decision))
        return ANSWERS[client_error(error)]

    def on_resign(self, shard: Shard) -> None:
        """Decide the waiting requests again, which get NOT_COORDINATOR. The next coordinator writes the markers."""
        for transactional_id in list(shard.waiting):
            shard.release(transactional_id, True)

    def answer_lost_change(self, changes: Changes, error: ErrorCode) -> Decision:
        """Keep the ids pending, because it is not known whether their records are in the log."""
        return ANSWERS[client_error(error)]

    def apply(self, shard: Shard, changes: Changes, base_offset: int) -> Decision:
        """Make the durable records the states, and run their effects."""
        forgotten = 0
        self._turns.charged_us += len(changes) * STATE_RECORD_US
        for transactional_id, decision in changes:
            record = decision.record
            assert record is not None
            before = shard.states.get(transactional_id)
            if self._events is not None:
                record_event(self._events, transactional_id, before, record)
            if record.status is _DEAD:
                shard.forget(transactional_id)
                forgotten += 1
                continue
            machine.apply_record(shard.states, transactional_id, record)
            was_open = before is not None and before.status is ONGOING
            if was_open is not (record.status is ONGOING):
                self._count_record(record.status)
            transient = shard.transient.get(transactional_id, NO_PENDING)
            shard.set_transient(transactional_id, machine.after_record(transient, decision.last_epoch))
            for effect in machine.effects(before, record):
                self._run_effect(effect, shard, transactional_id, record)
            if shard.waiting and transactional_id in shard.waiting and record.status in RESTING:
                shard.release(transactional_id, True)
        if forgotten:
            log.info("Forgot %d expired transactional ids", forgotten)
        return decision

    def _count_record(self, status: TransactionStatus) -> None:
        """Count a transaction that has begun or was decided."""
        if status is ONGOING:
            self.metrics.begun += 1
        elif status is PREPARE_COMMIT:
            self.metrics.committed += 1
        else:
            self.metrics.aborted += 1

    def _run_effect(self, effect: machine.Effect, shard: Shard, transactional_id: str, state: TransactionState) -> None:
        if effect is _START_TIMEOUT:
            shard.open[transactional_id] = None
        elif effect is _STOP_TIMEOUT:
            shard.open.pop(transactional_id, None)
        else:
            transient = machine.with_pending_completion(
                shard.transient.get(transactional_id, NO_PENDING), state, self._clock.now_ms()
            )
            shard.transient[transactional_id] = transient
            commit = state.status is PREPARE_COMMIT
            marker = TransactionMarker(
                state.producer_id, state.producer_epoch, shard.epoch, commit, state.client_version
            )
            began_ms = self.metrics.now_ms()
            self._fanout.begin(Completion(shard, transactional_id, marker, transient.awaiting, began_ms))
