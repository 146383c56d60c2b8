"""A run of a whole broker that ends in a crash, and the warnings and errors that it logs. free"""

import logging
from dataclasses import replace
from typing import Final, NamedTuple

from lab.crash.log_directory import DIRECTORY
from lab.in_memory.disk import MemoryDisk
from ottla.broker.config import Config
from ottla.testkit.in_memory.broker import BrokerInMemory
from ottla.testkit.in_memory.schedule import Schedule

_CONFIG: Final = Config(
    log_dirs=DIRECTORY,
    transaction_state_log_num_partitions=1,
    offsets_topic_num_partitions=1,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=300,
    log_segment_delete_delay_ms=50,
    metadata_max_retention_bytes=0,
)
_FLUSHING: Final = replace(_CONFIG, log_flush_interval_messages=1)


class Style(NamedTuple):
    """The segment size, and the upper limit for the padding in the batch of a value."""

    segment_bytes: int
    padding_bytes: int


NARROW: Final = Style(700, 60)
"""Makes logs roll all the time."""
WIDE: Final = Style(20_000, 3_000)
"""Makes batches cross page boundaries."""


METADATA_SEGMENT_BYTES: Final = 600
"""Large enough for the largest change of the metadata, but only for few changes."""


class LogProblems(logging.Handler):
    """A log handler that collects errors, warnings and tracebacks of the broker's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        (self.errors if record.levelno >= logging.ERROR else self.warnings).append(line)
        if record.exc_info:
            self.tracebacks.append(f"{line}: {record.exc_info[1]!r}")

    def __enter__(self) -> "LogProblems":
        self._logger = logging.getLogger("ottla")
        self._before = self._logger.propagate, self._logger.level
        self._logger.addHandler(self)
        self._logger.propagate = False
        self._logger.setLevel(logging.WARNING)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)


class Life(BrokerInMemory):
    """A broker whose logs roll soon."""

    def __init__(self, disk: MemoryDisk, schedule: Schedule, flushing: bool, style: Style = NARROW) -> None:
        """Start the broker. Raises the broker's own exception if it cannot start."""
        super().__init__(disk, disk.ports, schedule, _FLUSHING if flushing else _CONFIG)
        self.disk = disk
        self.style = style
        self.shrink_segments()

    def shrink_segments(self) -> None:
        """Make all logs roll after a few batches."""
        size_bytes = self.style.segment_bytes
        metadata = self.assembly.broker.cluster.metadata_log.partition.log
        metadata.config = replace(metadata.config, segment_bytes=METADATA_SEGMENT_BYTES, index_interval_bytes=200)
        for partition in self.partitions():
            partition.log.config = replace(partition.log.config, segment_bytes=size_bytes, index_interval_bytes=200)
