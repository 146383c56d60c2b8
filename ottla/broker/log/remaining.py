"""Counts of the logs and bytes that a start has still to recover. pure

Source: `remainingLogsToRecover` of Kafka's `LogManager` (KIP-831). Kafka counts segments, Ottla bytes.
"""

from collections.abc import Mapping


class Remaining:
    """Number of logs to open before the broker serves, and about how many bytes of them recovery reads."""

    def __init__(self) -> None:
        self.counted = False
        """Whether a recovery is needed and its size is known."""
        self.logs = 0
        self._sizes: dict[str, int] = {}

    @property
    def recover_bytes(self) -> int:
        """Bytes still to recover, of all logs."""
        return sum(self._sizes.values())

    def expect(self, logs: int, sizes: Mapping[str, int]) -> None:
        """Set the number of logs to open, and the bytes to recover by directory."""
        self.counted = True
        self.logs = logs
        self._sizes = {directory: size_bytes for directory, size_bytes in sizes.items() if size_bytes}

    def finish_recovery(self, directory: str) -> None:
        """Remove the bytes of a log that was recovered."""
        self._sizes.pop(directory, None)

    def finish_opening(self, directory: str) -> None:
        """Count down a log that was opened, or will not be opened."""
        self.logs = max(0, self.logs - 1)
        self.finish_recovery(directory)
