"""Writes of producers and coordinators that had been fenced. pure

`ProducerAppendInfo.checkProducerEpoch`: a leader refuses every older epoch, so a batch with an older epoch
should be impossible, or came with another replica's log.
"""

from collections import Counter

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.history import History
from ottla.audit.checks.sequence import make_findings
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs

_FENCING = "fencing failed here: compare with the other replicas, and treat these records as invalid"
_MESSAGES: dict[int, tuple[Severity, str, str]] = {
    events.ZOMBIE_EPOCH: ("error", "data of epoch {found} after data of epoch {expected}", _FENCING),
    events.ZOMBIE_AFTER_MARKER: ("error", "data of epoch {found} after the marker of epoch {expected}", _FENCING),
    events.ZOMBIE_MARKER: (
        "error",
        "a marker of epoch {found} after epoch {expected}",
        "a coordinator that had lost its partition wrote it: check how the transaction ended in its other partitions",
    ),
    events.COORDINATOR_EPOCH_BACK: (
        "warning",
        "a marker of coordinator epoch {found} after one of {expected}",
        "a coordinator that had been replaced wrote it: check how the transaction ended in its other partitions",
    ),
}


def findings(
    place: TopicPartition, folder: str, anomalies: Longs, left_out: Counter[int], known: History
) -> list[Finding]:
    """Return findings from a walk's anomalies; `left_out` counts, by kind, the anomalies that were not kept."""
    return make_findings("zombie", _MESSAGES, place, folder, anomalies, left_out, known)
