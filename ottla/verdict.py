"""Verdict on an open transaction from the state of its partition and coordinator and from the clock; remedies. pure

A partition holds a transaction open from its first batch to its marker. During this time the coordinator that will
write the marker lists the partition in the transaction of the id with that producer id: as Ongoing, or as prepared
with the marker not yet written. If no coordinator does, no marker will be written: the transaction is forgotten, and
holds the last stable offset until an administrator aborts it. An abort in one partition of a transaction that its
coordinator still holds tears it. So FORGOTTEN needs proof that every transactional id was seen; a reason to doubt that
(`gaps`) makes the verdict UNKNOWN, which has no remedy. Rows: docs/decision-tables.md, "The verdict on an open
transaction".
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.printable import shell_line
from ottla.protocol.times import duration
from ottla.protocol.values import NEVER_TIMES_OUT_MS, TopicPartition

NEVER_TIMES_OUT: Final = "never times out (two-phase commit)"
OVERDUE_AFTER_MS: Final = 20_000
"""Two rounds of `transaction.abort.timed.out.transaction.cleanup.interval.ms`: a coordinator needs up to one."""
SKEW_MS: Final = 5_000
"""Difference between the clocks of two machines that is not reported."""


class Standing(StrEnum):
    """Verdict on an open transaction."""

    IN_TIME = "in time"
    OVERDUE = "overdue"
    ENDING = "ending"
    DECIDED = "decided"
    FORGOTTEN = "forgotten"
    UNKNOWN = "unknown"

    @property
    def is_abandoned(self) -> bool:
        """Return whether no coordinator will end the transaction in this partition."""
        return self in (Standing.FORGOTTEN, Standing.DECIDED)


class OpenTransaction(NamedTuple):
    """A row of DescribeProducers with an open transaction. `coordinator_epoch` is -1 before the first marker."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


class KnownTransaction(NamedTuple):
    """State of a transactional id: a row of DescribeTransactions, or its last record in `__transaction_state`.

    `coordinator` is a broker id in the first case. `start_ms` is -1 if the id never began a transaction.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int
    partitions: frozenset[TopicPartition]

    @property
    def never_times_out(self) -> bool:
        """Return whether only its producer ends it: it is part of a transaction of several systems (KIP-939)."""
        return self.timeout_ms == NEVER_TIMES_OUT_MS


class Verdict(NamedTuple):
    """Verdict and its reason. `known` is the id with the producer id, also if the transaction is forgotten."""

    standing: Standing
    reason: str
    known: KnownTransaction | None = None

    @property
    def needs_proof(self) -> bool:
        """Return whether missing states are the reason, so that the caller must read the partition again afterwards."""
        return self.standing.is_abandoned or (self.standing is Standing.UNKNOWN and not self.is_clock)

    @property
    def is_clock(self) -> bool:
        """Return whether the coordinator holds the transaction open, and only the clocks make its age uncertain."""
        return self.standing is Standing.UNKNOWN and self.known is not None


OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of a coordinator in which a transaction is open."""
_PREPARED = frozenset(OPEN_STATES[1:])


def judge(found: OpenTransaction, known: Sequence[KnownTransaction], now_ms: int, gaps: Sequence[str]) -> Verdict:
    """Return the verdict.

    `known`: the states that coordinators have for this producer id. `gaps`: reasons why a coordinator may hold the
    transaction open unseen: a broker that does not answer, a missing right, a missing log.
    """
    verdicts = [_compare(found, each, now_ms) for each in known if each.producer_id == found.producer_id]
    held = [verdict for verdict in verdicts if verdict.standing is not Standing.FORGOTTEN]
    if held:
        return held[0]
    if gaps:
        return Verdict(Standing.UNKNOWN, "; ".join(gaps))
    if verdicts:
        return verdicts[0]
    return Verdict(Standing.FORGOTTEN, f"no transactional id has producer id {found.producer_id}")


def _compare(found: OpenTransaction, known: KnownTransaction, now_ms: int) -> Verdict:
    prepared = known.state in _PREPARED
    if known.state == "CompleteCommit" and _is_of(found, known.epoch):
        return Verdict(
            Standing.DECIDED,
            "its transactional id has committed it, and its marker never came to this partition",
            known,
        )
    if found.place not in known.partitions or not (prepared or known.state == "Ongoing"):
        there = "without this partition" if known.partitions else "with nothing left to mark"
        return Verdict(Standing.FORGOTTEN, f"its transactional id is {known.state} {there}", known)
    if found.epoch > known.epoch:
        # A leader refuses the marker of an older epoch (ProducerAppendInfo.checkProducerEpoch).
        return Verdict(Standing.FORGOTTEN, f"its transactional id is at epoch {known.epoch} only", known)
    if prepared:
        return Verdict(
            Standing.ENDING, "its marker is on its way; the coordinator repeats it until it is written", known
        )
    if found.epoch < known.epoch:
        # All markers of an earlier epoch were written before the later transaction began.
        return Verdict(
            Standing.FORGOTTEN, f"its transactional id is at a later transaction, epoch {known.epoch}", known
        )
    return judge_time(known, now_ms)


def _is_of(found: OpenTransaction, decided_epoch: int) -> bool:
    """Return whether a decision of this epoch was on this transaction, and not on the previous one.

    With transactions V2, the decision has the epoch after that of the data, and later data have this epoch or a higher
    one. With V1, both have the same epoch: the marker is missing if the partition never had one of the producer.
    """
    return decided_epoch == found.epoch + 1 or (decided_epoch == found.epoch and found.coordinator_epoch < 0)


def without_clock(verdict: Verdict) -> Verdict:
    """Return the verdict on an overdue transaction that is in time by its coordinator's clock."""
    reason = "in time by the clock of its coordinator, overdue by the one of this machine"
    return verdict._replace(standing=Standing.IN_TIME, reason=reason)


def judge_time(known: KnownTransaction, now_ms: int) -> Verdict:
    """Return the verdict on a transaction that its coordinator holds Ongoing."""
    left_ms = time_left_ms(known, now_ms)
    if known.start_ms > now_ms + SKEW_MS:
        ahead = duration(known.start_ms - now_ms)
        return Verdict(
            Standing.UNKNOWN,
            f"its coordinator holds it open since a time that is {ahead} in the future of this machine's clock",
            known,
        )
    if known.never_times_out:
        return Verdict(Standing.IN_TIME, f"it {NEVER_TIMES_OUT}: its producer ends it", known)
    if left_ms is None or left_ms >= 0:
        return Verdict(Standing.IN_TIME, "its producer has time left to end it", known)
    if left_ms >= -OVERDUE_AFTER_MS:
        return Verdict(Standing.IN_TIME, "its timeout has passed; its coordinator aborts it at its next check", known)
    return Verdict(Standing.OVERDUE, "its timeout has passed; its coordinator holds it open and has to abort it", known)


def age_ms(found: OpenTransaction, verdict: Verdict, now_ms: int) -> int:
    """Return the time since the coordinator's start of the transaction, or since its last batch if it is forgotten."""
    known = verdict.known
    if known is None or verdict.standing.is_abandoned or known.start_ms < 0:
        return max(0, now_ms - found.last_timestamp_ms)
    return max(0, now_ms - known.start_ms)


def time_left_ms(known: KnownTransaction, now_ms: int) -> int | None:
    """Return the time until the coordinator may abort it, negative after that; None unless it is Ongoing and times
    out."""
    if known.state != "Ongoing" or known.start_ms < 0 or known.never_times_out:
        return None
    return known.start_ms + known.timeout_ms - now_ms


RESTORE: Final = "do not abort it, others have committed: restore this partition from a replica"


class Remedy(NamedTuple):
    """Way to end an open transaction: advice, and a command if one is needed."""

    advice: str
    command: str | None = None


def remedies(
    found: OpenTransaction, verdict: Verdict, bootstrap: str, now_ms: int, properties: str = ""
) -> list[Remedy]:
    """Return the ways to end the transaction, the best first. `properties`: the login for Kafka's tools."""
    if verdict.is_clock:
        return [Remedy("set the clock of this machine, or of the coordinator, and ask again")]
    if verdict.standing is Standing.UNKNOWN:
        return [Remedy(f"find out first, and ask again: {verdict.reason}")]
    if verdict.standing is Standing.FORGOTTEN or verdict.known is None:
        return abort_commands(found, bootstrap, properties)
    if verdict.standing is Standing.DECIDED:
        return [Remedy(RESTORE)]
    if verdict.standing is Standing.ENDING:
        return [Remedy("wait: its outcome is decided; if it stays, the leaders of its partitions refuse the marker")]
    fence = _fencing_commands(verdict.known.transactional_id, bootstrap, properties)
    left_ms = time_left_ms(verdict.known, now_ms)
    if verdict.known.never_times_out:
        return [
            Remedy(f"wait: its producer ends it, it {NEVER_TIMES_OUT}; do not fence it if others commit"),
            fence[-1],
        ]
    if left_ms is None or left_ms < 0:
        wait = Remedy("wait: the coordinator checks every transaction.abort.timed.out.transaction.cleanup.interval.ms")
    else:
        wait = Remedy(f"wait: its producer ends it, or the coordinator aborts it in {duration(left_ms)}")
    return [wait, *fence]


def abort_commands(found: OpenTransaction, bootstrap: str, properties: str = "") -> list[Remedy]:
    """Return the commands that write an abort marker to this partition: for a forgotten transaction only."""
    ottla = _ottla_txn("abort", bootstrap, properties, found.topic, str(found.partition), str(found.start_offset))
    java = abort_command(found.place, found.start_offset, bootstrap, properties)
    return [
        Remedy("abort it on this partition", ottla),
        Remedy("or with Kafka's tool", java),
    ]


def marker_epoch(found: OpenTransaction) -> int:
    """Return the coordinator epoch for an abort marker that is written by hand.

    A leader refuses a marker with a lower epoch than the last marker's. Before the first marker it is 0: Kafka's tool
    also replaces -1 by 0, and no coordinator has a lower epoch.
    """
    return max(0, found.coordinator_epoch)


SOME_BROKERS: Final = "HOST:PORT"
"""Stands for the bootstrap brokers in a command, if they are not known."""


def abort_command(place: TopicPartition, start_offset: int, bootstrap: str = SOME_BROKERS, properties: str = "") -> str:
    """Return the command of Kafka's tool that aborts a forgotten transaction in its partition."""
    java = [*_kafka_transactions(bootstrap, properties), "abort", "--topic", place[0]]
    return shell_line([*java, "--partition", str(place[1]), "--start-offset", str(start_offset)])


def why_command(place: TopicPartition, bootstrap: str = SOME_BROKERS) -> str:
    """Return the command that explains a partition's open transactions with requests to the brokers."""
    return _ottla_txn("why", bootstrap, "", place[0], str(place[1]))


def _ottla_txn(command: str, bootstrap: str, properties: str, *arguments: str) -> str:
    """Return a command line of `ottla txn`. A name that begins with a hyphen is no option after "--"."""
    login = ["-b", bootstrap, *(["--command-config", properties] if properties else [])]
    if any(argument.startswith("-") for argument in arguments):
        return shell_line(["ottla", "txn", command, *login, "--", *arguments])
    return shell_line(["ottla", "txn", command, *arguments, *login])


def _kafka_transactions(bootstrap: str, properties: str) -> list[str]:
    login = ["--command-config", properties] if properties else []
    return ["kafka-transactions.sh", "--bootstrap-server", bootstrap, *login]


def _fencing_commands(transactional_id: str, bootstrap: str, properties: str) -> list[Remedy]:
    """Return commands that send InitProducerId: the coordinator aborts the transaction everywhere."""
    ottla = _ottla_txn("fence", bootstrap, properties, transactional_id)
    java = [*_kafka_transactions(bootstrap, properties), "forceTerminateTransaction"]
    java += ["--transactionalId", transactional_id]
    return [
        Remedy("or fence its producer, which aborts the transaction everywhere", ottla),
        Remedy("or fence it with Kafka's tool (4.1 or later)", shell_line(java)),
    ]


def by_producer(known: Iterable[KnownTransaction]) -> dict[int, list[KnownTransaction]]:
    """Group the states by producer id. Two ids share one only if the log was written by hand."""
    found: dict[int, list[KnownTransaction]] = {}
    for each in known:
        found.setdefault(each.producer_id, []).append(each)
    return found
