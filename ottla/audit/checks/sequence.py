"""Sequences of idempotent producers: gaps, duplicates, restarts. pure

`ProducerAppendInfo.checkSequence`: within an epoch a batch follows the one before it; a new epoch begins at 0.
"""

from collections import Counter
from collections.abc import Sequence

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.history import History
from ottla.audit.checks.words import count, name_producer, span
from ottla.protocol.batch_header import MAX_SEQUENCE
from ottla.protocol.times import at_time
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs

# Kind -> severity, message (with the values of `_values`), action.
MESSAGES: dict[int, tuple[Severity, str, str]] = {
    events.SEQUENCE_GAP: (
        "error",
        "sequence {found:,} instead of {expected:,}: the records between are not in the log",
        "records of this producer were lost: compare with a replica, and with the acknowledgements that it got",
    ),
    events.SEQUENCE_DUPLICATE: (
        "error",
        "sequence {found:,} again, instead of {expected:,}: the batch is in the log twice, or out of order",
        "consumers got these records twice: remove the copies downstream by producer id, epoch and sequence",
    ),
    events.SEQUENCE_RESTART: (
        "warning",
        "the epoch begins with sequence {found:,} instead of {expected:,}",
        "the first records of this epoch are missing, or the state of the producer had expired",
    ),
    events.PLAIN_IN_TRANSACTION: (
        "warning",
        "a batch outside of transactions, while a transaction of the producer is open",
        "no client does this: find out who writes with this producer id",
    ),
}


def make_findings(
    check: str,
    messages: dict[int, tuple[Severity, str, str]],
    place: TopicPartition,
    folder: str,
    anomalies: Longs,
    left_out: Counter[int],
    known: History,
) -> list[Finding]:
    """Return a finding for each anomaly of a kind in `messages`; `left_out` counts by kind those that were not kept."""
    found = []
    for row in anomalies.tolist():
        if row[events.ANOMALY_KIND] not in messages:
            continue
        severity, message, action = messages[row[events.ANOMALY_KIND]]
        producer_id, epoch = row[events.ANOMALY_PRODUCER_ID], row[events.ANOMALY_EPOCH]
        name = known.name_of(producer_id)
        text = message.format(**_values(row))
        found.append(
            Finding(
                check,
                severity,
                *place,
                row[events.ANOMALY_OFFSET],
                producer_id,
                name,
                f"{text}; {name_producer(name, producer_id, epoch)}",
                action,
                f"{folder}/{row[events.ANOMALY_SEGMENT]:020d}.log",
                row[events.ANOMALY_POSITION],
            )
        )
    for kind, many in sorted(left_out.items()):
        if kind in messages and many:
            message = f"{count(many, 'more place')} like these: {events.KINDS[kind]}"
            found.append(Finding(check, messages[kind][0], *place, None, None, None, message, messages[kind][2]))
    return found


def _values(row: Sequence[int]) -> dict[str, object]:
    """Return the values for the message on an anomaly; for an empty commit also time, abort, aborted batch."""
    expected, found, last = row[events.ANOMALY_EXPECTED], row[events.ANOMALY_FOUND], row[events.ANOMALY_LAST_OFFSET]
    last_sequence = (expected - 1) & MAX_SEQUENCE
    return {
        "expected": expected,
        "found": found,
        "at": at_time(row[events.ANOMALY_TIME_MS]),
        "abort": row[events.ANOMALY_ABORT_OFFSET],
        "offsets": span("offset", last - ((last_sequence - found) & MAX_SEQUENCE), last),
        "sequences": span("sequence", found, last_sequence),
    }
