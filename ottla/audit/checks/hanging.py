"""Open transactions beside the coordinator's view, and the verdict on each. pure

A transaction that its coordinator no longer holds open, or holds open beyond its timeout, hangs: it blocks
read_committed consumers (KIP-664, KIP-890).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from ottla.audit.checks import history
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.history import ONGOING, PREPARED, History
from ottla.audit.checks.words import count, who
from ottla.protocol.times import duration
from ottla.protocol.transaction_records import TransactionValue
from ottla.protocol.values import TopicPartition
from ottla.scan.fates import OpenTransaction
from ottla.scan.kernels import Longs

# `transaction.max.timeout.ms`, the default: nothing may stay open longer if the coordinator's log is not at hand.
LARGEST_TIMEOUT_MS = 900_000
# A coordinator looks for timeouts every 10 s (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
TIMEOUT_GRACE_MS = 20_000
# The files of a running broker are not read at one instant: what is younger may be known to one of them only.
SETTLED_MS = 60_000


class Verdict(StrEnum):
    """What an open transaction is. All are findings but IN_TIME, THEN (a cut by offsets, where nobody can tell) and
    BEHIND (it ended in a longer replica).
    """

    IN_TIME = "in time"
    OVERDUE = "overdue"
    FORGOTTEN = "forgotten"
    DECIDED = "decided"
    THEN = "open then"
    BEHIND = "replica behind"


class OpenFinding(NamedTuple):
    """An open transaction of a partition beside the coordinator's view. None: not known."""

    topic: str
    partition: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    first_offset: int
    records: int
    age_ms: int | None
    timeout_ms: int | None
    verdict: Verdict
    decided: str | None = None

    @property
    def is_hanging(self) -> bool:
        return self.verdict not in (Verdict.IN_TIME, Verdict.THEN, Verdict.BEHIND)

    @property
    def explained(self) -> str:
        """The verdict in words."""
        limit = f"its timeout of {duration(self.timeout_ms)}" if self.timeout_ms is not None else "the largest timeout"
        if self.verdict is Verdict.DECIDED:
            return f"decided: the coordinator completed it as {self.decided}, its marker never came here"
        if self.verdict is Verdict.OVERDUE:
            return f"overdue: open beyond {limit}"
        if self.verdict is Verdict.FORGOTTEN:
            return "forgotten: the coordinator holds no such transaction open"
        if self.verdict is Verdict.BEHIND:
            return "ended in a longer replica"
        return "open at the cut" if self.verdict is Verdict.THEN else f"in time: {limit}"

    @property
    def action(self) -> str:
        """What ends a hanging transaction, with Kafka's tools."""
        if not self.is_hanging:
            return "nothing to do"
        if self.verdict is Verdict.DECIDED and self.decided == "COMMIT":
            return "do not abort it, others have committed: restore this partition from a replica"
        place = f"--topic {self.topic} --partition {self.partition} --start-offset {self.first_offset}"
        return f"kafka-transactions.sh --bootstrap-server HOST:PORT abort {place}"


def judge(
    place: TopicPartition,
    found: OpenTransaction,
    known: History,
    undone: Mapping[int, Longs],
    now_ms: int,
    elsewhere: bool | None = None,
) -> OpenFinding:
    """The verdict on an open transaction.

    `undone`: decisions that lack their marker here, by producer id. `elsewhere`: whether other partitions of the
    transaction have a commit, None if they have no marker of it either.
    """
    transactional_id, value = known.state_of(found.producer_id)
    holds = value is not None and _holds_open(value, place, found)
    start_ms = value.start_ms if value is not None and holds and value.start_ms > 0 else found.start_ms
    age_ms = now_ms - start_ms if start_ms > 0 else None
    timeout_ms = value.timeout_ms if value is not None else None
    decision = undone.get(found.producer_id)
    verdict = _verdict(known, transactional_id, holds, age_ms, timeout_ms)
    decided = None
    if decision is not None and not holds and decision[history.EPOCH] >= found.producer_epoch:
        verdict, decided = Verdict.DECIDED, "COMMIT" if decision[history.KIND] else "ABORT"
    elif elsewhere is not None and not holds:
        verdict, decided = Verdict.DECIDED, "COMMIT" if elsewhere else "ABORT"
    return OpenFinding(
        *place,
        transactional_id or known.name_of(found.producer_id),
        found.producer_id,
        found.producer_epoch,
        found.first_offset,
        found.records,
        age_ms,
        timeout_ms,
        verdict,
        decided,
    )


def unjudged(place: TopicPartition, found: OpenTransaction, known: History) -> OpenFinding:
    """An open transaction of a log that was cut at an offset."""
    name = known.name_of(found.producer_id)
    return OpenFinding(*place, name, *found[:4], None, None, Verdict.THEN)


def behind(place: TopicPartition, found: OpenTransaction, known: History) -> OpenFinding:
    """An open transaction of a replica, of which a longer one has the end."""
    return unjudged(place, found, known)._replace(verdict=Verdict.BEHIND)


def findings(judged: Iterable[OpenFinding]) -> list[Finding]:
    """A finding for each that hangs."""
    return [_finding(one) for one in judged if one.is_hanging]


def _finding(one: OpenFinding) -> Finding:
    name = who(one.transactional_id, one.producer_id, one.producer_epoch)
    held = f"{count(one.records, 'record')} open" + (f" for {duration(one.age_ms)}" if one.age_ms is not None else "")
    return Finding(
        "hanging",
        "error",
        one.topic,
        one.partition,
        one.first_offset,
        one.producer_id,
        one.transactional_id,
        f"{one.explained}; {name}, {held}; read_committed consumers wait at this offset",
        one.action,
    )


def _verdict(
    known: History, transactional_id: str | None, holds: bool, age_ms: int | None, timeout_ms: int | None
) -> Verdict:
    if known.at_hand and not holds and (known.whole or transactional_id is not None):
        return Verdict.FORGOTTEN if age_ms is None or age_ms > SETTLED_MS else Verdict.IN_TIME
    limit_ms = (LARGEST_TIMEOUT_MS if timeout_ms is None else timeout_ms) + TIMEOUT_GRACE_MS
    return Verdict.OVERDUE if age_ms is None or age_ms > limit_ms else Verdict.IN_TIME


def _holds_open(value: TransactionValue, place: TopicPartition, found: OpenTransaction) -> bool:
    if value.status in PREPARED:
        return _lists(value, place)
    return (
        value.status == ONGOING
        and value.producer_epoch == found.producer_epoch
        and value.producer_id == found.producer_id
        and _lists(value, place)
    )


def _lists(value: TransactionValue, place: TopicPartition) -> bool:
    return any(name == place[0] and place[1] in numbers for name, numbers in value.partitions or ())
