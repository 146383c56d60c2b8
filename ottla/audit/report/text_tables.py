"""Tables of text: the partitions, and any list of rows. pure"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.audit.audited import PartitionAudit
from ottla.printable import printable
from ottla.scan.storage import shown

BOLD, DIM, RED, YELLOW, GREEN, PLAIN = "\033[1m", "\033[2m", "\033[31m", "\033[33m", "\033[32m", "\033[0m"

Cell = str | int | None


class Style:
    """Colours, or none."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{PLAIN}" if self._colour and text else text


class Head(NamedTuple):
    """A column: its group, two lines of its head, whether it is a count, which sums up and whose zero is a dot."""

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
# What a narrow terminal does without, in this order.
_DROPPED = ([8, 9, 10, 11], [2], [5, 6])
_SHORTEST_TOPIC = 12


def partition_table(rows: Sequence[PartitionAudit], replicated: set[str], style: Style, width: int | None) -> str:
    """One line per partition and a sum. A last stable offset below the log end is marked.

    Those in `replicated` are in several directories, so their line names the directory.
    """
    lines: list[list[Cell]] = [_cells(one) for one in rows]
    for index, one in enumerate(rows):
        if one.name in replicated:
            lines[index][_TOPIC] = f"{one.log.topic} ({shown(one.directory)})"
    if len(rows) > 1:
        sums: list[Cell] = [
            sum(int(line[at] or 0) for line in lines) if head.is_count else None for at, head in enumerate(_HEADS)
        ]
        lines.append(["all", *sums[1:]])
    cells = [[_number(cell, _HEADS[at].is_count) for at, cell in enumerate(line)] for line in lines]
    for index, line in enumerate(cells):
        held = index < len(rows) and rows[index].last_stable_offset < rows[index].log_end
        line[_STABLE] += " ◂" if held else "  "
    kept = _fitting(cells, width)
    return "\n".join(_drawn(cells, lines, kept, len(rows), style))


def plain_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], left: set[str], dropped: Sequence[str], width: int | None
) -> list[str]:
    """A line of heads and one for each row. Columns in `left` are aligned to the left, the others to the right.

    Those in `dropped` are left out, one after the other, until a line fits into `width`.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = {head: max(len(head), *(len(row[at]) for row in rows)) for at, head in enumerate(heads)}
    kept = list(heads)
    for head in dropped:
        if width is None or sum(widths[one] + 2 for one in kept) - 2 <= width:
            break
        kept.remove(head)

    def line(cells: Sequence[str]) -> str:
        named = zip(heads, cells, strict=True)
        return "  ".join(_fit(cell, widths[head], head in left) for head, cell in named if head in kept).rstrip()

    return [line(heads), *map(line, rows)]


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


def _fitting(cells: list[list[str]], width: int | None) -> list[int]:
    """The columns that fit into `width`; the topics are cut before the last ones are left out."""
    kept = list(range(len(_HEADS)))
    if width is None:
        return kept
    for dropped in ((), *_DROPPED):
        kept = [at for at in kept if at not in dropped]
        over = len(_row(kept, _widths(cells, kept), cells[0])) - width
        topic = _widths(cells, kept)[_TOPIC]
        if over <= 0:
            return kept
        if topic - over >= _SHORTEST_TOPIC:
            for line in cells:
                line[_TOPIC] = _shortened(line[_TOPIC], topic - over)
            return kept
    for line in cells:
        line[_TOPIC] = _shortened(line[_TOPIC], _SHORTEST_TOPIC)
    return kept


def _drawn(
    cells: list[list[str]], values: list[list[Cell]], kept: list[int], partitions: int, style: Style
) -> list[str]:
    widths = _widths(cells, kept)
    out = [style(DIM, _group_line(kept, widths))]
    for second in (False, True):
        out.append(style(BOLD, _row(kept, widths, [head.second if second else head.first for head in _HEADS])))
    rule = "─" * len(_row(kept, widths, cells[0]))
    out.append(style(DIM, rule))
    for index, line in enumerate(cells):
        if index == partitions:
            out.append(style(DIM, rule))
        text = _row(kept, widths, line)
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
    """The names of the groups, each above its columns."""
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
    """A count of zero is a dot: what happened stands out."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(cell)
    return f"{cell:,}" if cell or not is_count else "·"


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _fit(text: str, width: int, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)
