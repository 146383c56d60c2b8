"""The transaction coordinator: requests in, records out, markers behind them. shell

    request -> machine decides -> record appended (the id is pending) -> durable -> machine.apply -> answer, effects

`commit` is the only way to change an id. Decide and append happen in one plain function, so nothing comes between.
A partition of `__transaction_state` is a `Shard`; it answers COORDINATOR_LOAD_IN_PROGRESS until its log is replayed.
What would begin something new while the markers of an id's last transaction are written waits for a moment, undecided.

Source: `TransactionCoordinator`, `TransactionStateManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.cluster.sinks import MarkerSink, TransactionMarker
from ottla.broker.coordinator.errors import client_error
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import ClusterView
from ottla.broker.costs import HASH_CHAR_US
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns, Wait
from ottla.broker.txn import machine
from ottla.broker.txn.completion_waiters import CompletionWaiters, Decide, await_durable
from ottla.broker.txn.end_txn_rules import V2
from ottla.broker.txn.log import encode_change
from ottla.broker.txn.markers import Completion, MarkerFanout
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import PREPARE_COMMIT, PREPARED, RESTING
from ottla.broker.txn.timers import Housekeeping
from ottla.broker.txn.values import ANSWERS, NEED_PRODUCER_ID, NO_PENDING, Decision, TransactionState, TransientState
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.values import NO_PRODUCER_ID, TopicPartition

log = logging.getLogger("ottla.txn")

# Hashing an id costs more than deciding on it, and a transaction asks three times.
HASHES_KEPT: Final = 4096

_START_TIMEOUT: Final = machine.Effect.START_TIMEOUT
_STOP_TIMEOUT: Final = machine.Effect.STOP_TIMEOUT


class TransactionCluster(ClusterView, Protocol):
    """What the coordinator needs of the cluster."""

    def next_producer_id(self) -> int | None:
        """A producer id that was never handed out; None while none is durable."""

    async def producer_ids(self) -> bool:
        """Wait until there is a producer id; False when none can be logged."""

    def feature(self, name: str) -> int:
        """The finalized level of a feature."""


class TransactionSettings(NamedTuple):
    """Kafka's `transaction.max.timeout.ms`, `transactional.id.expiration.ms` and the two cleanup intervals.

    A request waits `markers_wait_ms` for the end of its id's marker phase; markers are written `markers_delay_ms` after
    the outcome is durable.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expire_interval_ms: int = 3_600_000
    markers_wait_ms: float = 50
    markers_delay_ms: float = 0


class Description(NamedTuple):
    """What DescribeTransactions says of an id. `partitions` are those that still wait for a marker, once prepared."""

    error: ErrorCode
    state: TransactionState | None = None
    partitions: tuple[TopicPartition, ...] = ()


class TransactionCoordinator:
    """All transactional ids of this broker, and idempotent producers without one."""

    def __init__(
        self, cluster: TransactionCluster, sink: MarkerSink, turns: Turns, clock: Clock, settings: TransactionSettings
    ) -> None:
        self.settings = settings
        self.sink = sink
        self._cluster = cluster
        self._turns = turns
        self._clock = clock
        self.runtime: CoordinatorRuntime[Shard] = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC, cluster, turns, Shard, self._finish
        )
        self._partition_count = 0
        self._partition_of = lru_cache(HASHES_KEPT)(self._hashed)
        self._fanout = MarkerFanout(
            lambda: cluster.topics, sink, turns, clock, self._log_complete, settings.markers_delay_ms
        )
        self._waiters = CompletionWaiters(self.commit, self._shard_of, turns, clock, settings.markers_wait_ms)
        self._housekeeping = Housekeeping(self, turns, clock)

    # ---- life

    def start(self) -> None:
        """Replay the logs (in shares, the first at once), finish what is prepared, start the timers."""
        self.runtime.start()
        self._housekeeping.start()

    def stop(self) -> None:
        """Nothing is read or written after this: the logs may be closed."""
        self._housekeeping.stop()
        self.runtime.stop()
        self._fanout.stop()
        self._waiters.stop(self.shards())

    @property
    def loading(self) -> bool:
        """Whether a partition is still being replayed."""
        return bool(self.runtime.loading)

    def shards(self) -> Iterator[Shard]:
        """The replayed partitions; a snapshot, so that a scan may pause."""
        return iter(tuple(self.runtime.shards.values()))

    # ---- requests

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected_producer_id: int = -1, expected_epoch: int = -1
    ) -> Decision:
        """InitProducerId. Without an id (idempotence only) a fresh producer id, epoch 0, and nothing is logged."""
        if (expected_producer_id == -1) != (expected_epoch == -1):
            return ANSWERS[ErrorCode.INVALID_REQUEST]
        if transactional_id is None:
            return await self._idempotent_producer()
        if not transactional_id:
            return ANSWERS[ErrorCode.INVALID_REQUEST]
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return ANSWERS[ErrorCode.INVALID_TRANSACTION_TIMEOUT]
        expected = expected_producer_id, expected_epoch

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            return machine.decide_init_producer_id(
                state, transient, timeout_ms, *expected, self.level, self._clock.now_ms(), fresh
            )

        # Most need none, but a decision cannot wait for one.
        await self._cluster.producer_ids()
        return await self._waiters.decided(transactional_id, decide)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        client_version: int = 0,
        waits: bool = True,
    ) -> ErrorCode:
        """AddPartitionsToTxn and AddOffsetsToTxn: durable before it is answered.

        With `waits` the marker phase of the id is waited for, and only then CONCURRENT_TRANSACTIONS.
        """

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            return machine.decide_add_partitions(
                state, transient, producer_id, epoch, partitions, self._clock.now_ms(), client_version
            )

        if waits:
            return (await self._waiters.decided(transactional_id, decide)).error
        return (await await_durable(self.commit(transactional_id, decide))).error

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        """Whether each partition is in the open transaction, in order; for Produce and TxnOffsetCommit.

        Answered at once. PRODUCER_FENCED is given as it is: Produce and TxnOffsetCommit send 47 for it.
        """
        shard = self._shard_of(transactional_id)
        if not isinstance(shard, Shard):
            return [shard] * len(partitions)
        state = shard.states.get(transactional_id)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        return machine.verify_partitions(state, transient, producer_id, epoch, partitions)

    async def end(self, transactional_id: str, producer_id: int, epoch: int, commit: bool, *, v2: bool) -> Decision:
        """EndTxn, answered when the outcome is durable; `v2` for request version 5, whose epoch moves (KIP-890).

        It does not wait for the marker phase: a repetition has lost its reply, and its client is in no hurry.
        """
        now_ms = self._clock.now_ms()

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            if v2:
                return machine.decide_end_v2(state, transient, producer_id, epoch, commit, now_ms, fresh)
            return machine.decide_end(state, transient, producer_id, epoch, commit, now_ms)

        return await await_durable(self.commit(transactional_id, decide))

    def describe(self, transactional_id: str) -> Description:
        """One id, for DescribeTransactions."""
        shard = self._shard_of(transactional_id)
        if not isinstance(shard, Shard):
            return Description(shard)
        state = shard.states.get(transactional_id)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        if state is None or shard.is_dying(transactional_id):
            return Description(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        waiting = transient.awaiting if state.status in PREPARED else state.partitions
        return Description(NO_ERROR, state, tuple(waiting))

    def abort_timed_out(self, transactional_id: str) -> None:
        """Abort an open transaction whose time is up, and fence its producer."""
        now_ms, level = self._clock.now_ms(), self.level

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            if state is None or not machine.has_timed_out(state, transient, now_ms):
                return ANSWERS[NO_ERROR]
            return machine.decide_abort(state, transient, level, now_ms, fresh, NO_ERROR)

        try:
            outcome = self.commit(transactional_id, decide)
        except Exception:
            # The transactions behind this one have timed out too; it is tried again by the next scan.
            log.exception("Could not abort %s, which timed out", transactional_id)
            return
        if isinstance(outcome, Decision) and outcome.record is not None:
            log.info("Aborted %s: its transaction timed out", transactional_id)
        elif isinstance(outcome, Decision) and outcome.error:
            log.warning("Could not abort %s, which timed out: %s", transactional_id, outcome.error.name)

    # ---- the one way to change an id

    def commit(self, transactional_id: str, decide: Decide) -> Decision | Wait[Decision]:
        """Decide, then log, then apply. The decision at once if it stands already, else a wait for durability."""
        shard = self._shard_of(transactional_id)
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
        if record.client_version >= V2 and record.status not in RESTING and self.level == 0:
            return ANSWERS[ErrorCode.UNSUPPORTED_VERSION]  # the records of level 0 have no room for it
        wait = self._append(shard, transactional_id, decision)
        if isinstance(wait, ErrorCode):
            return ANSWERS[client_error(wait)] if wait else decision
        return wait

    def _append(self, shard: Shard, transactional_id: str, decision: Decision) -> ErrorCode | Wait[Decision]:
        """Log the decision's record; its error, or a wait if it is not durable yet."""
        record = decision.record
        assert record is not None
        batch = encode_change(transactional_id, record, self.level, self._clock.now_ms())
        outcome = shard.log.append_own(batch)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        if outcome.error:
            log.warning("%s of %s was not logged: %s", record.status.wire_name, transactional_id, outcome.error.name)
            shard.set_transient(transactional_id, machine.append_failed(transient, decision))
            return outcome.error
        if shard.log.high_watermark > outcome.last_offset:
            self._durable(shard, transactional_id, decision)
            return NO_ERROR
        wait: Wait[Decision] = Wait(self._turns)
        shard.set_transient(transactional_id, machine.append_began(transient, record, decision.fenced_epoch))

        def settled(error: ErrorCode) -> None:
            if error:  # the log is offline: recovery decides whether the record was written
                wait.wake(ANSWERS[client_error(error)])
                return
            self._durable(shard, transactional_id, decision)
            wait.wake(decision)

        shard.log.when_durable(outcome.last_offset, settled)
        return wait

    def _durable(self, shard: Shard, transactional_id: str, decision: Decision) -> None:
        """The record is the state now; do what follows from it."""
        record = decision.record
        assert record is not None
        before = shard.states.get(transactional_id)
        machine.apply(shard.states, transactional_id, record)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        shard.set_transient(transactional_id, machine.record_applied(transient, decision.last_epoch))
        for effect in machine.effects(before, record):
            self._run_effect(effect, shard, transactional_id, record)
        if shard.waiting and transactional_id in shard.waiting and record.status in RESTING:
            self._waiters.completed(shard, transactional_id)

    def _run_effect(self, effect: machine.Effect, shard: Shard, transactional_id: str, state: TransactionState) -> None:
        if effect is _START_TIMEOUT:
            shard.open[transactional_id] = None
        elif effect is _STOP_TIMEOUT:
            shard.open.pop(transactional_id, None)
        else:
            transient = machine.completion_prepared(
                shard.transient.get(transactional_id, NO_PENDING), state, self._clock.now_ms()
            )
            shard.transient[transactional_id] = transient
            commit = state.status is PREPARE_COMMIT
            marker = TransactionMarker(
                state.producer_id, state.producer_epoch, shard.epoch, commit, state.client_version
            )
            self._fanout.begin(Completion(shard, transactional_id, marker, transient.awaiting))

    def _log_complete(self, completion: Completion) -> ErrorCode:
        """All markers are written: log the pending Complete record; the error of the append."""
        shard, transactional_id = completion.shard, completion.transactional_id
        transient = shard.transient.get(transactional_id, NO_PENDING)
        complete = transient.pending
        if complete is None:
            return NO_ERROR  # it is logged: what broke came after
        machine.check_step(shard.states[transactional_id], complete)
        decision = Decision(NO_ERROR, complete, last_epoch=transient.last_epoch)
        outcome = self._append(shard, transactional_id, decision)
        if not isinstance(outcome, ErrorCode):
            return NO_ERROR
        if outcome:
            # The transaction is decided: it stays pending, and no request may come between.
            shard.transient[transactional_id] = transient
        return outcome

    # ---- parts

    @property
    def level(self) -> int:
        """The cluster's `transaction.version`."""
        return self._cluster.feature(TRANSACTION_FEATURE)

    async def _idempotent_producer(self) -> Decision:
        fresh = self._cluster.next_producer_id()
        while fresh is None:
            if not await self._cluster.producer_ids():  # the log directory is offline, and has said so
                return ANSWERS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            fresh = self._cluster.next_producer_id()
        return Decision(NO_ERROR, producer_id=fresh, producer_epoch=0)

    def _hashed(self, transactional_id: str, partition_count: int) -> int:
        self._turns.charge(len(transactional_id) * HASH_CHAR_US)
        return coordinator_partition(transactional_id, partition_count)

    def _shard_of(self, transactional_id: str) -> Shard | ErrorCode:
        """The shard that owns the id, or why it cannot answer."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not self._partition_count:
            topic = self._cluster.topics.get(TRANSACTION_STATE_TOPIC)
            if topic is None:
                return ErrorCode.NOT_COORDINATOR
            self._partition_count = topic.partition_count
        return self.runtime.shard_at(self._partition_of(transactional_id, self._partition_count))

    async def _finish(self, shard: Shard) -> None:
        """Take up what a replayed shard has open or prepared."""
        for transactional_id in shard.unfinished:
            state = shard.states[transactional_id]
            for effect in machine.effects(None, state):
                self._run_effect(effect, shard, transactional_id, state)
        shard.unfinished.clear()
