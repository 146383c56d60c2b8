"""Commits that may lack their records: a batch that reused the sequences of an aborted one. pure

A broker answers a batch whose sequences stand in the producer's window as a duplicate, with the offset of the batch
there (`ProducerStateEntry.findDuplicateBatch`), also where that one was aborted. A client that takes its sequences back
when it aborts (librdkafka) is told that the records of its next transaction are written, and commits what is nowhere.

What is left of it in a log is a COMMIT that ends nothing, behind an ABORT in the same epoch. That is not proof: an
application that adds a partition to a transaction, writes nothing there and commits leaves the same. Nor is it all:
where the transaction wrote more than what was dropped, its sequences go on, and nothing can be seen.
"""

from collections import Counter

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.history import History
from ottla.audit.checks.sequence import told
from ottla.audit.checks.words import count
from ottla.protocol.times import at_time
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.kernels import Longs

_SAID: dict[int, tuple[Severity, str, str]] = {
    events.EMPTY_COMMIT: (
        "warning",
        "the COMMIT {at} has no record here, and its producer's last batch was aborted at offset {abort:,} "
        "({offsets}, {sequences}): records sent with the same sequences would have been acknowledged and dropped",
        "if its client is built on librdkafka, what this transaction was told to have written at these offsets is "
        "lost: write it again",
    ),
}


def findings(
    place: TopicPartition, folder: str, anomalies: Longs, left_out: Counter[int], known: History
) -> list[Finding]:
    """Findings from a walk's anomalies, and how many there are in the partition; `left_out` counts those not kept."""
    found = told("reused", _SAID, place, folder, anomalies, left_out, known)
    kept = anomalies[anomalies[:, events.ANOMALY_KIND] == events.EMPTY_COMMIT]
    more = left_out[events.EMPTY_COMMIT]
    if len(kept) and len(kept) + more > 1:
        found.append(_count(place, kept, more))
    return found


def _count(place: TopicPartition, kept: Longs, more: int) -> Finding:
    """How many there are: those that are told one by one, and `more`."""
    producers = count(len(set(kept[:, events.ANOMALY_PRODUCER_ID].tolist())), "producer")
    times = kept[:, events.ANOMALY_TIME_MS]
    first, last = (at_time(int(one)).removeprefix("at ") for one in (times.min(), times.max()))
    message = f"{count(len(kept) + more, 'commit')} without records behind aborts, {'those told ' if more else ''}"
    message += f"of {producers}, from {first} to {last}"
    return Finding("reused", "info", *place, None, None, None, message, "see the findings on each")
