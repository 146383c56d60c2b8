"""Work in several processes: every result comes back, and no process outlives a parent that was killed."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.broker.ports import side_by_side
from ottla.protocol.steps import to_the_end
from tests.timeout import EVENT_TIMEOUT_S

SLEEPERS = """
import os, sys, time
from ottla.broker.ports import side_by_side
from ottla.protocol.steps import to_the_end
side_by_side.processors = lambda: 2

def sleep(item):
    os.write(1, b"%d\\n" % os.getpid())  # One write: both have the same pipe, and an unbuffered print takes two.
    time.sleep(60)

to_the_end(side_by_side.spread_steps(sleep, [1, 2], [1, 1], lambda place: None))
"""


def run_parallel(work, items, sizes):
    return to_the_end(side_by_side.spread_steps(work, items, sizes, lambda place: None))


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(side_by_side, "processors", lambda: 2)


def test_results_are_keyed_by_item_index_and_made_in_two_processes():
    found = run_parallel(lambda item: (item * b"x", os.getpid()), list(range(5)), [1] * 5)
    assert {place: len(data) for place, (data, _) in found.items()} == {place: place for place in range(5)}
    pids = {pid for _, pid in found.values()}
    assert len(pids) == 2 and os.getpid() not in pids


def test_a_result_larger_than_a_pipe_is_returned_whole():
    found = run_parallel(lambda item: bytes([item]) * 3_000_000, [7, 8], [1, 1])
    assert found == {0: b"\x07" * 3_000_000, 1: b"\x08" * 3_000_000}


def test_a_finished_item_is_reported_before_the_others_finish(tmp_path):
    def work(item):
        while item and not (tmp_path / "go on").exists():
            time.sleep(0.01)
        return item

    told = []
    steps = side_by_side.spread_steps(work, [1, 0], [1, 1], told.append)
    while not told:
        next(steps)
    assert told == [1]
    (tmp_path / "go on").touch()
    assert to_the_end(steps) == {0: 1, 1: 0}
    assert told == [1, 0]


def test_closing_the_steps_ends_the_child_processes(tmp_path):
    def work(item):
        (tmp_path / str(os.getpid())).touch()
        time.sleep(EVENT_TIMEOUT_S)

    steps = side_by_side.spread_steps(work, [1, 2], [1, 1], lambda place: None)
    while len(list(tmp_path.iterdir())) < 2:
        next(steps)
    steps.close()
    for pid in map(int, (path.name for path in tmp_path.iterdir())):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_oserror_in_a_child_process_is_raised_in_the_parent():
    """A second sync would not fail again."""

    def work(item):
        if item == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "a file")
        return item

    with pytest.raises(OSError) as raised:
        run_parallel(work, list(range(5)), [1] * 5)
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, "a file")


def test_results_that_a_process_returned_before_it_died_are_kept():
    def work(item):
        if item >= 2:
            os._exit(7)
        return item

    assert run_parallel(work, list(range(4)), [1] * 4) == {0: 0, 1: 1}


def test_results_are_returned_when_sigchld_is_ignored():
    """The parent of the broker may ignore SIGCHLD. The kernel then reaps the processes, so none can be waited for."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_parallel(lambda item: -item, [1, 2], [1, 1]) == {0: -1, 1: -2}
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_without_descriptors_for_processes_nothing_is_done_here(monkeypatch):
    def none_left():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", none_left)
    assert run_parallel(lambda item: item, [1, 2], [1, 1]) == {}


def test_processes_end_with_a_parent_that_was_killed():
    parent = subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, text=True)
    children = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    waited_until = time.monotonic() + EVENT_TIMEOUT_S
    while any(map(_lives, children)):
        assert time.monotonic() < waited_until
        time.sleep(0.02)


def _lives(pid):
    """Return whether the process runs. The process that adopts it after its end may leave it as a zombie."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
