"""Tables of text: the partitions, and any list of rows. pure"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.audit.audited import PartitionAudit
from ottla.audit.report.columns import fold
from ottla.colours import BOLD, DIM, Style
from ottla.printable import printable
from ottla.scan.storage import hide_secrets

Cell = str | int | None


class Head(NamedTuple):
    """A column: its group, two lines of its head, and whether it is a count, with a sum and a dot for zero."""

    group: str
    first: str
    second: str
    is_count: bool = False


_TOPIC = 0
_STABLE = 4
_OPEN = 7
_HEADS = [
    Head("", "", "topic"),
    Head("", "", "partition"),
    Head("offsets", "log", "start"),
    Head("offsets", "log", "end"),
    Head("offsets", "last", "stable"),
    Head("transactions", "", "committed", True),
    Head("transactions", "", "aborted", True),
    Head("transactions", "", "open", True),
    Head("records", "", "committed", True),
    Head("records", "", "aborted", True),
    Head("records", "", "open", True),
    Head("records", "no", "transaction", True),
]
# Columns that a narrow terminal leaves out, in this order.
_DROPPED = ([8, 9, 10, 11], [2], [5, 6])
_SHORTEST_TOPIC = 12


def partition_table(rows: Sequence[PartitionAudit], replicated: set[str], style: Style, width: int) -> str:
    """Return one line per partition, and a sum. A last stable offset below the log end is marked.

    Partitions in `replicated` are in several directories, so their line names the directory.
    """
    lines: list[list[Cell]] = [_cells(one) for one in rows]
    for index, one in enumerate(rows):
        if one.name in replicated:
            lines[index][_TOPIC] = printable(f"{one.log.topic} ({hide_secrets(one.directory)})")
    if len(rows) > 1:
        # A transaction may be in several partitions, so a sum would count it more than once.
        sums: list[Cell] = [
            sum(int(line[at] or 0) for line in lines) if head.group == "records" else None
            for at, head in enumerate(_HEADS)
        ]
        lines.append(["all", *sums[1:]])
    cells = [[_number(cell, _HEADS[at].is_count) for at, cell in enumerate(line)] for line in lines]
    for index, line in enumerate(cells):
        held = index < len(rows) and rows[index].last_stable_offset < rows[index].log_end
        line[_STABLE] += " ◂" if held else "  "
    kept, topic = _fitting(cells, width)
    return "\n".join(_drawn(cells, lines, kept, topic, len(rows), style))


def _cells(one: PartitionAudit) -> list[Cell]:
    tallies = (one.committed, one.aborted, one.opened)
    return [
        one.log.topic,
        str(one.log.partition),
        one.log_start,
        one.log_end,
        one.last_stable_offset,
        *(tally.transactions for tally in tallies),
        *(tally.records for tally in tallies),
        one.plain_records,
    ]


def _fitting(cells: list[list[str]], width: int) -> tuple[list[int], int]:
    """Return the columns that fit into `width`, and the width of the topics, which are folded first."""
    kept = list(range(len(_HEADS)))
    topic = _widths(cells, kept)[_TOPIC]
    for dropped in ((), *_DROPPED):
        kept = [at for at in kept if at not in dropped]
        over = len(_row(kept, _widths(cells, kept), cells[0])) - width
        if topic - max(over, 0) >= min(_SHORTEST_TOPIC, topic):
            return kept, topic - max(over, 0)
    return kept, min(_SHORTEST_TOPIC, topic)


def _drawn(
    cells: list[list[str]], values: list[list[Cell]], kept: list[int], topic: int, partitions: int, style: Style
) -> list[str]:
    widths = _widths(cells, kept) | {_TOPIC: topic}
    out = [style(DIM, _group_line(kept, widths))]
    for second in (False, True):
        out.append(style(BOLD, _row(kept, widths, [head.second if second else head.first for head in _HEADS])))
    rule = "─" * len(_row(kept, widths, [""] * len(_HEADS)))
    out.append(style(DIM, rule))
    for index, line in enumerate(cells):
        if index == partitions:
            out.append(style(DIM, rule))
        first, *more = fold(line[_TOPIC], topic)
        text = "\n".join([_row(kept, widths, [first, *line[1:]]), *more])
        out.append(style(BOLD, text) if values[index][_OPEN] else text)
    return out


def _widths(cells: list[list[str]], kept: Sequence[int]) -> dict[int, int]:
    return {at: max(len(_HEADS[at].first), len(_HEADS[at].second), *(len(line[at]) for line in cells)) for at in kept}


def _row(kept: Sequence[int], widths: dict[int, int], cells: Sequence[str]) -> str:
    text = ""
    before = None
    for at in kept:
        group = _HEADS[at].group
        text += (" │ " if before not in (None, group) else "  " if text else "") + _fit(
            cells[at], widths[at], at == _TOPIC
        )
        before = group
    return text


def _group_line(kept: Sequence[int], widths: dict[int, int]) -> str:
    """Return the names of the groups, each above its columns."""
    text = ""
    for place, at in enumerate(kept):
        group = _HEADS[at].group
        if place and group != _HEADS[kept[place - 1]].group:
            size = sum(widths[i] + 2 for i in kept if _HEADS[i].group == group) - 2
            text += " │ " + group[:size].center(size)
        elif not group:
            text += ("  " if place else "") + " " * widths[at]
    return text.rstrip()


def _number(cell: Cell, is_count: bool) -> str:
    """Return a number. A count of zero is a dot, so that other counts are easy to see."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(cell)
    return f"{cell:,}" if cell or not is_count else "·"


def _fit(text: str, width: int, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)
