"""Stored ranges of segment files, so that an unchanged file is not read again. shell

A file is the same while its device, inode, size and ctime are: no program can set the ctime, and every write, rename
and change of length changes it. A file that changed just before it was read is not stored, because it may change again
within the same tick of the clock. One error remains possible: a clock that is set back may give a file the same
nanosecond again. The stored ranges only save reading, so they may be lost.
"""

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla import files
from ottla.spark_jobs.cache.names import SEEN
from ottla.spark_jobs.cache.settled_ranges import SettledRange

# Longer than the resolution of any file system's timestamps.
RESTING_NS = 2_000_000_000
MOST_BYTES = 64 << 20


class State(NamedTuple):
    """State of a segment file, and the offset below which it was divided into ranges."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int
    limit: int

    @property
    def rests(self) -> bool:
        return self.changed_ns + RESTING_NS < time.time_ns()


def state_of(path: str, limit: int) -> State:
    """Return the state of a file. Raises OSError."""
    found = os.stat(path)  # noqa: PTH116
    return State(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns, limit)


class Seen:
    """Stored ranges in the folder of one partition."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SEEN
        self._noted: dict[int, tuple[State, tuple[SettledRange, ...]]] = {}
        self._is_changed = False
        with suppress(OSError, ValueError, TypeError, AttributeError):
            found = json.loads(files.read(str(self._path), MOST_BYTES))
            self._noted = {
                int(base): (State(*state), tuple(SettledRange(*one) for one in settled_ranges))
                for base, (state, settled_ranges) in found.items()
            }

    def settled_ranges(self, base_offset: int, state: State) -> tuple[SettledRange, ...] | None:
        """Return the ranges of a segment if they were stored for this state, else None."""
        noted = self._noted.get(base_offset)
        return noted[1] if noted is not None and noted[0] == state else None

    def note(self, base_offset: int, state: State, settled_ranges: tuple[SettledRange, ...]) -> None:
        if self._noted.get(base_offset) != (state, settled_ranges):
            self._noted[base_offset] = state, settled_ranges
            self._is_changed = True

    def forget_others(self, base_offsets: set[int]) -> None:
        """Forget the ranges of all segments but these."""
        gone = self._noted.keys() - base_offsets
        self._is_changed = self._is_changed or bool(gone)
        self._noted = {base: noted for base, noted in self._noted.items() if base in base_offsets}

    def save(self) -> None:
        """Store the ranges. Raises OSError."""
        if self._is_changed:
            written = self._path.with_name(f"_{uuid.uuid4().hex}")
            written.write_text(json.dumps(self._noted), encoding="utf-8")
            written.replace(self._path)
            self._is_changed = False
