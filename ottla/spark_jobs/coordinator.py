"""What the transaction coordinator's log says about open transactions, and the verdict on each. free

`__transaction_state` is compacted, so a transactional id's last record is its state. A transaction that the coordinator
no longer holds open, or holds open beyond its timeout, hangs: it blocks read_committed consumers (KIP-664, KIP-890).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from ottla.protocol.state_records import (
    TransactionValue,
    UnknownVersion,
    decode_transaction_value,
    read_transaction_key,
)
from ottla.spark_jobs.fates import OpenTransaction

TOPIC = "__transaction_state"

ONGOING, PREPARE_COMMIT, PREPARE_ABORT = 1, 2, 3

# `transaction.max.timeout.ms`, the default: nothing may stay open longer if the coordinator's log is not at hand.
LARGEST_TIMEOUT_MS = 900_000
# A coordinator looks for timeouts every 10 s (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
TIMEOUT_GRACE_MS = 20_000
# The files of a running broker are not read at one instant: what is younger may be known to one of them only.
SETTLED_MS = 60_000


class Verdict(StrEnum):
    """What an open transaction is. All but IN_TIME are findings."""

    IN_TIME = "in time"
    OVERDUE = "overdue"
    FORGOTTEN = "forgotten"


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

    @property
    def is_hanging(self) -> bool:
        return self.verdict is not Verdict.IN_TIME

    @property
    def action(self) -> str:
        """The command of Kafka's tools that ends a hanging transaction."""
        place = f"--topic {self.topic} --partition {self.partition} --start-offset {self.first_offset}"
        return f"kafka-transactions.sh --bootstrap-server HOST:PORT abort {place}"


# Last record of each key: key -> value, None for a tombstone.
LastRecords = dict[bytes, bytes | None]


class Coordinator:
    """The states by producer id. `at_hand` is False where the directory has no `__transaction_state`."""

    def __init__(self, records: Mapping[bytes, bytes | None], *, at_hand: bool) -> None:
        self.at_hand = at_hand
        self._by_producer: dict[int, tuple[str, TransactionValue]] = {}
        for transactional_id, value in _states(records):
            if value.previous_producer_id >= 0:
                self._by_producer.setdefault(value.previous_producer_id, (transactional_id, value))
            self._by_producer[value.producer_id] = transactional_id, value

    def judge(self, topic: str, partition: int, found: OpenTransaction, now_ms: int) -> OpenFinding:
        """The verdict on an open transaction found in `topic`-`partition`."""
        transactional_id, value = self._by_producer.get(found.producer_id, (None, None))
        holds = value is not None and _holds_open(value, topic, partition, found)
        start_ms = value.start_ms if value is not None and holds and value.start_ms > 0 else found.start_ms
        age_ms = now_ms - start_ms if start_ms > 0 else None
        timeout_ms = value.timeout_ms if value is not None else None
        return OpenFinding(
            topic,
            partition,
            transactional_id,
            found.producer_id,
            found.producer_epoch,
            found.first_offset,
            found.records,
            age_ms,
            timeout_ms,
            self._verdict(holds, age_ms, timeout_ms),
        )

    def _verdict(self, holds: bool, age_ms: int | None, timeout_ms: int | None) -> Verdict:
        if self.at_hand and not holds:
            return Verdict.FORGOTTEN if age_ms is None or age_ms > SETTLED_MS else Verdict.IN_TIME
        limit_ms = (LARGEST_TIMEOUT_MS if timeout_ms is None else timeout_ms) + TIMEOUT_GRACE_MS
        return Verdict.OVERDUE if age_ms is None or age_ms > limit_ms else Verdict.IN_TIME


def _states(records: Mapping[bytes, bytes | None]) -> Iterable[tuple[str, TransactionValue]]:
    """Transactional ids and states. Unknown types and versions are skipped, as Kafka's coordinator skips them."""
    for key, content in records.items():
        transactional_id = read_transaction_key(key)
        if transactional_id is None or content is None:
            continue
        try:
            yield transactional_id, decode_transaction_value(content)
        except UnknownVersion:
            continue


def _holds_open(value: TransactionValue, topic: str, partition: int, found: OpenTransaction) -> bool:
    if value.status in (PREPARE_COMMIT, PREPARE_ABORT):
        return _lists(value, topic, partition)
    return (
        value.status == ONGOING
        and value.producer_epoch == found.producer_epoch
        and value.producer_id == found.producer_id
        and _lists(value, topic, partition)
    )


def _lists(value: TransactionValue, topic: str, partition: int) -> bool:
    return any(name == topic and partition in numbers for name, numbers in value.partitions or ())
