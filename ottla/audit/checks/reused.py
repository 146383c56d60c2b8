"""Commits that may lack their records: a batch that reused the sequences of an aborted one. pure

A broker answers a batch whose sequences are in the producer's window as a duplicate, with the offset of the batch in
the window (`ProducerStateEntry.findDuplicateBatch`), even if that batch was aborted. A client that resets its sequences
when it aborts (librdkafka) gets a success for records of its next transaction, and commits records that no log has.

The log then has a COMMIT that ends nothing, after an ABORT in the same epoch. This is no proof: an application that
adds a partition to a transaction, writes nothing there and commits leaves the same markers. Some cases leave no trace:
if the transaction wrote more than the dropped batch, its sequences continue.
"""

from collections import Counter

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.words import count
from ottla.protocol.times import at_time
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs

MESSAGES: dict[int, tuple[Severity, str, str]] = {
    events.EMPTY_COMMIT: (
        "warning",
        "the COMMIT {at} has no record here, and its producer's last batch was aborted at offset {abort:,} "
        "({offsets}, {sequences}): records sent with the same sequences would have been acknowledged and dropped",
        "if its client is built on librdkafka, the records that this transaction got acknowledged at these offsets are "
        "lost: write them again",
    ),
}


def count_findings(place: TopicPartition, anomalies: Longs, left_out: Counter[int]) -> list[Finding]:
    """Return a finding on the number of empty commits if there are several; `left_out` counts those not kept."""
    kept = anomalies[anomalies[:, events.ANOMALY_KIND] == events.EMPTY_COMMIT]
    more = left_out[events.EMPTY_COMMIT]
    return [_count(place, kept, more)] if len(kept) and len(kept) + more > 1 else []


def _count(place: TopicPartition, kept: Longs, more: int) -> Finding:
    """Return a finding on the number of anomalies: those in `kept`, and `more`."""
    producers = count(len(set(kept[:, events.ANOMALY_PRODUCER_ID].tolist())), "producer")
    times = kept[:, events.ANOMALY_TIME_MS]
    first, last = (at_time(int(one)).removeprefix("at ") for one in (times.min(), times.max()))
    message = f"{count(len(kept) + more, 'commit')} without records after aborts, {'those shown are ' if more else ''}"
    message += f"of {producers}, from {first} to {last}"
    return Finding("reused", "info", *place, None, None, None, message, "see the findings on each")
