"""Output of the demo, also for a claim that does not hold."""

import io

import pytest

from ottla.demo.screen import Screen


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding="utf-8", tty=False):
        self.tty = tty
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self):
        return self.tty

    @property
    def text(self):
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_colour_only_on_a_terminal():
    terminal, file = Terminal(tty=True), Terminal()
    for stream in (terminal, file):
        Screen(stream).title("Ottla", "below")
    assert "\x1b[" in terminal.text
    assert "\x1b[" not in file.text


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(tty=True)
    Screen(terminal).claim(True, "it happened")
    assert "\x1b[" not in terminal.text


def test_an_ascii_terminal_gets_ascii():
    terminal = Terminal(encoding="ascii")
    screen = Screen(terminal)
    screen.section("Both or neither", "A sentence.")
    screen.bars(["open"], [("read_committed", [1])])
    screen.claim(False, "it happened")
    assert "NOT it happened" in terminal.text


def test_bars_are_aligned_with_their_columns():
    terminal = Terminal()
    rows = [("read_uncommitted", (1, 1, 1)), ("read_committed", (0, 0, 1))]
    Screen(terminal).bars(["open", "aborted", "committed"], rows)
    head, uncommitted, committed = terminal.text.splitlines()[:3]
    columns = [head.index(name) for name in ("open", "aborted", "committed")]
    assert [uncommitted[at] for at in columns] == ["█", "█", "█"]
    assert [committed[at] for at in columns] == ["·", "·", "█"]


def test_numbers_are_aligned_to_the_right():
    terminal = Terminal()
    Screen(terminal).table(["what", "count"], [("one", 1), ("many", 1000)])
    lines = terminal.text.rstrip().splitlines()
    assert len({len(line) for line in lines if line}) == 1


def test_the_summary_names_what_did_not_hold():
    terminal = Terminal()
    screen = Screen(terminal)
    screen.claim(True, "this one held")
    screen.claim(False, "both or neither")
    screen.summary()
    assert screen.broken == ["both or neither"]
    assert "1 of 2 claims did not hold:\n  both or neither" in terminal.text
