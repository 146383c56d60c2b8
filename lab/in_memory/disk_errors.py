"""Errors of a disk: the calls that fail, the error, and the number of failures. free"""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, NamedTuple

from ottla.broker.ports.descriptors import as_shortage

FOR_EVER: Final = 1_000_000
MOST_SHORT: Final = 60


class BadDisk(NamedTuple):
    """Calls of these kinds fail: the first `skip` calls succeed, the next `times` fail."""

    calls: frozenset[str]
    number: int
    skip: int
    times: int


_KINDS: Final = (
    (("append",), errno.ENOSPC),
    (("append",), errno.EIO),
    (("append", "write", "mkdir", "link"), errno.ENOSPC),
    (("write", "rename"), errno.EIO),
    (("sync", "sync_dir"), errno.EIO),
    (("open", "read", "write", "list"), errno.EMFILE),
    (("open",), errno.EIO),
    (("read", "pread"), errno.EIO),
    (("list", "rename", "unlink", "truncate"), errno.EIO),
)


def draw_bad_disk(random: Random) -> BadDisk:
    """Choose a random disk error that occurs once or until the disk is mended."""
    calls, number = random.choice(_KINDS)
    times = 1 if random.random() < 0.5 else FOR_EVER
    if number == errno.EMFILE and times > 1:
        times = random.randrange(2, MOST_SHORT)  # this error ends by itself, so the test need not mend the disk
    most_skipped = 12 if "append" in calls else 2  # the other calls are rare
    return BadDisk(frozenset(calls), number, int(random.random() ** 2 * most_skipped), times)


class DiskErrors:
    """The current disk error. `failures` counts the failed calls since the disk last worked."""

    def __init__(self, met: Counter[str]) -> None:
        self.failures = 0
        self._met = met
        self._bad: BadDisk | None = None

    def break_down(self, bad: BadDisk) -> None:
        self._bad = bad

    def mend(self) -> None:
        """Make the disk work again."""
        self._bad = None
        self.failures = 0

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Suspend the errors while a test inspects the broker."""
        bad, self._bad = self._bad, None
        try:
            yield
        finally:
            self._bad = bad

    def call(self, name: str) -> None:
        """Check a call of the disk port. Raises OSError if it fails."""
        bad = self._bad
        if bad is None or name not in bad.calls:
            return
        if bad.skip > 0:
            self._bad = bad._replace(skip=bad.skip - 1)
            return
        self._bad = bad._replace(times=bad.times - 1) if bad.times > 1 else None
        self.failures += 1
        self._met[f"{errno.errorcode[bad.number]} of {name}"] += 1
        raise as_shortage(OSError(bad.number, os.strerror(bad.number), name))
