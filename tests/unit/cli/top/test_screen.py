"""The live view of `ottla top` on terminals of any size, and its keys."""

from io import StringIO

import pytest

pytest.importorskip("rich", reason="the live view needs rich: pip install 'ottla[top]'")

from rich.console import Console

from ottla.cli.top.picture import Ends, GroupLag, HeldBack, LeftOut, Ongoing, Picture
from ottla.cli.top.screen import Screen
from ottla.verdict import Standing

HOSTILE = "[red]tx\x1b[2J\n"


def transaction(number):
    return Ongoing(f"tx-{number}", "Ongoing", 1, number, 0, 61_400, 5_000, (("ledger", number),))


PICTURE = Picture(
    1_700_000_000_000,
    [transaction(number) for number in range(50)],
    [HeldBack("ledger", 0, Ends(5, 9), 61_400, HOSTILE, 7, Standing.FORGOTTEN)],
    [
        GroupLag("readers", "consumer", "Assigning", 12, 11, 1, 2, 1_000, 10),
        GroupLag("others", "classic", "Stable", None, None, 1, 1, 7, 7),
    ],
    [LeftOut("partitions", 2_000, 10_000)],
)


def lines(screen, width=120, height=24):
    written = StringIO()
    Console(width=width, height=height, force_terminal=False, file=written).print(screen.drawn(width, height))
    return written.getvalue().splitlines()


def test_all_tables_fit_the_terminal():
    for height in (12, 24, 60):
        for width in (40, 120):
            drawn = lines(Screen(PICTURE), width, height)
            assert len(drawn) <= height
            assert all(len(line) <= width for line in drawn)
    text = "\n".join(lines(Screen(PICTURE)))
    for part in ("transactions 1-", "of 50", "tx-0", "1 min 1 s", "partitions 1", "forgotten", "groups 2", "1000"):
        assert part in text
    assert "looked at 2000 of 10000 partitions" in text


def test_epochs_of_a_group_are_next_to_its_state_and_fit_80_columns():
    drawn = [" ".join(line.split()) for line in lines(Screen(PICTURE), width=80)]
    at = drawn.index("group type state epoch assigned partitions lag stable lag")
    assert drawn[at + 1 : at + 3] == [
        "readers consumer Assigning 12 11 2 1000 10",
        "others classic Stable - - 1 7 7",
    ]


def test_names_move_no_cursor_and_are_no_markup():
    (line,) = [line for line in lines(Screen(PICTURE)) if "forgotten" in line]
    assert "[red]tx\\x1b[2J\\n" in line


def test_arrows_move_in_the_pane_that_has_them():
    screen = Screen(PICTURE)
    screen.press("down")
    screen.press("page down")
    text = "\n".join(lines(screen))
    assert "transactions 12-" in text and "tx-11" in text and "tx-10 " not in text
    for _ in range(100):
        screen.press("down")
    assert "tx-49" in "\n".join(lines(screen))
    screen.press("right")
    screen.press("down")  # in the next pane, which shows all it has
    assert "partitions 1" in "\n".join(lines(screen))
    screen.press("left")
    for _ in range(10):
        screen.press("page up")
    assert "tx-0 " in "\n".join(lines(screen))


def test_a_filter_is_typed_kept_and_taken_away():
    screen = Screen(PICTURE)
    for key in "/tx-4q":
        screen.press(key)
    assert not screen.ended
    screen.press("backspace")
    assert "/tx-4_" in lines(screen)
    screen.press("enter")
    text = "\n".join(lines(screen))
    assert "/tx-4\n" in text and "transactions 11" in text and "tx-5" not in text and "groups 0" in text
    screen.press("escape")
    assert "of 50" in "\n".join(lines(screen))
    screen.press("q")
    assert screen.ended


def test_a_broker_error_appears_next_to_the_last_picture():
    screen = Screen(PICTURE)
    screen.problem = "one:9092: nothing listens there"
    text = "\n".join(lines(screen))
    assert "one:9092: nothing listens there" in text and "tx-0" in text


@pytest.mark.parametrize("key", ["q", "quit"])
def test_quit_keys_end_the_view(key):
    screen = Screen(Picture(0))
    screen.press(key)
    assert screen.ended
