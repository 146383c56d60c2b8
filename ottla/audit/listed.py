"""A partition that an audit covers, with what its source knows of it. pure"""

from typing import NamedTuple

from ottla.scan.listing import PartitionLog


class Listed(NamedTuple):
    """A partition of a directory, or of a cluster. `cleaned_below`: its first dirty offset, None if not known.

    `created_ms`: when it was created under this name, -1 without the cluster's metadata.
    `of_topic`: the number of partitions of its topic, 0 without the metadata.
    `unread`: the reason why its records cannot be read; empty if they can.
    """

    directory: str
    log: PartitionLog
    cleaned_below: int | None
    high_watermark: int
    created_ms: int = -1
    of_topic: int = 0
    unread: str = ""

    @property
    def has_size(self) -> bool:
        """Whether the size is known: brokers do not give it without DESCRIBE on the cluster."""
        return self.log.size_bytes > 0 or self.log.least_end == self.log.log_start
