"""Which stretches a segment file had when it was last read, so that it need not be read while it is the same. shell

A file is the same while its device, inode, size and ctime are: nobody can set the ctime, and every write, rename and
change of length does. A file that changed just before it was read is not noted, for it may change again within the tick
of the clock that stamps it. That is all that can be wrong with it: a clock that is set back, and shows a file the very
nanosecond again. What is noted spares reading and nothing else, so it may be lost.
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
from ottla.spark_jobs.cache.stretches import Stretch

# Longer than the tick of any file system's clock.
RESTING_NS = 2_000_000_000
MOST_BYTES = 64 << 20


class State(NamedTuple):
    """A segment file, and the offset below which it was laid out."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int
    limit: int

    @property
    def rests(self) -> bool:
        return self.changed_ns + RESTING_NS < time.time_ns()


def state_of(path: str, limit: int) -> State:
    """Raises OSError."""
    found = os.stat(path)  # noqa: PTH116
    return State(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns, limit)


class Seen:
    """What was noted in the folder of one partition."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SEEN
        self._noted: dict[int, tuple[State, tuple[Stretch, ...]]] = {}
        self._is_changed = False
        with suppress(OSError, ValueError, TypeError, AttributeError):
            found = json.loads(files.read(str(self._path), MOST_BYTES))
            self._noted = {
                int(base): (State(*state), tuple(Stretch(*one) for one in stretches))
                for base, (state, stretches) in found.items()
            }

    def stretches(self, base_offset: int, state: State) -> tuple[Stretch, ...] | None:
        """Those of a segment that is in this state, if that was noted."""
        noted = self._noted.get(base_offset)
        return noted[1] if noted is not None and noted[0] == state else None

    def note(self, base_offset: int, state: State, stretches: tuple[Stretch, ...]) -> None:
        if self._noted.get(base_offset) != (state, stretches):
            self._noted[base_offset] = state, stretches
            self._is_changed = True

    def forget_others(self, base_offsets: set[int]) -> None:
        """Keep what is noted of these segments only."""
        gone = self._noted.keys() - base_offsets
        self._is_changed = self._is_changed or bool(gone)
        self._noted = {base: noted for base, noted in self._noted.items() if base in base_offsets}

    def save(self) -> None:
        """Raises OSError."""
        if self._is_changed:
            written = self._path.with_name(f"_{uuid.uuid4().hex}")
            written.write_text(json.dumps(self._noted), encoding="utf-8")
            written.replace(self._path)
            self._is_changed = False
