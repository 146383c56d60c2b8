"""An audit as text for a terminal: the verdict first, then tables, findings, and what to do. pure"""

import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from ottla.audit.audited import Audit, PartitionAudit, names_with_findings
from ottla.audit.checks.finding import CHECKS, Finding, Severity
from ottla.audit.checks.hanging import OpenFinding, Verdict
from ottla.audit.checks.shape import Model
from ottla.audit.checks.words import count, duration
from ottla.audit.report.text_tables import BOLD, DIM, GREEN, RED, YELLOW, Style, partition_table, plain_table
from ottla.scan.storage import shown as shown_path

_COLOURS: dict[Severity, str] = {"error": RED, "warning": YELLOW, "info": DIM}
# Of one check and severity as many are shown; JSON has all.
_MOST_SHOWN = 20
_WIDEST_PROSE = 120
_CHART_SIZES = [10**power for power in range(6)]
_CHART_BAR = 40
# What a check finds, for the verdict.
_NOUNS = {
    "damage": "damaged place",
    "unread": "batch that was not checked",
    "hanging": "hanging transaction",
    "torn": "torn transaction",
    "sequence": "break in a sequence",
    "zombie": "write of a zombie",
    "reused": "commit that may lack its records",
    "index": "wrong index entry",
    "gaps": "range of lost offsets",
    "copies": "input without exactly one output",
    "stale": "idle producer",
    "shape": "remark on the shape",
}
_PLURALS = {
    "unread": "batches that were not checked",
    "sequence": "breaks in sequences",
    "zombie": "writes of zombies",
    "reused": "commits that may lack their records",
    "index": "wrong index entries",
    "gaps": "ranges of lost offsets",
    "copies": "inputs without exactly one output",
    "shape": "remarks on the shape",
}


def text_report(audit: Audit, *, everything: bool, colour: bool, width: int | None = None) -> str:
    """The report. Internal topics and information are left out unless they have findings or `everything` is asked for.

    `width`: of the terminal; None where there is none.
    """
    style = Style(colour)
    prose = min(width or _WIDEST_PROSE, _WIDEST_PROSE)
    parts = [_title(audit, style, prose), _verdict(audit, style, prose), _partitions(audit, everything, style, width)]
    if audit.open_transactions:
        parts.append(_open_transactions(audit.open_transactions, style, width))
    told = [one for one in audit.findings if everything or one.is_at_least("warning")]
    if told:
        parts.append(_findings(told, style, prose))
    if len(told) < len(audit.findings):
        notes = Counter(one.check for one in audit.findings if not one.is_at_least("warning"))
        parts.append(style(DIM, _wrapped(_notes(notes), prose)))
    if everything and audit.model is not None and "shape" in audit.checks:
        parts.append(chart(audit.model, style))
    return "\n\n".join(part for part in parts if part) + "\n"


def chart(model: Model, style: Style) -> str:
    """The fitted throughput over the size of a transaction."""
    rates = [model.bytes_per_second(size) for size in _CHART_SIZES]
    lines = [style(BOLD, "Throughput of one producer by records in a transaction, N S / (N T_write + O_tx)")]
    for size, rate in zip(_CHART_SIZES, rates, strict=True):
        bar = "█" * max(1, round(_CHART_BAR * rate / max(rates)))
        lines.append(f"{size:>9,}  {bar.ljust(_CHART_BAR)}  {rate / 1e6:,.3f} MB/s")
    return "\n".join(lines)


def _title(audit: Audit, style: Style, width: int) -> str:
    size = sum(one.log.size_bytes for one in audit.partitions)
    batches = sum(one.batches for one in audit.partitions)
    moment = datetime.fromtimestamp(audit.now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = f"{moment}, {count(len(audit.partitions), 'partition')}, {size_words(size)}, "
    facts += count(batches, "batch", "batches")
    if audit.as_of:
        facts += f"; as of {audit.as_of}: what a read_committed consumer would have seen then"
    return f"{style(BOLD, audit.title)}\n{style(DIM, _wrapped(facts, width, ''))}"


def verdict(audit: Audit) -> tuple[str, Severity | Literal["clean"]]:
    """The audit in one sentence, and how bad it is."""
    wrong = audit.at_least("warning")
    if not wrong:
        if not any(one.batches for one in audit.partitions):
            then = f" as of {audit.as_of}" if audit.as_of else ""
            return (
                f"Nothing was there to check: no batch in {count(len(audit.partitions), 'partition')}{then}.",
                "clean",
            )
        return f"Clean: {_clean(audit)}.", "clean"
    many = Counter(one.check for one in wrong)
    parts = [count(many[check], _NOUNS[check], _PLURALS.get(check)) for check in CHECKS if many[check]]
    return f"Findings: {', '.join(parts)}.", "error" if audit.at_least("error") else "warning"


def _clean(audit: Audit) -> str:
    """No more than the checks that were made can tell."""
    if not {"hanging", "damage"} <= set(audit.checks):
        return f"nothing found by {', '.join(audit.checks)}"
    waiting = len(audit.open_transactions)
    how = "" if any(one.verdict is Verdict.THEN for one in audit.open_transactions) else " and in time"
    rest = f"{waiting} open{how}, all others decided" if waiting else "every transaction is decided"
    unproved = "; what the coordinator's log cannot prove is told with --all" if _unproved(audit) else ""
    return f"{rest}; every batch is sound{unproved}"


def _unproved(audit: Audit) -> bool:
    """Whether markers or decisions had nothing to be compared with."""
    return any(one.check == "torn" for one in audit.findings)


def _verdict(audit: Audit, style: Style, width: int) -> str:
    text, worst = verdict(audit)
    return style(GREEN, text) if worst == "clean" else style(_COLOURS[worst], _wrapped(text, width))


def _partitions(audit: Audit, everything: bool, style: Style, width: int | None) -> str:
    shown, hidden = parted(audit, everything)
    text = partition_table(shown, audit.replicated, style, width) if shown else "No user topics."
    return text + (style(DIM, f"\n{internal_words(hidden)}") if hidden else "")


def parted(audit: Audit, everything: bool) -> tuple[list[PartitionAudit], list[PartitionAudit]]:
    """The partitions to show, and those of internal topics with nothing to tell, unless everything is shown."""
    named = names_with_findings(audit.findings)
    hidden = [
        one
        for one in audit.partitions
        if not everything and one.log.is_internal and not one.open_transactions and one.name not in named
    ]
    out = {id(one) for one in hidden}
    return [one for one in audit.partitions if id(one) not in out], hidden


def internal_words(hidden: Sequence[PartitionAudit]) -> str:
    """What stands for the partitions that are not shown; empty without any."""
    return f"Internal topics were audited too ({count(len(hidden), 'partition')}); --all shows them" if hidden else ""


def _open_transactions(found: Sequence[OpenFinding], style: Style, width: int | None) -> str:
    heads = ["topic", "partition", "transactional id", "producer id", "epoch", "first offset", "records", "age"]
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
            str(one.verdict),
        ]
        for one in found
    ]
    left = {"topic", "transactional id", "verdict"}
    dropped = ("producer id", "epoch", "records", "age")
    head, *lines = plain_table([*heads, "verdict"], cells, left, dropped, width)
    out = [style(BOLD, "Open transactions"), style(DIM, head)]
    for one, line in zip(found, lines, strict=True):
        verdict = str(one.verdict)
        out.append(line.removesuffix(verdict) + style(RED if one.is_hanging else GREEN, verdict))
    return "\n".join(out)


def _findings(findings: Sequence[Finding], style: Style, width: int) -> str:
    out = [style(BOLD, "Findings")]
    shown: Counter[tuple[str, str]] = Counter()
    for one in findings:
        shown[one.check, one.severity] += 1
        if shown[one.check, one.severity] > _MOST_SHOWN:
            continue
        where = one.place or one.transactional_id or "all partitions"
        out.append(f"{style(_COLOURS[one.severity], one.severity)} {one.check}  {style(BOLD, where)}")
        out.append(_wrapped(one.message, width, "  "))
        if one.file is not None:
            position = "" if one.position is None else f" position {one.position:,}"
            out.append(style(DIM, f"  in {shown_path(one.file)}{position}"))
        if one.severity != "info":
            out.append(_wrapped(f"→ {one.action}", width, "  "))
    for (check, severity), many in shown.items():
        if many > _MOST_SHOWN:
            out.append(style(DIM, f"{many - _MOST_SHOWN:,} more of {severity} {check}; --format json has all"))
    return "\n".join(out)


def _notes(notes: Counter[str]) -> str:
    parts = [f"{check} {notes[check]:,}" for check in CHECKS if notes[check]]
    return f"{count(sum(notes.values()), 'note')} beside the findings ({', '.join(parts)}); --all shows them"


def _wrapped(text: str, width: int, indent: str = "") -> str:
    """Commands and paths are not broken."""
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def size_words(size: int) -> str:
    """`1.5 MiB`."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"
