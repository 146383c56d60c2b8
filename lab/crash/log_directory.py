"""A log directory in memory with its manager, on a clock that does not advance. free"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from lab.in_memory.disk import MemoryDisk
from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Timer
from ottla.broker.turns import Turns
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import START_MS, Event

DIRECTORY: Final = "/data"
TOPIC_ID: Final = bytes(range(16))


class StillClock:
    """A clock that does not advance. Timers never fire, and `run` runs the callbacks of `next_turn`."""

    def __init__(self) -> None:
        self.enter: Callable[[Callable[[], None]], None] = _raise_unconnected
        self._next: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return START_MS

    def monotonic_ms(self) -> float:
        return 0.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return Event(callback)

    def next_turn(self, callback: Callable[[], None]) -> None:
        self._next.append(callback)

    from_thread = next_turn

    def run(self) -> None:
        """Run the callbacks of `next_turn` until none is left."""
        while self._next:
            self.enter(self._next.pop(0))


class MemoryLogDirectory:
    """A disk in memory that holds `files` ({path: content}), and the manager of its log directory."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.disk = MemoryDisk(PortCalls(), Random(0), lambda end: self.clock.next_turn(end))
        self.disk.fill(files or {})
        self.clock = StillClock()
        self.turns = Turns(self.clock.next_turn, _raise)
        self.clock.enter = self.turns.event
        self.logs = LogManager(self.disk, self.clock, self.turns, Config(log_dirs=DIRECTORY, cluster_id="cluster"))

    def open(self) -> "MemoryLogDirectory":
        """Open the log directory as a start of the broker does. Raises LogDirectoryError."""
        self.logs.open()
        return self

    def partition(self, topic: str = "t", settings: LogConfig | None = None, leader_epoch: int = 0) -> Partition:
        return self.logs.open_partition(topic, 0, TOPIC_ID, leader_epoch, settings or LogConfig())

    def checkpoint(self) -> None:
        """Sync the sealed segments, and then write the checkpoints that cover them."""
        for _ in range(2):
            self.logs.checkpoint()
            self.disk.end_syncs()

    def files(self) -> dict[str, bytes]:
        """Return {path: content} of all files, as a process sees them."""
        return self.disk.all_files()


def _raise_unconnected(callback: Callable[[], None]) -> None:
    raise RuntimeError("the clock is not connected to a broker's turns yet")


def _raise(error: Exception) -> None:
    raise error
