"""Invariants that must hold after every step of a run, and at its end. pure"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.log.partition import Partition
from ottla.broker.txn.states import ALLOWED_PREVIOUS, PENDING_ONLY, RESTING, TransactionStatus
from ottla.broker.txn.values import NO_PENDING, TransactionState, is_exhausted

_S = TransactionStatus
_FINAL: Final = frozenset(status for status in TransactionStatus if status not in PENDING_ONLY)


def _closure() -> dict[TransactionStatus, frozenset[TransactionStatus]]:
    """Return for each logged status those that may follow it, directly or after steps that were not observed."""
    after = {status: {to for to in _FINAL if status in ALLOWED_PREVIOUS[to]} for status in _FINAL}
    while True:
        grown = {status: seen.union(*(after[each] for each in seen)) for status, seen in after.items()}
        if grown == after:
            return {status: frozenset(seen) for status, seen in after.items()}
        after = grown


_REACHABLE: Final = _closure()
# Between two lives of the broker a transaction may begin, be decided and end, but a commit never becomes an abort.
_CONTRADICTIONS: Final = frozenset(
    {
        (_S.PREPARE_COMMIT, _S.COMPLETE_ABORT),
        (_S.PREPARE_ABORT, _S.COMPLETE_COMMIT),
        (_S.PREPARE_COMMIT, _S.PREPARE_ABORT),
    }
)
States = dict[str, TransactionState]


class Watched(States):
    """The states of a shard, and every change of a known id since `moves` was emptied: (id, before, after or None)."""

    __slots__ = ("moves",)

    def __init__(self, states: States) -> None:
        super().__init__(states)
        self.moves: list[tuple[str, TransactionState, TransactionState | None]] = []

    def __setitem__(self, transactional_id: str, state: TransactionState) -> None:
        before = self.get(transactional_id)
        if before is not None:
            self.moves.append((transactional_id, before, state))
        super().__setitem__(transactional_id, state)

    def pop(self, transactional_id: str, *default: Any) -> Any:
        before = self.get(transactional_id)
        if before is not None:
            self.moves.append((transactional_id, before, None))
        return super().pop(transactional_id, *default)


IS_OFFLINE: Final = "is offline after a restart"


class Invariants:
    """Checks of the changes since the last step. `met` counts rare events."""

    def __init__(self, met: Counter[str]) -> None:
        self._met = met
        self._ends: dict[str, tuple[int, int, int]] = {}
        self._found: dict[Partition, tuple[int, int, int]] = {}
        """The ends that the last check found in this life."""
        self._states: dict[int, States] = {}

    def lost_power(self) -> None:
        """Forget all ends and states: appends may be lost that were not synced."""
        self._ends.clear()
        self._states.clear()

    def find_lost_writes(self) -> None:
        """Expect only the records below each high watermark: these were synced, and so was each applied state."""
        self._ends = {name: (stable, high, high) for name, (stable, high, _end) in self._ends.items()}

    def began_life(self, assembly: Assembly) -> Iterator[str]:
        """Check after a restart of the broker that each partition is online and as long as before."""
        for partition in assembly.broker.cluster.partitions():
            if partition.offline is not None:
                yield f"{partition.name} {IS_OFFLINE}: {partition.offline}"
                continue
            before = self._ends.get(partition.name)
            if before is not None and partition.log_end_offset < before[2]:
                yield f"{partition.name} ended at {before[2]} and ends at {partition.log_end_offset} after a restart"
        self._ends.clear()
        self._found.clear()

    def check(self, assembly: Assembly) -> Iterator[str]:
        """Check every invariant that this step may have broken."""
        found = self._found
        for partition in assembly.broker.cluster.partitions():
            now = partition.last_stable_offset, partition.high_watermark, partition.log.log_end_offset
            if found.get(partition) != now:
                found[partition] = now
                name = partition.name
                yield from _check_ends(partition, self._ends.get(name), now)
                self._ends[name] = now
        oldest_ms = assembly.broker.clock.now_ms() - assembly.config.transactional_id_expiration_ms
        for shard in assembly.broker.transaction_shards():
            states = shard.states
            if not isinstance(states, Watched):
                states = shard.states = Watched(states)
                yield from self._check_restart(self._states.get(shard.log.index, {}), states, oldest_ms)
                self._states[shard.log.index] = states
            for transactional_id, before_state, after in states.moves:
                if after is None:
                    self._met["transactional ids forgotten"] += 1
                    yield from _check_oblivion(transactional_id, before_state, oldest_ms)
                else:
                    self._met["producer ids replaced"] += after.producer_id != before_state.producer_id
                    if before_state.status not in ALLOWED_PREVIOUS[after.status]:
                        yield f"illegal move of {transactional_id}: {before_state} -> {after}"
                    yield from _check_move(transactional_id, before_state, after)
            states.moves.clear()

    def _check_restart(self, known: States, states: States, oldest_ms: int) -> Iterator[str]:
        """Check after a replay of the log that each id has its last known state or a later one."""
        for transactional_id, before in known.items():
            after = states.get(transactional_id)
            if after is None:
                yield from _check_oblivion(transactional_id, before, oldest_ms)
            elif after != before:
                self._met["producer ids replaced"] += after.producer_id != before.producer_id
                if after.status not in _REACHABLE[before.status] and after.status is not before.status:
                    yield f"illegal move of {transactional_id}: {before} -> {after}"
                yield from _check_move(transactional_id, before, after)

    def check_rest(self, assembly: Assembly) -> Iterator[str]:
        """Check that no transaction is open or pending, no coordinator is loading, and no work on batches is left."""
        for partition in assembly.broker.cluster.partitions():
            if partition.last_stable_offset != partition.log_end_offset and partition.topic != "__cluster_metadata":
                yield (
                    f"hanging-txn: {partition.name} has the last stable offset {partition.last_stable_offset} "
                    f"and the end {partition.log_end_offset}"
                )
        for shard in assembly.broker.transaction_shards():
            for transactional_id, state in shard.states.items():
                transient = shard.transient.get(transactional_id, NO_PENDING)
                if state.status not in RESTING or transient.pending is not None:
                    yield f"stuck: {transactional_id} stays in {state.status.name}, pending {transient.pending}"
        if any(each.transactions.loading or each.groups.list_groups()[0] for each in assembly.broker.brokers):
            yield "stuck: a coordinator is still loading its logs"
        if not assembly.broker.long_work.is_idle:
            yield "stuck: work on batches still holds memory"


def _check_ends(partition: Partition, before: tuple[int, int, int] | None, now: tuple[int, int, int]) -> Iterator[str]:
    stable, high_watermark, end = now
    if not stable <= high_watermark <= end:
        yield f"{partition.name}: last stable offset {stable}, high watermark {high_watermark}, end {end}"
    opened = [p.current_txn_first_offset for p in partition.producers() if p.current_txn_first_offset >= 0]
    expected = min([*opened, high_watermark])
    expected = max(expected, partition.log_start_offset)
    # A transaction whose marker is above the high watermark is no longer open, but still limits the last stable offset.
    sound = stable == expected if high_watermark == end else stable <= expected
    if partition.topic not in INTERNAL_TOPICS and not sound:
        yield f"{partition.name}: last stable offset {stable}, but {expected} by its producers"
    if before is not None and (stable < before[0] or high_watermark < before[1] or end < before[2]):
        yield f"{partition.name}: went back from {before} to {now}"


def _check_move(transactional_id: str, before: TransactionState, after: TransactionState) -> Iterator[str]:
    move = f"{transactional_id}: {before} -> {after}"
    same = (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch)
    if same and after.start_ms == before.start_ms and (before.status, after.status) in _CONTRADICTIONS:
        yield f"a decision turned in {move}"
    if after.producer_id == before.producer_id:
        if after.producer_epoch < before.producer_epoch:
            yield f"the epoch went back in {move}"
    elif not is_exhausted(before.producer_epoch):
        yield f"the producer id changed before its epochs were used up in {move}"


def _check_oblivion(transactional_id: str, before: TransactionState, oldest_ms: int) -> Iterator[str]:
    """Check that a removed id had no open transaction and was last updated before `oldest_ms`."""
    if before.status not in RESTING or before.last_update_ms > oldest_ms:
        yield f"{transactional_id} was forgotten, after {before}"
