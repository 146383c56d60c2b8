"""Requests that wait for the Complete record of their transactional id before they are decided. shell

A client that gets CONCURRENT_TRANSACTIONS sleeps 20 to 100 ms, but markers are mostly written in less than one. So the
coordinator keeps the request for a limited time and decides it when Complete is applied, as if it had arrived then.
Until then the request has changed nothing: if its connection closes, no trace of it is left.
"""

from typing import Final

from ottla.broker.coordinator.runtime import await_durable
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns, Wait
from ottla.broker.txn import machine
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.state_manager import Decide, TransactionStateManager
from ottla.broker.txn.values import NO_PENDING, Decision
from ottla.protocol.errors import ErrorCode

_BUSY: Final = ErrorCode.CONCURRENT_TRANSACTIONS


class CompletionWaiters:
    """Decides requests. Those that get CONCURRENT_TRANSACTIONS wait in `Shard.waiting` for up to `wait_ms`."""

    __slots__ = ("_clock", "_states", "_turns", "_wait_ms")

    def __init__(self, states: TransactionStateManager, turns: Turns, clock: Clock, wait_ms: float) -> None:
        self._states = states
        self._turns = turns
        self._clock = clock
        self._wait_ms = wait_ms

    async def wait_decision(self, transactional_id: str, decide: Decide) -> Decision:
        """Return the decision when it is durable. In the marker phase of the id, wait for its end and decide again."""
        outcome = self._states.commit(transactional_id, decide)
        decision = outcome if isinstance(outcome, Decision) else await outcome
        if decision.error is not _BUSY or not self._wait_ms:
            return decision
        return await self._retry_after_completion(transactional_id, decide, decision)

    def stop(self) -> None:
        """Wake all waiting requests, because no marker will be written any more."""
        for shard in self._states.shards.values():
            for transactional_id in list(shard.waiting):
                shard.release(transactional_id, False)

    async def _retry_after_completion(self, transactional_id: str, decide: Decide, decision: Decision) -> Decision:
        """Decide after each marker phase until the answer is not CONCURRENT_TRANSACTIONS or the time is up.

        The first decision may be an abort by InitProducerId itself. This method waits for its markers as for those of
        others. They may be written already if the abort's record became durable late and the handler resumes only now.
        """
        monotonic_ms = self._clock.monotonic_ms
        until_ms = monotonic_ms() + self._wait_ms
        while decision.error is _BUSY:
            shard = self._states.shard_of(transactional_id)
            left_ms = until_ms - monotonic_ms()
            if not isinstance(shard, Shard) or left_ms <= 0:
                break
            if machine.is_ending(shard.states.get(transactional_id), shard.transient.get(transactional_id, NO_PENDING)):
                if not await self._wait_for_completion(shard, transactional_id, left_ms):
                    break
            elif decision.record is None:
                break
            decision = await await_durable(self._states.commit(transactional_id, decide))
        return decision

    async def _wait_for_completion(self, shard: Shard, transactional_id: str, for_ms: float) -> bool:
        """Wait until Complete of the id is applied. Return False if it is not applied within `for_ms`."""
        wait: Wait[bool] = Wait(self._turns)
        line = shard.waiting.setdefault(transactional_id, {})

        def leave() -> None:
            timer.cancel()
            line.pop(wait, None)
            if not line and shard.waiting.get(transactional_id) is line:
                del shard.waiting[transactional_id]

        def give_up() -> None:
            if wait.on_discard is not None:
                wait.on_discard()
            wait.wake(False)

        timer = line[wait] = self._clock.call_later(for_ms, give_up)
        wait.on_discard = leave
        waits = self._states.metrics.waits
        began_ms = waits.begin()
        ended = await wait
        waits.end(began_ms)
        return ended
