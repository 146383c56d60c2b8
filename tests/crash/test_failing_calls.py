"""Each call of the disk fails once, in three ways; `python -m ottla.testkit.crash failures` takes all of them."""

from contextlib import suppress

import pytest

from ottla.broker.log.flusher import Flusher
from ottla.broker.log.segments import Segments
from ottla.testkit.crash.failures import sweep


@pytest.mark.parametrize("flushing", [True, False], ids=["flushed", "unflushed"])
def test_no_failing_call_breaks_a_promise(flushing):
    """Nothing is acknowledged after a failed sync, nothing acknowledged is lost, somebody is told."""
    met, problems = sweep(flushing, every=23)
    assert problems == []
    kinds = {name.partition(" of ")[2] for name in met}
    assert kinds > {"append", "append, short", "write", "write, short", "link", "sync"}


def test_a_write_that_fails_in_silence_is_noticed(monkeypatch):
    write = Segments.append

    def careless(self, *arguments):
        with suppress(OSError):
            write(self, *arguments)

    monkeypatch.setattr(Segments, "append", careless)
    assert sweep(flushing=False, every=29)[1]


def test_a_flush_that_fails_in_silence_is_noticed(monkeypatch):
    monkeypatch.setattr(Flusher, "_ended", _acknowledge_anyway)
    assert any("after a failed sync" in problem for problem in sweep(flushing=True, every=37)[1])


def _acknowledge_anyway(self):
    self._job = None
    covered, self._covered = self._covered, []
    for partition, end_offset in covered:
        partition.flushed(end_offset)
    if self._dirty:
        self._schedule()
