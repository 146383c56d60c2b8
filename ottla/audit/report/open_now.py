"""Open transactions of an audit: their ages, the offsets that each withholds, and the readers that wait. pure"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla.audit.audited import Audit, PartitionAudit
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.hanging import OpenFinding, Verdict
from ottla.audit.checks.words import count, name_producer
from ottla.protocol.times import utc
from ottla.verdict import SOME_BROKERS, why_command

# Readers of committed records wait in other partitions. In this one, groups wait for their offsets.
_OFFSETS = "__consumer_offsets"


class OpenRow(NamedTuple):
    """An open transaction in one partition.

    `withheld`: the offsets from its first one to that of the next open transaction, or to the log end, so that the rows
    of a partition add up; 0 where a longer replica has the end.
    """

    open: OpenFinding
    since_ms: int | None
    withheld: int
    bootstrap: str

    @property
    def since(self) -> str:
        return "unknown" if self.since_ms is None else utc(self.since_ms)

    @property
    def command(self) -> str:
        """A command line that asks the brokers for the transaction that blocks this partition."""
        return why_command((self.open.topic, self.open.partition)).replace(SOME_BROKERS, self.bootstrap)


class Waiting(NamedTuple):
    """Counts of open transactions, and of partitions and offsets that wait for them. Each counts once."""

    transactions: int
    partitions: int
    offsets: int
    group_partitions: int


def open_rows(audit: Audit) -> list[OpenRow]:
    """Return a row for each open transaction and partition, in the order of the partitions and offsets."""
    counted = {id(one) for one in audit.longest}
    return [row for one in audit.partitions for row in _rows(one, audit, id(one) in counted)]


def waiting(audit: Audit) -> Waiting:
    """Return the counts. A producer has one open transaction at a time, so its id and epoch identify it."""
    held = [one for one in audit.longest if any(_is_open(each) for each in one.open_transactions)]
    names = {
        (each.producer_id, each.producer_epoch) for one in held for each in one.open_transactions if _is_open(each)
    }
    of_users = [one for one in held if not one.log.is_internal]
    offsets = sum(one.log_end - one.last_stable_offset for one in of_users)
    groups = sum(one.log.topic == _OFFSETS for one in held)
    return Waiting(len(names), len(of_users), offsets, groups)


def sentence(found: Waiting) -> str:
    """Return `2 transactions are open; readers of 3 partitions wait for 1,863 offsets`."""
    text = f"{count(found.transactions, 'transaction')} {'is' if found.transactions == 1 else 'are'} open"
    if found.partitions:
        text += f"; readers of {count(found.partitions, 'partition')} wait for {count(found.offsets, 'offset')}"
    if found.group_partitions:
        text += f"; offsets of groups wait in {count(found.group_partitions, 'partition')} of {_OFFSETS}"
    return text


def commands(rows: Sequence[OpenRow]) -> list[str]:
    """Return the command line for each partition once."""
    return list(dict.fromkeys(row.command for row in rows if _is_open(row.open)))


def json_lines(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield the open transactions that are no findings for JSON: the fields of a finding, and two more."""
    for row in open_rows(audit):
        one = row.open
        if one.is_hanging:
            continue
        name = name_producer(one.transactional_id, one.producer_id, one.producer_epoch)
        message = f"open since {row.since}, {one.verdict}: {name}, {count(one.records, 'record')}"
        message += f"; withholds {count(row.withheld, 'offset')}" if row.withheld else ""
        place = one.topic, one.partition, one.first_offset
        found = Finding("open", "info", *place, one.producer_id, one.transactional_id, message, row.command)
        yield {**found.as_json(), "since_ms": row.since_ms, "withheld": row.withheld}


def _rows(one: PartitionAudit, audit: Audit, is_counted: bool) -> Iterator[OpenRow]:
    found = sorted(one.open_transactions, key=lambda each: each.first_offset)
    starts = [max(each.first_offset, one.log_start) for each in found]
    for each, start, following in zip(found, starts, [*starts, one.log_end][1:], strict=True):
        yield OpenRow(each, each.start_ms, following - start if is_counted and _is_open(each) else 0, audit.bootstrap)


def _is_open(one: OpenFinding) -> bool:
    return one.verdict is not Verdict.BEHIND
