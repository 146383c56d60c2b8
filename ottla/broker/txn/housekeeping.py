"""Housekeeping of transactional ids: transactions that time out, ids that expire. shell

Both scans run on their timers and never on a request's path, in shares.

Source: `TransactionStateManager.timedOutTransactions`, `removeExpiredTransactionalIds` of Kafka 4.3.1.
"""

from collections.abc import Iterator
from typing import Final

from ottla.broker.config import Config
from ottla.broker.coordinator.periodic import Periodic
from ottla.broker.coordinator.runtime import await_durable
from ottla.broker.costs import CHECK_ID_US, ROW_US
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.broker.txn import machine
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.state_manager import TransactionStateManager
from ottla.broker.txn.values import NO_PENDING

TOMBSTONE_BATCH_BYTES: Final = 8192
ABORTS_AT_ONCE: Final = 64
"""Number of records of one batch of tombstones, or of aborts, that are applied in one turn when they are durable.
The next ones are logged after that, so that a slow sync does not collect more of them."""
TOMBSTONE_OVERHEAD_BYTES: Final = 24
"""An upper bound of the framing, key type and lengths of one tombstone."""


class Housekeeping:
    """The two timers of a coordinator."""

    def __init__(self, states: TransactionStateManager, turns: Turns, clock: Clock, config: Config) -> None:
        self._states = states
        self._turns = turns
        self._clock = clock
        abort_interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expire_interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._expiration_ms = config.transactional_id_expiration_ms
        self._scans = (
            Periodic("timeouts", abort_interval_ms, self._abort_timed_out, turns, clock),
            Periodic("expired ids", expire_interval_ms, self._expire_ids, turns, clock),
        )

    def start(self) -> None:
        """Run both scans at their intervals."""
        for scan in self._scans:
            scan.start()

    def stop(self) -> None:
        """Cancel both timers; a scan that has yielded ends there."""
        for scan in self._scans:
            scan.stop()

    async def _abort_timed_out(self) -> None:
        now_ms, turns = self._clock.now_ms(), self._turns
        for shard in self._online():
            begun = 0
            for transactional_id in list(shard.open):
                turns.charge(CHECK_ID_US)
                state = shard.states.get(transactional_id)
                transient = shard.transient.get(transactional_id, NO_PENDING)
                if shard.resigned:
                    break
                if state is not None and machine.has_timed_out(state, transient, now_ms):
                    outcome = self._states.abort_timed_out(transactional_id)
                    begun += 1
                    if begun % ABORTS_AT_ONCE == 0:
                        await await_durable(outcome)
                if turns.is_spent:
                    await turns.pause()

    async def _expire_ids(self) -> None:
        before_ms, turns = self._clock.now_ms(), self._turns
        for shard in self._online():
            expired: list[str] = []
            size_bytes = 0
            for transactional_id in list(shard.states):
                if shard.resigned:
                    break
                turns.charge(CHECK_ID_US)
                state = shard.states.get(transactional_id)
                transient = shard.transient.get(transactional_id, NO_PENDING)
                if state is not None and machine.has_expired(state, transient, before_ms, self._expiration_ms):
                    turns.charge(ROW_US)
                    expired.append(transactional_id)
                    size_bytes += len(transactional_id.encode()) + TOMBSTONE_OVERHEAD_BYTES
                if size_bytes >= TOMBSTONE_BATCH_BYTES or turns.is_spent:
                    # The states were read in this turn and may change in the next one: log the tombstones now.
                    await await_durable(self._states.forget(shard, expired))
                    expired, size_bytes = [], 0
                if turns.is_spent:
                    await turns.pause()
            if not shard.resigned:
                await await_durable(self._states.forget(shard, expired))

    def _online(self) -> Iterator[Shard]:
        """Yield the shards of this broker whose log is online. An offline log has reported its error and is not tried
        again."""
        shards = tuple(self._states.shards.values())
        return (shard for shard in shards if shard.log.offline is None and not shard.resigned)
