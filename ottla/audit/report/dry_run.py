"""The result of `--dry-run`, as text and as JSON. pure"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.audit.checks.words import count
from ottla.audit.report.columns import lay_out
from ottla.audit.report.text import size_words
from ottla.printable import printable
from ottla.protocol.acls import OPERATION_NAMES, RESOURCE_TYPE_NAMES
from ottla.protocol.times import duration

if TYPE_CHECKING:
    from ottla.audit.dry_run import DryRun, MissingRight
    from ottla.audit.listed import Listed

_HEADS = ("partition", "start", "end", "size", "")
_NUMERIC = (False, True, True, True, False)


def text(found: "DryRun", width: int) -> str:
    """Return the partitions, an estimate of the duration, and the commands that add the missing rights."""
    required = [one for one in found.missing if one.is_required]
    useful = [one for one in found.missing if not one.is_required]
    parts = [
        [f"Dry run of the audit of {found.source}. No record was read."],
        [*_partitions(found, width)],
        [_estimate(found)],
        [*_rights(found, "Records of these topics cannot be read without these rights:", required)],
        [*_rights(found, "Some checks see less without these rights:", useful)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def json_lines(found: "DryRun") -> str:
    """Return one JSON object per line: each partition, each missing right, the totals."""
    rows = [*map(_partition_row, found.listed), *(_right_row(found, one) for one in found.missing), _totals(found)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _partitions(found: "DryRun", width: int) -> Iterator[str]:
    order = sorted(found.listed, key=lambda one: one.log.topic.startswith("__"))  # topics of users first
    empty = Counter(one.log.topic for one in order if _is_empty(one))
    rows = [_cells(one) for one in order if not _is_empty(one)]
    rows += [(printable(topic), "", "", "", count(number, "empty partition")) for topic, number in empty.items()]
    cells = [_HEADS, *rows]
    layout = lay_out(_HEADS, cells, _NUMERIC, width)
    for row in cells if len(cells) > 1 else ():
        yield from layout.lines(row)


def _is_empty(one: "Listed") -> bool:
    return not one.unread and one.log.least_end == one.log.log_start


def _cells(one: "Listed") -> tuple[str, ...]:
    log = one.log
    is_replica = log.window is not None and log.window.replica >= 0
    name = f"{log.name} ({one.directory})" if is_replica else log.name
    if one.unread:
        return printable(name), "", "", "", printable(f"not read: {one.unread}")
    size = size_words(log.size_bytes) if one.has_size else "unknown"
    return printable(name), f"{log.log_start:,}", f"{log.least_end:,}", size, ""


def _estimate(found: "DryRun") -> str:
    readable, sized = len(found.readable), len(found.sized)
    total = f"{count(readable, 'partition')}, {size_words(found.size_bytes)}"
    if sized < readable:
        total += f" (the brokers give no size of {readable - sized:,})"
    if not found.has_records:
        return f"{total}: no record is read, because the leaders name the open transactions."
    basis = (
        f"{found.rate:,} bytes per second, an assumption: see how fast your first audit is"
        if found.is_rate_assumed
        else f"{found.rate:,} bytes per second, the limit of --max-bytes-per-second"
    )
    seconds = max(1, round(found.seconds))
    return f"{total}: {'about' if found.seconds >= 1 else 'below'} {duration(seconds * 1000)} at {basis}."


def _rights(found: "DryRun", head: str, missing: "Sequence[MissingRight]") -> Iterator[str]:
    if missing:
        yield head
        yield from (f"{found.command(one)}   # {one.purpose}" for one in missing)


def _partition_row(one: "Listed") -> dict[str, Any]:
    log = one.log
    row: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
    if log.window is not None and log.window.replica >= 0:
        row["replica"] = log.window.replica
    if one.unread:
        return {**row, "unread": one.unread}
    return {**row, "start": log.log_start, "end": log.least_end, "bytes": log.size_bytes or None}


def _right_row(found: "DryRun", one: "MissingRight") -> dict[str, Any]:
    return {
        "missing": OPERATION_NAMES[one.operation],
        "resource": RESOURCE_TYPE_NAMES[one.kind],
        "name": one.name,
        "required": one.is_required,
        "purpose": one.purpose,
        "command": found.command(one),
    }


def _totals(found: "DryRun") -> dict[str, Any]:
    return {
        "source": found.source,
        "partitions": len(found.readable),
        "unread": len(found.listed) - len(found.readable),
        "unknown_sizes": len(found.readable) - len(found.sized),
        "bytes": found.size_bytes,
        "seconds": round(found.seconds, 1),
        "bytes_per_second": found.rate,
        "rate": "assumed" if found.is_rate_assumed else "limit",
        "may_read_all": found.may_read_all,
    }
