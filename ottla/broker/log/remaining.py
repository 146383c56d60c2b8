"""What a start has still to recover, counted for who waits for it. pure

Source: `remainingLogsToRecover` of Kafka's `LogManager` (KIP-831); Kafka counts segments where bytes are counted here.
"""

from collections.abc import Mapping


class Remaining:
    """Logs that must be open before the broker serves, and about how many bytes of them a recovery reads."""

    __slots__ = ("_sizes", "counted", "logs")

    def __init__(self) -> None:
        self.counted = False
        """Whether a crash has left something, and how much is known."""
        self.logs = 0
        self._sizes: dict[str, int] = {}

    @property
    def recover_bytes(self) -> int:
        """Of the logs that are left, all together."""
        return sum(self._sizes.values())

    def expect(self, logs: int, sizes: Mapping[str, int]) -> None:
        """So many logs are to be opened, of which these directories have bytes to recover."""
        self.counted = True
        self.logs = logs
        self._sizes = {directory: size_bytes for directory, size_bytes in sizes.items() if size_bytes}

    def recovered(self, directory: str) -> None:
        """Nothing is to be read any more of this one."""
        self._sizes.pop(directory, None)

    def opened(self, directory: str) -> None:
        """One of them is open, or will not be."""
        self.logs = max(0, self.logs - 1)
        self.recovered(directory)
