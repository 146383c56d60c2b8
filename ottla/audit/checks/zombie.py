"""Writes of producers and coordinators that had been fenced. pure

`ProducerAppendInfo.checkProducerEpoch`: a leader refuses every older epoch, so a batch with an older epoch
should be impossible, or came with another replica's log.
"""

from ottla.audit.checks.finding import Severity
from ottla.scan import events

_FENCING = "fencing failed here: compare with the other replicas, and treat these records as invalid"
MESSAGES: dict[int, tuple[Severity, str, str]] = {
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
