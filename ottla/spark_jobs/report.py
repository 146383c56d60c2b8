"""The audit as text for a person and as JSON for a program. pure"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ottla.spark_jobs.audit_scan import Audit
from ottla.spark_jobs.coordinator import OpenFinding, Verdict
from ottla.spark_jobs.damage import Damage
from ottla.spark_jobs.fates import PartitionFates
from ottla.spark_jobs.listing import PartitionLog

Cell = str | int | None

# Column group, first header line, second header line.
_PARTITION_HEADS = [
    ("", "", "topic"),
    ("", "", "partition"),
    ("offsets", "log", "start"),
    ("offsets", "high", "watermark"),
    ("offsets", "last", "stable"),
    ("transactions", "", "committed"),
    ("transactions", "", "aborted"),
    ("transactions", "", "open"),
    ("records", "", "committed"),
    ("records", "", "aborted"),
    ("records", "", "open"),
    ("records", "no", "transaction"),
]
_OPEN_HEADS = ["topic", "partition", "transactional id", "producer id", "epoch", "first offset", "records", "age"]
_NUMBERS_FROM = 1
_COUNTS_FROM = 5

_BOLD, _DIM, _RED, _GREEN, _PLAIN = "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m"


class Style:
    """Colours, or none."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_PLAIN}" if self._colour and text else text


def text_report(audit: Audit, *, every_partition: bool, colour: bool) -> str:
    """Tables and the verdict. Internal topics are left out unless they have findings or `every_partition`."""
    style = Style(colour)
    shown = [
        (log, fates)
        for log, fates in audit.partitions
        if every_partition or not log.is_internal or fates.open_transactions or fates.damage
    ]
    parts = [_title(audit, style), partition_table(shown, style)]
    hidden = len(audit.partitions) - len(shown)
    if hidden:
        parts[-1] += style(
            _DIM, f"\nInternal topics were audited too ({hidden} {_plural('partition', hidden)}); --all shows them"
        )
    if audit.open_transactions:
        parts.append(open_table(audit.open_transactions, style))
    if audit.damage:
        parts.append(_places("Damage: these bytes cannot be read", audit.damage, style, _RED))
    if audit.torn:
        parts.append(
            _places("Torn tails: the log ends before them, as after a crash or amid a write", audit.torn, style, _DIM)
        )
    parts.append(_verdict(audit, style))
    return "\n\n".join(parts) + "\n"


def partition_table(rows: Sequence[tuple[PartitionLog, PartitionFates]], style: Style) -> str:
    """One line per partition and a sum. A last stable offset below the high watermark is marked."""
    if not rows:
        return "No user topics."
    lines: list[list[Cell]] = [_partition_cells(log, fates) for log, fates in rows]
    if len(rows) > 1:
        counts = range(_COUNTS_FROM, len(_PARTITION_HEADS))
        lines.append(["all", None, None, None, None, *(sum(int(line[at] or 0) for line in lines) for at in counts)])
    cells = [[_number(cell, at >= _COUNTS_FROM) for at, cell in enumerate(line)] for line in lines]
    for line, (_, fates) in zip(cells, rows, strict=False):
        line[4] += " ◂" if fates.last_stable_offset < fates.high_watermark else "  "
    if len(rows) > 1:
        cells[-1][4] += "  "
    widths = [max(len(line[at]) for line in cells) for at in range(len(_PARTITION_HEADS))]
    widths = [
        max(width, len(first), len(second)) for width, (_, first, second) in zip(widths, _PARTITION_HEADS, strict=True)
    ]
    out = [style(_DIM, _group_line(widths)), *(style(_BOLD, line) for line in _head_lines(widths))]
    rule = "─" * len(_row(widths, cells[0]))
    out.append(style(_DIM, rule))
    for index, (line, values) in enumerate(zip(cells, lines, strict=True)):
        if index == len(rows):
            out.append(style(_DIM, rule))
        text = _row(widths, line)
        out.append(style(_BOLD, text) if values[7] else text)
    return "\n".join(out)


def open_table(found: Sequence[OpenFinding], style: Style) -> str:
    """One line per open transaction; a second one with what to do for those that hang."""
    cells = [
        [
            one.topic,
            str(one.partition),
            one.transactional_id or "unknown",
            str(one.producer_id),
            str(one.producer_epoch),
            f"{one.first_offset:,}",
            f"{one.records:,}",
            duration(one.age_ms),
        ]
        for one in found
    ]
    widths = [max(len(head), *(len(line[at]) for line in cells)) for at, head in enumerate(_OPEN_HEADS)]
    left = {0, 2}
    heads = "  ".join(_fit(head, widths[at], at in left) for at, head in enumerate(_OPEN_HEADS)) + "  verdict"
    out = [style(_BOLD, "Open transactions"), style(_DIM, heads)]
    for one, line in zip(found, cells, strict=True):
        text = "  ".join(_fit(cell, widths[at], at in left) for at, cell in enumerate(line))
        out.append(f"{text}  {style(_RED if one.is_hanging else _GREEN, _explained(one))}")
        if one.is_hanging:
            out.append(style(_DIM, f"    to end it: {one.action}"))
    return "\n".join(out)


def json_report(audit: Audit) -> str:
    """One JSON object: directory, time, partitions, open_transactions, damage, torn_tails."""
    content: dict[str, Any] = {
        "directory": audit.directory,
        "audited_at_ms": audit.now_ms,
        "partitions": [_partition_json(log, fates) for log, fates in audit.partitions],
        "open_transactions": [one._asdict() | {"hanging": one.is_hanging} for one in audit.open_transactions],
        "damage": [{"topic_partition": name, **damage._asdict()} for name, damage in audit.damage],
        "torn_tails": [{"topic_partition": name, **tail._asdict()} for name, tail in audit.torn],
    }
    return json.dumps(content, indent=2) + "\n"


def duration(milliseconds: int | None) -> str:
    """Two units at most: `59 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if milliseconds is None:
        return "unknown"
    if milliseconds < 0:
        return "in the future"
    seconds = milliseconds // 1000
    for large, small, size, step in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if seconds >= size:
            rest = seconds % size // step
            return f"{seconds // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"


def _partition_cells(log: PartitionLog, fates: PartitionFates) -> list[Cell]:
    tallies = (fates.committed, fates.aborted, fates.opened)
    return [
        log.topic,
        str(log.partition),
        fates.log_start,
        fates.high_watermark,
        fates.last_stable_offset,
        *(tally.transactions for tally in tallies),
        *(tally.records for tally in tallies),
        fates.plain_records,
    ]


def _partition_json(log: PartitionLog, fates: PartitionFates) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "log_start": fates.log_start,
        "high_watermark": fates.high_watermark,
        "last_stable_offset": fates.last_stable_offset,
        "transactions": {
            "committed": fates.committed.transactions,
            "aborted": fates.aborted.transactions,
            "open": fates.opened.transactions,
        },
        "records": {
            "committed": fates.committed.records,
            "aborted": fates.aborted.records,
            "open": fates.opened.records,
            "non_transactional": fates.plain_records,
        },
        "batches": fates.batches,
        "size_bytes": fates.size_bytes,
    }


def _title(audit: Audit, style: Style) -> str:
    size = sum(log.size_bytes for log, _ in audit.partitions)
    batches = sum(fates.batches for _, fates in audit.partitions)
    moment = datetime.fromtimestamp(audit.now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    count = len(audit.partitions)
    facts = f"{moment}, {count} {_plural('partition', count)}, {_bytes(size)}, "
    facts += f"{batches:,} {'batch' if batches == 1 else 'batches'}"
    return f"{style(_BOLD, f'Audit of {audit.directory}')}\n{style(_DIM, facts)}"


def _verdict(audit: Audit, style: Style) -> str:
    if not audit.has_findings:
        waiting = len(audit.open_transactions)
        rest = f"{waiting} open and in time, all others decided" if waiting else "every transaction is decided"
        return style(_GREEN, f"Clean: {rest}; every batch is sound.")
    found = []
    for verdict in (Verdict.OVERDUE, Verdict.FORGOTTEN):
        if count := sum(one.verdict is verdict for one in audit.hanging):
            found.append(f"{count} {_plural('transaction', count)} {verdict}")
    if audit.damage:
        found.append(f"{len(audit.damage)} damaged {_plural('place', len(audit.damage))}")
    return style(_RED, f"Findings: {', '.join(found)}.")


def _explained(one: OpenFinding) -> str:
    limit = f"its timeout of {duration(one.timeout_ms)}" if one.timeout_ms is not None else "the largest timeout"
    if one.verdict is Verdict.OVERDUE:
        return f"overdue: open beyond {limit}"
    if one.verdict is Verdict.FORGOTTEN:
        return "forgotten: the coordinator holds no such transaction open"
    return f"in time: {limit}"


def _places(title: str, places: Sequence[tuple[str, Damage]], style: Style, code: str) -> str:
    lines = [
        f"{name}  {damage.path}\n    position {damage.position:,} to {damage.end_position:,}: {damage.reason}"
        for name, damage in places
    ]
    return "\n".join([style(_BOLD, title), *(style(code, line) for line in lines)])


def _number(cell: Cell, is_count: bool) -> str:
    """A count of zero is a dot: what happened stands out."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if cell or not is_count else "·"


def _row(widths: Sequence[int], cells: Sequence[str]) -> str:
    text = ""
    for at, cell in enumerate(cells):
        starts_group = at and _PARTITION_HEADS[at][0] != _PARTITION_HEADS[at - 1][0]
        text += (" │ " if starts_group else "  " if at else "") + _fit(cell, widths[at], at < _NUMBERS_FROM)
    return text


def _head_lines(widths: Sequence[int]) -> list[str]:
    return [_row(widths, [head[line] for head in _PARTITION_HEADS]) for line in (1, 2)]


def _group_line(widths: Sequence[int]) -> str:
    """The names of the groups, each above its columns."""
    text = ""
    for at, (group, _, _) in enumerate(_PARTITION_HEADS):
        if at and group != _PARTITION_HEADS[at - 1][0]:
            size = sum(widths[i] + 2 for i, head in enumerate(_PARTITION_HEADS) if head[0] == group) - 2
            text += " │ " + group.center(size)
        elif not group:
            text += ("  " if at else "") + " " * widths[at]
    return text.rstrip()


def _fit(text: str, width: int, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _bytes(size: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"
