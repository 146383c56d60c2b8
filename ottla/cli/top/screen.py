"""Content of the live view of `ottla top`, and the actions of its keys. free"""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ottla.cli.top.picture import Picture, places_text, sentence
from ottla.printable import printable
from ottla.protocol.times import difference
from ottla.verdict import Standing

PANES: Final = ("transactions", "partitions", "groups")
HEAD_LINES: Final = 3
PANE_LINES: Final = 2
"""Number of lines of a pane without rows: its title, and the head of its table."""
_TEXTS: Final = frozenset(("transactional id", "state", "where", "topic", "standing", "group", "type"))
"""Columns aligned to the left."""
HELP: Final = "arrows and Tab move   / filter   Esc all   q quit"
_HURTS: Final = {
    Standing.FORGOTTEN: "bold red",
    Standing.DECIDED: "bold red",
    Standing.OVERDUE: "red",
    Standing.UNKNOWN: "yellow",
}


class Screen:
    """Three panes, of which one has the focus, a filter, and the last picture."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.problem: str | None = None
        self.ended = False
        self.filter = ""
        self.is_typing = False
        self._pane = 0
        self._first = [0] * len(PANES)

    def press(self, key: str) -> None:
        """Handle a key, given by its name or by the character that it writes."""
        if key == "quit" or (key == "q" and not self.is_typing):
            self.ended = True
        elif key == "escape":
            self.is_typing, self.filter = False, ""
        elif key == "enter":
            self.is_typing = False
        elif key == "backspace" and self.is_typing:
            self.filter = self.filter[:-1]
        elif key in ("left", "right"):
            self._pane = (self._pane + (1 if key == "right" else -1)) % len(PANES)
        elif key in ("up", "down", "page up", "page down"):
            step = (10 if key.startswith("page") else 1) * (-1 if key.endswith("up") else 1)
            self._first[self._pane] = max(0, self._first[self._pane] + step)
        elif self.is_typing and len(key) == 1:
            self.filter += key
        elif key == "/":
            self.is_typing = True

    def drawn(self, width: int, height: int) -> RenderableType:
        """Return the whole screen for a terminal of this size."""
        picture = self.picture.matching(self.filter) if self.filter else self.picture
        panes = (_transactions(picture), _partitions(picture), _groups(picture))
        room = max(0, height - HEAD_LINES - PANE_LINES * len(panes) - 1)
        lines = _shared_out(room, [len(rows) for _, rows in panes])
        parts: list[RenderableType] = [self._head(picture)]
        for number, ((columns, rows), count) in enumerate(zip(panes, lines, strict=True)):
            first = self._first[number] = min(self._first[number], max(0, len(rows) - count))
            parts.append(self._title(number, first, count, len(rows)))
            parts.append(_table(columns, rows[first : first + count]))
        return Group(*parts, _line(HELP, "dim"))

    def _head(self, picture: Picture) -> Text:
        text = _line(sentence(picture), "bold")
        unseen = [f"{each.looked_at} of {each.of} {each.what}" for each in picture.left_out]
        notes = [f"looked at {', '.join(unseen)}"] if unseen else []
        notes += [self.problem] if self.problem is not None else list(dict.fromkeys(picture.gaps))
        text.append("\n" + printable("; ".join(notes)), "yellow")
        if self.is_typing or self.filter:
            text.append("\n/" + printable(self.filter) + ("_" if self.is_typing else ""), "cyan")
        else:
            text.append("\n")
        return text

    def _title(self, number: int, first: int, count: int, rows: int) -> Text:
        shown = f" {rows}" if rows <= count else f" {first + 1}-{first + count} of {rows}" if count else f" 0 of {rows}"
        return _line(PANES[number] + shown, "reverse" if number == self._pane else "underline")


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _table(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[object]]]) -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="dim", show_header=True)
    for column in columns:
        is_number = column not in _TEXTS
        table.add_column(column, no_wrap=True, overflow="ellipsis", justify="right" if is_number else "left")
    for style, cells in rows:
        table.add_row(*(Text("-" if cell is None else printable(str(cell)), style=style) for cell in cells))
    return table


_Rows = list[tuple[str, Sequence[object]]]


def _transactions(picture: Picture) -> tuple[Sequence[str], _Rows]:
    columns = ("transactional id", "state", "age", "time left", "producer id", "epoch", "partitions", "where")
    rows: _Rows = []
    for each in picture.transactions:
        cells = (
            each.transactional_id,
            each.state,
            _duration(each.age_ms),
            _duration(each.time_left_ms),
            each.producer_id,
            each.epoch,
            len(each.partitions),
            places_text(each.partitions),
        )
        rows.append(("red" if each.is_overdue else "", cells))
    return columns, rows


def _partitions(picture: Picture) -> tuple[Sequence[str], _Rows]:
    columns = ("topic", "partition", "stable", "high watermark", "held back", "for", "standing", "transactional id")
    rows: _Rows = []
    for each in picture.held_back:
        who = each.transactional_id or (None if each.producer_id is None else f"producer id {each.producer_id}")
        cells = (each.topic, each.partition, *each.ends, each.records, _duration(each.age_ms), each.standing, who)
        rows.append((_HURTS.get(each.standing, ""), cells))
    return columns, rows


def _groups(picture: Picture) -> tuple[Sequence[str], _Rows]:
    columns = ("group", "type", "state", "epoch", "assigned", "partitions", "lag", "stable lag")
    rows: _Rows = []
    for each in picture.groups:
        protocol = (each.type, each.state, each.epoch, each.assignment_epoch)
        rows.append(("", (each.group_id, *protocol, each.partitions, each.lag, each.stable_lag)))
    return columns, rows


def _duration(ms: int | None) -> str | None:
    """Return a duration as text, to the second."""
    return None if ms is None else difference(round(ms / 1000) * 1000)


def _shared_out(room: int, needed: Sequence[int]) -> list[int]:
    """Return the lines of each pane: one for each row, or an equal share of the room for panes that need more."""
    lines = [0] * len(needed)
    while room > 0 and any(have < need for have, need in zip(lines, needed, strict=True)):
        for pane, need in enumerate(needed):
            if lines[pane] < need and room > 0:
                lines[pane] += 1
                room -= 1
    return lines
