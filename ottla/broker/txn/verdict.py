"""Open transactions and what becomes of them: what a partition knows beside what a coordinator knows. pure

A partition holds a transaction open from its first batch to its marker. All that time a coordinator that will write the
marker has the partition in the transaction of the id with that producer id: as Ongoing, or as prepared with the marker
still to be written. Where it has not, nobody will end the transaction: it is forgotten, and holds the last stable
offset until an administrator aborts it. `FindHangingTransactionsCommand` of Kafka's `TransactionsCommand` asks the
same, but whatever the epoch, and believes the brokers that answered to be all that there are.
"""

import json
import shlex
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from ottla.protocol.times import duration
from ottla.protocol.values import TopicPartition


class Standing(StrEnum):
    """How an open transaction stands with its coordinator."""

    IN_TIME = "in time"
    OVERDUE = "overdue"
    ENDING = "ending"
    FORGOTTEN = "forgotten"
    UNKNOWN = "unknown"


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
    """A row of DescribeTransactions, from the broker that coordinates it. `start_ms` is -1 if it never began one."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int
    partitions: frozenset[TopicPartition]


class Verdict(NamedTuple):
    """`known` is the id with the producer id, also where the transaction is forgotten."""

    standing: Standing
    reason: str
    known: KnownTransaction | None = None


_PREPARED = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def judge(found: OpenTransaction, known: Sequence[KnownTransaction], now_ms: int, gaps: Sequence[str]) -> Verdict:
    """`known`: what the coordinators have for this producer id; `gaps`: why they might have more than they said."""
    verdicts = [_beside(found, each, now_ms) for each in known if each.producer_id == found.producer_id]
    alive = [verdict for verdict in verdicts if verdict.standing is not Standing.FORGOTTEN]
    if alive:
        return alive[0]
    if gaps:
        return Verdict(Standing.UNKNOWN, "; ".join(gaps))
    if verdicts:
        return verdicts[0]
    return Verdict(Standing.FORGOTTEN, f"no transactional id has producer id {found.producer_id}")


def _beside(found: OpenTransaction, known: KnownTransaction, now_ms: int) -> Verdict:
    prepared = known.state in _PREPARED
    if found.place not in known.partitions or not (prepared or known.state == "Ongoing"):
        there = "without this partition" if known.partitions else "with nothing left to mark"
        return Verdict(Standing.FORGOTTEN, f"its transactional id is {known.state} {there}", known)
    if found.epoch > known.epoch:
        # The marker of an older epoch is refused (ProducerAppendInfo.checkProducerEpoch).
        return Verdict(Standing.FORGOTTEN, f"its transactional id is at epoch {known.epoch} only", known)
    if prepared:
        return Verdict(
            Standing.ENDING, "its marker is on its way; the coordinator repeats it until it is written", known
        )
    if found.epoch < known.epoch:
        # Transactions V2: each epoch is one transaction; a later one has begun, so this one's markers were all written.
        return Verdict(
            Standing.FORGOTTEN, f"its transactional id is at a later transaction, epoch {known.epoch}", known
        )
    left_ms = time_left_ms(known, now_ms)
    if left_ms is not None and left_ms < 0:
        return Verdict(Standing.OVERDUE, "its time is over; the coordinator aborts it when it looks next", known)
    return Verdict(Standing.IN_TIME, "its producer has time left to end it", known)


def age_ms(found: OpenTransaction, verdict: Verdict, now_ms: int) -> int:
    """Since the transaction began, as its coordinator says; since its last batch here where that has forgotten it."""
    known = verdict.known
    if known is None or verdict.standing is Standing.FORGOTTEN or known.start_ms < 0:
        return max(0, now_ms - found.last_timestamp_ms)
    return max(0, now_ms - known.start_ms)


def time_left_ms(known: KnownTransaction, now_ms: int) -> int | None:
    """Until the coordinator may abort it, below zero when that is overdue; None for one that is not Ongoing."""
    if known.state != "Ongoing" or known.start_ms < 0:
        return None
    return known.start_ms + known.timeout_ms - now_ms


class Remedy(NamedTuple):
    """What ends an open transaction: in words, and as a command where one is needed."""

    advice: str
    command: str | None = None


def remedies(found: OpenTransaction, verdict: Verdict, bootstrap: str, now_ms: int) -> list[Remedy]:
    """The ways to end it, the best first."""
    if verdict.standing is Standing.UNKNOWN:
        return [Remedy("ask again when every coordinator answers; aborting a transaction that is alive would tear it")]
    if verdict.standing is Standing.FORGOTTEN or verdict.known is None:
        return abort_commands(found, bootstrap)
    if verdict.standing is Standing.ENDING:
        return [Remedy("wait: its outcome is decided; if it stays, the leaders of its partitions refuse the marker")]
    left_ms = time_left_ms(verdict.known, now_ms)
    if verdict.standing is Standing.OVERDUE or left_ms is None:
        wait = Remedy("wait: the coordinator looks every transaction.abort.timed.out.transaction.cleanup.interval.ms")
    else:
        wait = Remedy(f"wait: its producer ends it, or the coordinator aborts it in {duration(left_ms)}")
    return [wait, *_fencing_commands(verdict.known.transactional_id, bootstrap)]


def abort_commands(found: OpenTransaction, bootstrap: str) -> list[Remedy]:
    """An abort marker for this partition, which is right only where the coordinator has forgotten the transaction.

    A marker of a lower coordinator epoch than the last is refused. Before the first it is 0, which is what Kafka's tool
    makes of -1 and what no coordinator is below.
    """
    epoch = max(0, found.coordinator_epoch)
    python = ["kafka-python", "admin"]
    for address in bootstrap.split(","):
        python += ["-b", address]
    python += ["transactions", "abort", "--topic", found.topic, "--partition", str(found.partition)]
    python += ["--producer-id", str(found.producer_id), "--producer-epoch", str(found.epoch)]
    python += ["--coordinator-epoch", str(epoch)]
    java = ["kafka-transactions.sh", "--bootstrap-server", bootstrap, "abort", "--topic", found.topic]
    java += ["--partition", str(found.partition), "--start-offset", str(found.start_offset)]
    return [Remedy("abort it on this partition", shlex.join(python)), Remedy("or with Kafka's tool", shlex.join(java))]


def _fencing_commands(transactional_id: str, bootstrap: str) -> list[Remedy]:
    """InitProducerId for its id: the coordinator aborts the transaction everywhere and fences its producer.

    kafka-python's command line cannot send one, so its producer does.
    """
    name = json.dumps(transactional_id, ensure_ascii=False)  # no single quotes, which the shell's quoting doubles
    settings = f'bootstrap_servers="{bootstrap}", transactional_id={name}'
    script = f"from kafka import KafkaProducer; KafkaProducer({settings}).init_transactions()"
    java = ["kafka-transactions.sh", "--bootstrap-server", bootstrap, "forceTerminateTransaction"]
    java += ["--transactionalId", transactional_id]
    return [
        Remedy("or fence its producer, which aborts the transaction everywhere", shlex.join(["python", "-c", script])),
        Remedy("or fence it with Kafka's tool (4.1 or later)", shlex.join(java)),
    ]


def by_producer(known: Iterable[KnownTransaction]) -> dict[int, list[KnownTransaction]]:
    """What the coordinators know, by producer id: more than one id only if someone wrote the log by hand."""
    found: dict[int, list[KnownTransaction]] = {}
    for each in known:
        found.setdefault(each.producer_id, []).append(each)
    return found
