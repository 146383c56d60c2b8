"""What has happened since the start that an operator wants to have counted. pure"""

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Each is told beside the log line of its kind."""

    reused_sequences: int = 0
    """Transactional batches refused for sequence numbers of a transaction that had ended, or behind such a batch."""

    differing_duplicates: int = 0
    """Batches that were taken for duplicates, with other keys, values or headers than those in the log."""
