"""Verdicts on open transactions from files: `ottla.verdict` on the coordinator's last records. pure

A transaction hangs if its coordinator no longer holds it open, or holds it open beyond its timeout. It then blocks
read_committed consumers (KIP-664, KIP-890). Without the coordinator's records, no verdict is possible.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from ottla import verdict
from ottla.audit.checks import history
from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.history import NEVER, History
from ottla.audit.checks.words import KINDS, count, name_producer
from ottla.protocol.internal_topics.transaction_records import TransactionValue
from ottla.protocol.times import duration
from ottla.protocol.values import NEVER_TIMES_OUT_MS, TopicPartition
from ottla.scan.compiled.kernels import Longs
from ottla.scan.fates import OpenTransaction
from ottla.verdict import SKEW_MS, KnownTransaction, Standing

# Files that change during the audit may disagree, so transactions younger than this get no verdict.
SETTLED_MS = 60_000
CHANGED: Final = "its coordinators' log may be older than it: audit again (pull a copy again first)"


class Verdict(StrEnum):
    """Verdict on an open transaction.

    DECIDED, OVERDUE and FORGOTTEN are findings. THEN: the log was cut at an offset, so no time is known.
    BEHIND: the transaction ended in a longer replica.
    """

    IN_TIME = "in time"
    OVERDUE = "overdue"
    FORGOTTEN = "forgotten"
    DECIDED = "decided"
    ENDING = "ending"
    UNVERIFIABLE = "unverifiable"
    THEN = "open then"
    BEHIND = "replica behind"


HANGING: Final = frozenset({Verdict.OVERDUE, Verdict.FORGOTTEN, Verdict.DECIDED})
# A coordinator epoch. Its value does not matter: the markers in the files are compared with the decisions.
_SOME_MARKER: Final = 0


class OpenFinding(NamedTuple):
    """An open transaction of a partition and the verdict on it. None: not known.

    `age_ms` is negative if the transaction began in the future of the audit's clock. `reason` is the reason for the
    verdict.
    """

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
    reason: str = ""
    start_ms: int | None = None

    @property
    def is_hanging(self) -> bool:
        return self.verdict in HANGING

    @property
    def is_ahead(self) -> bool:
        """Return whether the transaction began in the future of the audit's clock, so that its age is unknown."""
        return self.age_ms is not None and self.age_ms < -SKEW_MS

    @property
    def explained(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.IN_TIME and self.timeout_ms == NEVER_TIMES_OUT_MS:
            return f"in time: it {verdict.NEVER_TIMES_OUT}"
        limit = f"its timeout of {duration(self.timeout_ms)}" if self.timeout_ms is not None else "its timeout"
        if self.verdict is Verdict.DECIDED:
            return f"decided: the coordinator completed it as {self.decided}, but its marker is missing here"
        if self.verdict is Verdict.OVERDUE:
            return f"overdue: open longer than {limit}; its coordinator has to abort it"
        if self.verdict is Verdict.FORGOTTEN:
            return "forgotten: the coordinator has no such open transaction"
        if self.verdict is Verdict.BEHIND:
            return "ended in a longer replica"
        if self.verdict is Verdict.UNVERIFIABLE:
            return f"unverifiable: {self.reason}"
        if self.verdict is Verdict.ENDING:
            return "ending: its outcome is decided, its marker is not written yet"
        return "open at the offsets of --as-of" if self.verdict is Verdict.THEN else f"in time: {limit}"

    @property
    def action(self) -> str:
        """Action that ends the transaction, or finds out more.

        A coordinator ends an overdue transaction everywhere; an administrator's abort would tear it.
        """
        place = self.topic, self.partition
        if self.verdict is Verdict.DECIDED and self.decided == "COMMIT":
            return verdict.RESTORE
        if self.verdict in (Verdict.DECIDED, Verdict.FORGOTTEN):
            return verdict.abort_command(place, self.first_offset)
        if self.verdict in (Verdict.OVERDUE, Verdict.UNVERIFIABLE):
            return verdict.why_command(place)
        return "nothing to do"


class Present(NamedTuple):
    """The transactions that partitions hold open now, and the coordinators' verdicts by place and first offset.

    `gaps`: the questions without an answer. `now_ms`: the time of the answers, 0 if there are none.
    """

    opened: tuple[verdict.OpenTransaction, ...] = ()
    verdicts: Mapping[tuple[TopicPartition, int], verdict.Verdict] = {}
    gaps: tuple[str, ...] = ()
    now_ms: int = 0

    @property
    def by_place(self) -> dict[TopicPartition, list[verdict.OpenTransaction]]:
        """The open transactions of each partition that has some."""
        found: dict[TopicPartition, list[verdict.OpenTransaction]] = {}
        for one in self.opened:
            found.setdefault(one.place, []).append(one)
        return found

    @property
    def doubts(self) -> list[str]:
        """The reasons why this does not show every open transaction with a verdict."""
        unknown = [one.reason for one in self.verdicts.values() if one.standing is Standing.UNKNOWN]
        return [*dict.fromkeys((*self.gaps, *unknown))]

    def of(self, place: TopicPartition, found: OpenTransaction) -> verdict.Verdict:
        """Return the verdict on a transaction that was open when its partition was read."""
        if (place, found.first_offset) in self.verdicts:
            return self.verdicts[place, found.first_offset]
        if self.gaps:
            return verdict.Verdict(Standing.UNKNOWN, "; ".join(self.gaps))
        return verdict.Verdict(Standing.ENDING, "it ended while the partition was read")


def judge(
    place: TopicPartition,
    found: OpenTransaction,
    known: History,
    undone: Mapping[int, Longs],
    now_ms: int,
    elsewhere: bool | None = None,
    settled_ms: int = NEVER,
) -> OpenFinding:
    """Return the verdict on an open transaction by the coordinators' records.

    `undone`: decisions that lack their marker here, by producer id. `elsewhere`: whether other partitions of the
    transaction have a commit; None if they have no marker either. `settled_ms`: a transaction that began later gets no
    verdict from missing coordinator records; NEVER if the files did not change while they were read.
    """
    transactional_id, value = known.state_of(found.producer_id)
    opened = verdict.OpenTransaction(
        *place, found.producer_id, found.producer_epoch, _SOME_MARKER, found.first_offset, found.start_ms
    )
    states = [] if value is None or transactional_id is None else [known_transaction(transactional_id, value)]
    doubts = known.gaps if transactional_id is None else known.doubts(transactional_id)
    result = verdict.judge(opened, states, now_ms, doubts)
    is_held = result.known is not None and not result.standing.is_abandoned
    start_ms = value.start_ms if value is not None and is_held and value.start_ms > 0 else found.start_ms
    one = OpenFinding(
        *place,
        transactional_id or known.name_of(found.producer_id),
        *found[:4],
        now_ms - start_ms if start_ms > 0 else None,
        value.timeout_ms if value is not None else None,
        Verdict.UNVERIFIABLE if result.standing is Standing.UNKNOWN else Verdict(result.standing),
        "COMMIT" if result.standing is Standing.DECIDED else None,
        result.reason,
        start_ms if start_ms > 0 else None,
    )
    if is_held and doubts:
        return one._replace(verdict=Verdict.UNVERIFIABLE, reason="; ".join(doubts))
    if not is_held and (decided := _find_decision(found, undone, elsewhere)):
        return one._replace(verdict=Verdict.DECIDED, decided=decided)
    if one.verdict in (Verdict.FORGOTTEN, Verdict.DECIDED) and settled_ms != NEVER:
        moved_ms = max(found.start_ms, -1 if value is None else value.last_update_ms)
        if found.start_ms <= 0 or moved_ms > settled_ms:
            return one._replace(verdict=Verdict.UNVERIFIABLE, decided=None, reason=CHANGED)
    return one


def judge_present(
    place: TopicPartition,
    found: OpenTransaction,
    known: History,
    undone: Mapping[int, Longs],
    now_ms: int,
    elsewhere: bool | None,
    answered: verdict.Verdict,
) -> OpenFinding:
    """Return the verdict on an open transaction by what the coordinators answered about it."""
    holder = answered.known
    is_held = holder is not None and not answered.standing.is_abandoned
    start_ms = holder.start_ms if holder is not None and is_held and holder.start_ms > 0 else found.start_ms
    one = OpenFinding(
        *place,
        holder.transactional_id if holder is not None else known.name_of(found.producer_id),
        *found[:4],
        now_ms - start_ms if start_ms > 0 else None,
        holder.timeout_ms if holder is not None else None,
        Verdict.UNVERIFIABLE if answered.standing is Standing.UNKNOWN else Verdict(answered.standing),
        "COMMIT" if answered.standing is Standing.DECIDED else None,
        answered.reason,
        start_ms if start_ms > 0 else None,
    )
    if answered.standing.is_abandoned and (decided := _find_decision(found, undone, elsewhere)):
        return one._replace(verdict=Verdict.DECIDED, decided=decided)
    return one


def _find_decision(found: OpenTransaction, undone: Mapping[int, Longs], elsewhere: bool | None) -> str | None:
    """Return the decision whose marker is missing here, by the coordinator's log or by other partitions; else None."""
    decision = undone.get(found.producer_id)
    if decision is not None and decision[history.EPOCH] >= found.producer_epoch:
        return KINDS[decision[history.KIND]]
    return None if elsewhere is None else KINDS[elsewhere]


def find_undone(found: OpenTransaction, decision: Longs, last_marker_ms: int) -> Mapping[int, Longs]:
    """Return the newest decision by its producer id if it is certainly on this transaction, whose marker is missing.

    A decision with a newer epoch can only belong to this transaction. A decision with the epoch of the data may belong
    to the previous transaction, unless the producer's last marker is older than it. `last_marker_ms`: -1 if unknown.
    """
    is_newer = decision[history.EPOCH] > found.producer_epoch
    is_same = decision[history.EPOCH] == found.producer_epoch
    is_later = last_marker_ms >= 0 and decision[history.UPDATED_MS] > last_marker_ms + SKEW_MS
    return {found.producer_id: decision} if is_newer or (is_same and is_later) else {}


def known_transaction(transactional_id: str, value: TransactionValue) -> KnownTransaction:
    """Return the last record of a transactional id in the form that `ottla.verdict` takes."""
    partitions = frozenset((topic, number) for topic, numbers in value.partitions or () for number in numbers)
    return KnownTransaction(
        *(transactional_id, -1, history.STATE_NAMES.get(value.status, "Unknown"), value.producer_id),
        *(value.producer_epoch, value.timeout_ms, value.start_ms, partitions),
    )


def omit_verdict(place: TopicPartition, found: OpenTransaction, known: History) -> OpenFinding:
    """Return the verdict on an open transaction of a log that was cut at an offset."""
    name = known.name_of(found.producer_id)
    return OpenFinding(*place, name, *found[:4], None, None, Verdict.THEN)


def behind(place: TopicPartition, found: OpenTransaction, known: History) -> OpenFinding:
    """Return the verdict on an open transaction of a replica if it ended in a longer replica."""
    return omit_verdict(place, found, known)._replace(verdict=Verdict.BEHIND)


def findings(checked: Iterable[OpenFinding]) -> list[Finding]:
    """Return errors on hanging transactions, warnings on future ones, information on those without a verdict."""
    found = []
    for one in checked:
        if one.is_hanging:
            found.append(_finding(one, "error", one.explained, one.action))
        elif one.verdict is Verdict.UNVERIFIABLE and not one.is_ahead:
            found.append(_finding(one, "info", one.explained, one.action))
        if one.is_ahead and one.verdict not in (Verdict.DECIDED, Verdict.FORGOTTEN):
            found.append(_finding(one, "warning", _AHEAD, verdict.why_command((one.topic, one.partition))))
    return found


_AHEAD: Final = (
    "a clock is wrong: the transaction began in the future, so its age is unknown; correct the clock of this machine, "
    "or of the machine that wrote the timestamp"
)


def _finding(one: OpenFinding, severity: Severity, message: str, action: str) -> Finding:
    name = name_producer(one.transactional_id, one.producer_id, one.producer_epoch)
    is_known = one.age_ms is not None and one.age_ms >= 0
    held = (f"{count(one.records, 'record')} open" if one.records else "open") + (
        f" for {duration(one.age_ms)}" if is_known else ""
    )
    return Finding(
        "hanging",
        severity,
        one.topic,
        one.partition,
        one.first_offset,
        one.producer_id,
        one.transactional_id,
        f"{message}; {name}, {held}; read_committed consumers wait at this offset",
        action,
    )
