"""Queues for names: changes of the same name run in the order of arrival. Changes of other names do not wait."""

import pytest

from ottla.broker.cluster.name_locks import NameLocks
from ottla.broker.turns import Turns


@pytest.fixture
def line():
    return Line()


class Line:
    """Changes that note when they begin. The test ends each of them."""

    def __init__(self):
        self.bugs = []
        self.turns = Turns(lambda work: None, self.bugs.append)
        self.claims = NameLocks(self.turns)
        self.began = {}

    def ask(self, what, *names):
        def began(claim):
            self.began[what] = claim

        self.turns.event(lambda: self.turns.start(self.claims.take(names), began, self.bugs.append))

    def end(self, what):
        self.turns.event(lambda: self.claims.release(self.began.pop(what)))

    def nothing_is_left(self):
        return not self.claims._lines and not self.bugs


def test_changes_of_one_name_run_one_at_a_time_in_arrival_order(line):
    for what in ("first", "second", "third"):
        line.ask(what, "a")
    assert list(line.began) == ["first"]
    line.end("first")
    assert list(line.began) == ["second"]
    line.end("second")
    assert list(line.began) == ["third"]
    line.end("third")
    assert line.nothing_is_left()


def test_changes_of_other_names_do_not_wait(line):
    line.ask("one", "a")
    line.ask("other", "b")
    line.ask("of nothing")
    assert list(line.began) == ["one", "other", "of nothing"]


def test_a_change_of_two_names_waits_for_both_and_is_not_overtaken(line):
    line.ask("a", "a")
    line.ask("b", "b")
    line.ask("both", "a", "b", "a")
    line.ask("late", "b")
    line.end("b")
    assert list(line.began) == ["a"]
    line.end("a")
    assert list(line.began) == ["both"]
    line.end("both")
    line.end("late")
    assert line.nothing_is_left()


def test_two_changes_of_the_same_names_do_not_wait_for_each_other(line):
    line.ask("holder", "a")
    line.ask("one", "a", "b")
    line.ask("other", "b", "a")
    for what in ("holder", "one", "other"):
        assert list(line.began) == [what]
        line.end(what)
    assert line.nothing_is_left()


def test_a_follower_of_the_holder_runs_before_waiting_changes(line):
    line.ask("holder", "a")
    line.ask("waiting", "a")
    line.began["follower"] = line.claims.follow("a")
    line.end("holder")
    assert list(line.began) == ["follower"]
    assert line.began["follower"].wait.done
    line.end("follower")
    assert list(line.began) == ["waiting"]
