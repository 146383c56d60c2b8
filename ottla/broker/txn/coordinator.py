"""The transaction coordinator: one method for each request. shell

Each request becomes a decision of the machine, which `TransactionStateManager.commit` logs and applies. A request that
would begin a transaction while the markers of the previous one are written waits for a limited time before it is
decided.

Source: `TransactionCoordinator` of Kafka 4.3.1.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.broker.cluster.marker_writer import MarkerWriter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config
from ottla.broker.coordinator.runtime import await_durable
from ottla.broker.metrics import TransactionMetrics
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.broker.txn import machine
from ottla.broker.txn.completion_waiters import CompletionWaiters
from ottla.broker.txn.end_txn_rules import decide_end, decide_end_v2
from ottla.broker.txn.housekeeping import Housekeeping
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.state_manager import TransactionStateManager
from ottla.broker.txn.states import PREPARED, TransactionStatus
from ottla.broker.txn.values import ANSWERS, NO_PENDING, Decision, TransactionState, TransientState, is_exhausted
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import NEVER_TIMES_OUT_MS, TopicPartition

log = logging.getLogger(__name__)


class Description(NamedTuple):
    """The description of an id for DescribeTransactions. If it is prepared, `partitions` are those without a marker
    yet."""

    error: ErrorCode
    state: TransactionState | None = None
    partitions: tuple[TopicPartition, ...] = ()


class TransactionCoordinator:
    """All transactional ids of this broker, and idempotent producers without one."""

    def __init__(
        self,
        cluster: Cluster,
        sink: MarkerWriter,
        turns: Turns,
        clock: Clock,
        config: Config,
        markers_delay_ms: float = 0,
        metrics: TransactionMetrics | None = None,
    ) -> None:
        """Markers are written `markers_delay_ms` after the outcome is durable. Brokers of one process share
        `metrics`."""
        self.config = config
        self.sink = sink
        self._cluster = cluster
        self._clock = clock
        self.states = TransactionStateManager(cluster, sink, turns, clock, markers_delay_ms, metrics)
        self._waiters = CompletionWaiters(self.states, turns, clock, config.transaction_markers_wait_ms)
        self._housekeeping = Housekeeping(self.states, turns, clock, config)

    # ---- life cycle

    def start(self, *, frozen: bool = False) -> None:
        """Replay the logs (in turns, the first part at once), finish prepared transactions, start the timers.

        With `frozen`, no transaction is finished or aborted and no id expires until `unfreeze`.
        """
        if frozen:
            self.states.hold_markers()
        self.states.start()
        if not frozen:
            self._housekeeping.start()

    def unfreeze(self) -> None:
        """Finish prepared transactions and start the timers, after a start with `frozen`."""
        self.states.release_markers()
        self._housekeeping.start()

    def stop(self) -> None:
        """Stop timers, markers and waiting requests. Nothing is read or written after this: the logs may be closed."""
        self._housekeeping.stop()
        self.states.stop()
        self._waiters.stop()

    @property
    def loading(self) -> bool:
        """Whether a partition is still being replayed."""
        return bool(self.states.loading)

    @property
    def remaining_to_load(self) -> int:
        """The number of partitions that are still being replayed."""
        return len(self.states.loading)

    def count_open(self) -> int:
        """Return the number of open transactions, whose outcome is not decided."""
        return sum(len(shard.open) for shard in self.states.shards.values())

    def shards(self) -> Iterator[Shard]:
        """Return the replayed partitions, as a snapshot, so that a scan may suspend."""
        return iter(tuple(self.states.shards.values()))

    # ---- requests

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected_producer_id: int = -1,
        expected_epoch: int = -1,
        *,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> Decision:
        """Handle InitProducerId. Without a transactional id, return a fresh producer id with epoch 0 and log
        nothing.

        With `two_phase_commit`, transactions of the id never time out (KIP-939). `keep_prepared` is not supported.
        """
        if (expected_producer_id == -1) != (expected_epoch == -1):
            return ANSWERS[ErrorCode.INVALID_REQUEST]
        if transactional_id is None:
            return await self._idempotent_producer()
        if not transactional_id:
            return ANSWERS[ErrorCode.INVALID_REQUEST]
        if two_phase_commit and not self.config.transaction_two_phase_commit_enable:
            return ANSWERS[ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        if keep_prepared:
            return ANSWERS[ErrorCode.UNSUPPORTED_VERSION]
        if two_phase_commit:
            timeout_ms = NEVER_TIMES_OUT_MS
        elif not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            return ANSWERS[ErrorCode.INVALID_TRANSACTION_TIMEOUT]
        expected = expected_producer_id, expected_epoch

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            decision = machine.decide_init_producer_id(
                state, transient, timeout_ms, *expected, self.states.level, self._clock.now_ms(), fresh
            )
            if (
                state is not None
                and decision.record is not None
                and decision.record.status is TransactionStatus.PREPARE_ABORT
            ):
                log.info(
                    "Aborting the open transaction of transactionalId %(transactional_id).100s: it is initialized "
                    "again. ProducerId %(producer_id)d with producer epoch %(producer_epoch)d is fenced",
                    {
                        "transactional_id": transactional_id,
                        "producer_id": state.producer_id,
                        "producer_epoch": state.producer_epoch,
                    },
                )
                if self.states.events is not None:
                    self.states.events.record_fencing(transactional_id, state.producer_id, state.producer_epoch)
            return decision

        if self._may_need_id(transactional_id):  # a decision cannot wait for it
            await self._cluster.producer_ids()
        return await self._waiters.wait_decision(transactional_id, decide)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        client_version: int = 0,
        waits: bool = True,
    ) -> ErrorCode:
        """Add partitions for AddPartitionsToTxn and AddOffsetsToTxn. The result is durable.

        With `waits` the request waits for the end of the id's marker phase before it is answered
        CONCURRENT_TRANSACTIONS.
        """

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            return machine.decide_add_partitions(
                state, transient, producer_id, epoch, partitions, self._clock.now_ms(), client_version
            )

        if waits:
            return (await self._waiters.wait_decision(transactional_id, decide)).error
        return (await await_durable(self.states.commit(transactional_id, decide))).error

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        """Return for each partition, in order, whether it is in the open transaction. For Produce and TxnOffsetCommit.

        Does not suspend. PRODUCER_FENCED is returned unchanged; Produce and TxnOffsetCommit send 47 instead.
        """
        shard = self.states.shard_of(transactional_id)
        if not isinstance(shard, Shard):
            return [shard] * len(partitions)
        state = shard.states.get(transactional_id)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        return machine.verify_partitions(state, transient, producer_id, epoch, partitions)

    async def end(self, transactional_id: str, producer_id: int, epoch: int, commit: bool, *, v2: bool) -> Decision:
        """Handle EndTxn. Returns when the outcome is durable. `v2`: request version 5, which bumps the epoch (KIP-890).

        It does not wait for the marker phase: only a client that has lost the reply repeats EndTxn, and that client can
        retry.
        """
        now_ms = self._clock.now_ms()

        def decide(state: TransactionState | None, transient: TransientState, fresh: int) -> Decision:
            if v2:
                return decide_end_v2(state, transient, producer_id, epoch, commit, now_ms, fresh)
            return decide_end(state, transient, producer_id, epoch, commit, now_ms)

        return await await_durable(self.states.commit(transactional_id, decide))

    def describe(self, transactional_id: str) -> Description:
        """Describe one id for DescribeTransactions."""
        shard = self.states.shard_of(transactional_id)
        if not isinstance(shard, Shard):
            return Description(shard)
        state = shard.states.get(transactional_id)
        transient = shard.transient.get(transactional_id, NO_PENDING)
        if state is None or shard.is_dying(transactional_id):
            return Description(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        waiting = transient.awaiting if state.status in PREPARED else state.partitions
        return Description(NO_ERROR, state, tuple(waiting))

    def _may_need_id(self, transactional_id: str) -> bool:
        shard = self.states.shard_of(transactional_id)
        state = shard.states.get(transactional_id) if isinstance(shard, Shard) else None
        return state is None or is_exhausted(state.producer_epoch + 1)

    async def _idempotent_producer(self) -> Decision:
        fresh = self._cluster.next_producer_id()
        while fresh is None:
            if not await self._cluster.producer_ids():  # the log directory is offline, which was logged
                return ANSWERS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            fresh = self._cluster.next_producer_id()
        return Decision(NO_ERROR, producer_id=fresh, producer_epoch=0)
