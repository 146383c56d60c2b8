"""Requests on their way, and those requests and markers that arrive too late for the protocol to detect it. free

Transactions V1 have no epoch of their own, so a late request of one transaction may take effect in the producer's next
transaction, on any broker. The history records each such hit, and the checker counts the anomalies that follow apart.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Final

from lab.simulation.faults import Profile
from lab.simulation.groups.membership import Beat
from lab.simulation.history import Entry, History
from lab.simulation.process import Attempt, Process
from lab.simulation.producers import Producer
from ottla.broker.api.context import Broker
from ottla.broker.assembly import Assembly
from ottla.broker.txn.end_txn_rules import V2
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker
from ottla.testkit.in_memory import wire

LATE_END: Final = "late-end"
LATE_OFFSETS: Final = "late-offsets"
LATE_MARKER: Final = "late-marker"
LATE_PRODUCE: Final = "late-produce"
MIXED_GENERATIONS: Final = "mixed-generations"

_CAUSE_OF: Final[Mapping[int, str]] = {
    ApiKey.END_TXN: LATE_END,
    ApiKey.TXN_OFFSET_COMMIT: LATE_OFFSETS,
    ApiKey.PRODUCE: LATE_PRODUCE,
}


class Causes:
    """The requests on their way, and the transactions that late ones have hit; `processes` are all clients."""

    def __init__(self, history: History, processes: Iterable[Process]) -> None:
        self._history = history
        self._processes = processes
        self._expected: dict[tuple[str, int], Attempt] = {}

    def forget(self) -> None:
        """Forget all requests on their way: the broker has ended."""
        self._expected.clear()

    def expect(self, link: str, correlation_id: int, attempt: Attempt) -> None:
        """Remember a request that a client sends."""
        self._expected[f"{link}:0", correlation_id] = attempt

    def mark_late(self, broker: Broker, frame: memoryview, peer: str) -> None:
        """Record a request that the broker handles too late: it may hit the sender's next transaction (KAFKA-17754)."""
        attempt = self._expected.get((peer, int.from_bytes(frame[4:8], "big")))
        if isinstance(attempt, Beat):
            attempt.mark_if_late()
        if attempt is None or not isinstance(attempt.process, Producer):
            return
        api_key = int.from_bytes(frame[:2], "big")
        if api_key not in _CAUSE_OF or (api_key == ApiKey.PRODUCE and attempt.given_up is None):
            return
        process = attempt.process
        is_end = api_key == ApiKey.END_TXN
        # Another broker than the coordinator refuses EndTxn.
        shards = broker.transactions.shards() if is_end else broker.transaction_shards()
        state = _state_of(shards, process.transactional_id)
        if state is None or attempt.producer is None:
            return
        if is_end and int.from_bytes(frame[2:4], "big") >= wire.V2.end_txn:
            self._find_successor(attempt, state)
        late = attempt.over or attempt.txn != process.txn
        if late and state.status is TransactionStatus.ONGOING and _producer_of(state) == attempt.producer:
            if attempt.given_up is not None and attempt.given_up not in state.partitions:
                return  # it will be refused
            cause = _CAUSE_OF[api_key]
            # A client that is in no transaction now is hit in the last one that it began.
            hit = process.txn or self._last_begun(process.name)
            self._history.note("cause", cause=cause, txn=hit, of=attempt.txn)

    def is_known(self, txn: str | None) -> bool:
        """Return whether a late request or marker has hit this transaction."""
        return any(entry["f"] == "cause" and entry["txn"] == txn for entry in self._history.entries)

    def _find_successor(self, attempt: Attempt, state: TransactionState) -> None:
        """Record an EndTxn of transactions V2 whose next epoch belongs to a successor that uses V1.

        No broker can detect this: `TransactionCoordinator.endTransaction` of Kafka 4.3.1 takes the request for a retry.
        """
        assert attempt.producer is not None
        producer_id, epoch = attempt.producer
        if _producer_of(state) == (producer_id, epoch + 1) and self._was_handed_out(producer_id, epoch + 1):
            self._history.note("cause", cause=MIXED_GENERATIONS, txn=attempt.txn, of=attempt.txn)

    def _was_handed_out(self, producer_id: int, epoch: int) -> bool:
        """Return whether InitProducerId gave this epoch to a client."""
        return any(
            entry["f"] == "init" and entry["type"] == "ok" and (entry["pid"], entry["epoch"]) == (producer_id, epoch)
            for entry in self._history.entries
        )

    def on_delivered(self, assembly: Assembly, topic: str, index: int, marker: TransactionMarker) -> None:
        """Record a marker that arrives after it was sent again: in transactions V1 it ends the transaction open now."""
        partition = assembly.broker.cluster.partition(topic, index)
        if partition is None or marker.transaction_version >= V2:
            return
        producer = partition.producer_of(marker.producer_id)
        if producer is None or producer.epoch != marker.producer_epoch or producer.current_txn_first_offset < 0:
            return
        owner = marker.producer_id, marker.producer_epoch
        for process in self._processes:
            if isinstance(process, Producer) and process.producer == owner:
                # The open transaction may be the previous one, which is decided: its own marker has not arrived yet.
                for txn in {self._find_last_end(process.name): None, process.txn: None}:
                    if txn is not None:
                        self._history.note("cause", cause=LATE_MARKER, txn=txn, of=txn)

    def _last_begun(self, name: str) -> str | None:
        """Return the last transaction that a client has named, or None."""
        begun = (
            entry["txn"] for entry in reversed(self._history.entries) if entry["proc"] == name and entry.get("txn")
        )
        return next(begun, None)

    def _find_last_end(self, name: str) -> str | None:
        """Return the last transaction for which a client sent EndTxn, or None."""
        ended = (entry["txn"] for entry in reversed(self._history.entries) if _requests_end(entry, name))
        return next(ended, None)

    def replaced_producers(self) -> list[ProducerIdAndEpoch]:
        """Return producer id and epoch of each instance that a successor with the same producer id has replaced."""
        latest: dict[tuple[str, int], int] = {}
        old = []
        for entry in self._history.entries:
            if entry["type"] == "ok" and entry["f"] == "init" and entry["txn_id"] is not None:
                owner = entry["txn_id"], entry["pid"]
                before = latest.get(owner, entry["epoch"])
                if entry["epoch"] != before:
                    old.append(ProducerIdAndEpoch(entry["pid"], min(before, entry["epoch"])))
                latest[owner] = max(before, entry["epoch"])
        return old


def _requests_end(entry: Entry, name: str) -> bool:
    return bool(entry["f"] == "end" and entry["type"] == "invoke" and entry["proc"] == name)


def _producer_of(state: TransactionState) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(state.producer_id, state.producer_epoch)


def _state_of(shards: Iterable[Shard], transactional_id: str | None) -> TransactionState | None:
    for shard in shards:
        if transactional_id in shard.states:
            return shard.states[transactional_id]
    return None


class Generations:
    """The transaction version of the clients of each transactional id: mostly V2, if the cluster has it.

    While the level of the cluster does not change, all clients of an id use the same version. Otherwise a zombie that
    uses V2 would take the epoch of a successor that uses V1 for its own next one.
    """

    def __init__(self, level: Callable[[], int], random: Random, profile: Profile) -> None:
        self._level = level
        self._random = random
        self._profile = profile
        self._can: dict[str, bool] = {}

    def of(self, owner: str) -> wire.Generation:
        """Return the version that a client uses from now on.

        A client calls this when it is initialised and when it ends a transaction, as Kafka's `TransactionManager` does.
        """
        now, moves = self._level() >= V2, self._profile.level_changes[1] > 0
        if owner not in self._can:
            self._can[owner] = (now or moves) and self._random.random() < self._profile.v2_clients
        return wire.V2 if now and self._can[owner] else wire.V1
