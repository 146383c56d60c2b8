"""Calls in other threads: their results come back as events, and cancelled calls are not made."""

import threading

import pytest

from ottla.broker.ports import workers as ports
from ottla.broker.ports.workers import DeferredWorkers, ThreadWorkers
from tests.timeout import EVENT_TIMEOUT_S


class Inbox:
    """Callbacks that worker threads have sent."""

    def __init__(self):
        self.there = threading.Semaphore(0)
        self.events, self.ended = [], []

    def from_thread(self, callback):
        self.events.append(callback)
        self.there.release()

    def on_end(self, answer, failure):
        self.ended.append((answer, failure))

    def wait(self):
        assert self.there.acquire(timeout=EVENT_TIMEOUT_S)
        self.events.pop(0)()
        return self.ended[-1]


@pytest.fixture
def inbox():
    return Inbox()


@pytest.fixture
def workers(inbox, monkeypatch):
    monkeypatch.setattr(ports, "processors", lambda: 2)
    made = ThreadWorkers(inbox.from_thread)
    yield made
    made.stop()


@pytest.mark.parametrize("slow", [False, True])
def test_a_call_is_made_in_another_thread_and_its_answer_is_an_event(inbox, workers, slow):
    workers.start(threading.get_ident, inbox.on_end, slow=slow)
    answer, failure = inbox.wait()
    assert answer != threading.get_ident() and failure is None


def test_an_exception_in_a_call_is_returned_and_the_worker_continues(inbox, workers):
    workers.start(lambda: 1 / 0, inbox.on_end, slow=False)
    assert isinstance(inbox.wait()[1], ZeroDivisionError)
    workers.start(lambda: "next", inbox.on_end, slow=False)
    assert inbox.wait()[0] == "next"


def test_slow_calls_do_not_hold_up_the_others(inbox, workers):
    blocked = threading.Event()
    for _ in range(3):
        workers.start(lambda: blocked.wait(EVENT_TIMEOUT_S), inbox.on_end, slow=True)
    workers.start(lambda: "quick", inbox.on_end, slow=False)
    assert inbox.wait()[0] == "quick"
    blocked.set()
    assert [inbox.wait()[0] for _ in range(3)] == [True] * 3


def test_a_call_that_was_not_begun_can_be_taken_back(inbox, workers):
    begun, blocked = threading.Event(), threading.Event()

    def block():
        begun.set()
        return blocked.wait(EVENT_TIMEOUT_S)

    first = workers.start(block, inbox.on_end, slow=True)
    second = workers.start(lambda: "second", inbox.on_end, slow=True)
    third = workers.start(lambda: "third", inbox.on_end, slow=True)
    assert begun.wait(EVENT_TIMEOUT_S)
    assert second.cancel() and not first.cancel()
    blocked.set()
    assert [inbox.wait()[0] for _ in range(2)] == [True, "third"]
    assert not third.cancel()


def test_there_are_no_more_threads_than_processors(inbox, workers):
    before = threading.active_count()
    blocked = threading.Event()
    for slow in (False, True) * 4:
        workers.start(lambda: blocked.wait(EVENT_TIMEOUT_S), inbox.on_end, slow=slow)
    assert threading.active_count() - before <= 2
    blocked.set()
    for _ in range(8):
        inbox.wait()


def test_without_threads_a_call_is_an_event_of_its_own(inbox):
    later = []
    workers = DeferredWorkers(later.append)
    workers.start(lambda: 7, inbox.on_end, slow=False)
    workers.start(lambda: 1 / 0, inbox.on_end, slow=True)
    assert workers.start(lambda: 8, inbox.on_end, slow=False).cancel()
    assert not inbox.ended
    for event in later:
        event()
    assert inbox.ended[0] == (7, None) and isinstance(inbox.ended[1][1], ZeroDivisionError) and len(inbox.ended) == 2
