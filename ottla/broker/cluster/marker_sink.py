"""Interface through which the transaction coordinator writes markers to the leaders of partitions. pure

The transaction coordinator must reach logs and groups, and groups must not import it. So the interface is here, and
`assembly.py` injects the implementation.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TransactionMarker


class MarkerSink(Protocol):
    """Leaders of all partitions, to which the coordinator writes markers."""

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        """Append the marker to one partition (a `__consumer_offsets` partition also applies its pending offsets)."""

    @property
    def flushing(self) -> bool:
        """Return whether a written marker may not be durable yet."""

    def when_durable(self, topic: str, index: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call `callback` when all current records of the partition are durable, or with the error if that fails."""
