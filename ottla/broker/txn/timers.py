"""Housekeeping of transactional ids: transactions that time out, ids that expire. shell

Both scans run on their timers and never on a request's path, in shares.

Source: `TransactionStateManager.timedOutTransactions`, `removeExpiredTransactionalIds` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.costs import BATCH_US, ROW_US, STATE_RECORD_US
from ottla.broker.deadline import Deadline
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.turns import Handler, Turns
from ottla.broker.txn import machine
from ottla.broker.txn.log import encode_tombstones
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.values import NO_PENDING
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.txn.coordinator import TransactionCoordinator

log = logging.getLogger("ottla.txn.timers")

# Of one id: is its time up?
LOOK_US: Final = 1.0
TOMBSTONE_BATCH_BYTES: Final = 16384
# Of one tombstone: record framing, key type and lengths, with room to spare.
TOMBSTONE_OVERHEAD_BYTES: Final = 24


class Housekeeping:
    """The two timers of a coordinator."""

    def __init__(self, coordinator: "TransactionCoordinator", turns: Turns, clock: Clock) -> None:
        self._coordinator = coordinator
        self._turns = turns
        self._clock = clock
        self._timers: dict[str, Timer] = {}

    def start(self) -> None:
        """Run both scans at their intervals."""
        settings = self._coordinator.settings
        self._arm("timeouts", settings.abort_interval_ms, self._abort_timed_out)
        self._arm("expiry", settings.expire_interval_ms, self._expire_ids)

    def stop(self) -> None:
        """Take both timers back; a scan that has paused ends there."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, name: str, interval_ms: int, scan: Callable[[], Handler[None]]) -> None:
        def run() -> None:
            self._turns.start(scan(), done, failed)

        def done(result: None) -> None:
            if name in self._timers:
                arm()

        def failed(error: Exception) -> None:
            log.error("The scan for %s failed; the next one runs as planned", name, exc_info=error)
            done(None)

        def arm() -> None:
            self._timers[name] = Deadline(self._clock, self._turns, interval_ms, run)

        arm()

    async def _abort_timed_out(self) -> None:
        now_ms, turns = self._clock.now_ms(), self._turns
        for shard in self._online():
            for transactional_id in list(shard.open):
                turns.charge(LOOK_US)
                state = shard.states.get(transactional_id)
                transient = shard.transient.get(transactional_id, NO_PENDING)
                if state is not None and machine.has_timed_out(state, transient, now_ms):
                    turns.charge(BATCH_US + STATE_RECORD_US)
                    self._coordinator.abort_timed_out(transactional_id)
                if turns.over:
                    await turns.pause()
                    if not self._timers:
                        return

    async def _expire_ids(self) -> None:
        before_ms, turns = self._clock.now_ms(), self._turns
        expiration_ms = self._coordinator.settings.id_expiration_ms
        for shard in self._online():
            expired: list[str] = []
            size_bytes = 0
            for transactional_id in list(shard.states):
                turns.charge(LOOK_US)
                state = shard.states.get(transactional_id)
                transient = shard.transient.get(transactional_id, NO_PENDING)
                if state is not None and machine.has_expired(state, transient, before_ms, expiration_ms):
                    turns.charge(ROW_US)
                    expired.append(transactional_id)
                    size_bytes += len(transactional_id.encode()) + TOMBSTONE_OVERHEAD_BYTES
                if size_bytes >= TOMBSTONE_BATCH_BYTES or turns.over:
                    # Nothing that was judged may change before its tombstone is logged.
                    self._bury(shard, expired)
                    expired, size_bytes = [], 0
                if turns.over:
                    await turns.pause()
                    if not self._timers:
                        return
            self._bury(shard, expired)

    def _online(self) -> Iterator[Shard]:
        """The shards that can log an outcome; a log that is offline has said so, and is not asked again each time."""
        return (shard for shard in self._coordinator.shards() if shard.log.offline is None)

    def _bury(self, shard: Shard, expired: Sequence[str]) -> None:
        """Log the tombstones of one batch; the ids are Dead, and pending, until they are durable."""
        if not expired:
            return
        outcome = shard.log.append_own(encode_tombstones(expired, self._clock.now_ms()))
        if outcome.error:
            log.warning("%d expired transactional ids stay: %s", len(expired), outcome.error.name)
            return
        for each in expired:
            shard.transient[each] = machine.append_began(
                shard.transient.get(each, NO_PENDING), machine.dead(shard.states[each])
            )

        def settled(error: ErrorCode) -> None:
            if error:
                return  # the log is offline, and has said so
            for each in expired:
                machine.apply(shard.states, each, None)
                shard.transient.pop(each, None)
            log.info("Forgot %d expired transactional ids", len(expired))

        if shard.log.high_watermark > outcome.last_offset:
            settled(ErrorCode.NONE)
        else:
            shard.log.when_durable(outcome.last_offset, settled)
