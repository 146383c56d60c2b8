"""An audit as text for a terminal: the verdict first, then tables, findings, and actions. pure"""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from ottla.audit.audited import Audit, PartitionAudit, names_with_findings
from ottla.audit.checks.finding import CHECKS, NOUNS, Finding, Severity
from ottla.audit.checks.hanging import Verdict
from ottla.audit.checks.once import phrases
from ottla.audit.checks.shape import Model
from ottla.audit.checks.words import count
from ottla.audit.report import open_now
from ottla.audit.report.columns import lay_out
from ottla.audit.report.text_tables import partition_table
from ottla.colours import BOLD, DIM, GREEN, RED, YELLOW, Style
from ottla.printable import printable
from ottla.protocol.times import utc
from ottla.scan.storage import hide_secrets as shown_path

_COLOURS = {"error": RED, "warning": YELLOW, "info": DIM, "clean": GREEN, "waiting": YELLOW}
# At most this many findings of one check and severity are shown; JSON has all.
_MOST_SHOWN = 20
_WIDEST_PROSE = 120
_CHART_SIZES = [10**power for power in range(6)]
_CHART_BAR = 40
# A command line is at the end of an action, alone or after a colon.
_COMMAND = re.compile(r"(?:^|(?<=: ))(?:kafka-[a-z-]+\.sh|kafka-python|ottla txn) .*$")


def text_report(audit: Audit, *, everything: bool, colour: bool, width: int | None = None) -> str:
    """Return the report. Internal topics without findings, and information, are left out unless `everything` is set.

    `width`: the width of the terminal; None, without a terminal, means 120.
    """
    style = Style(colour)
    width = width or _WIDEST_PROSE
    prose = min(width, _WIDEST_PROSE)
    parts = [_title(audit, style, prose), _verdict(audit, style, prose), _partitions(audit, everything, style, width)]
    if audit.open_transactions:
        parts.append(_open_transactions(audit, style, width))
    reported = [one for one in audit.findings if everything or one.is_at_least("warning")]
    if reported:
        parts.append(_findings(reported, style, prose))
    parts.append(style(DIM, _limits(audit, everything, prose)))
    if len(reported) < len(audit.findings):
        notes = Counter(one.check for one in audit.findings if not one.is_at_least("warning"))
        parts.append(style(DIM, _wrap(_notes(notes), prose)))
    if everything and audit.model is not None and "shape" in audit.checks:
        parts.append(chart(audit.model, style))
    return "\n\n".join(part for part in parts if part) + "\n"


def _limits(audit: Audit, everything: bool, width: int) -> str:
    lines = limits(audit, everything)
    return "\n".join(_wrap(line, width) for line in lines)


def limits(audit: Audit, everything: bool) -> list[str]:
    """Return lines on what the audit could not see at its source, without internal topics if not `everything`."""
    source = audit.source
    lines = [f"Read until {utc(source.read_until_ms)}."] if source.read_until_ms is not None else []
    for words, found in (("Not checked", source.not_checked), ("Checked in part", source.reduced)):
        shown = [one for one in found if everything or not one.reason.startswith("__")]
        lines += [f"{words}: {one.check}: {one.reason}" for one in shown[:_MOST_SHOWN]]
        if len(shown) > _MOST_SHOWN:
            lines.append(f"{words}: {len(shown) - _MOST_SHOWN:,} more; --format json has all")
    return lines


def chart(model: Model, style: Style) -> str:
    """Draw the fitted throughput over the size of a transaction."""
    rates = [model.bytes_per_second(size) for size in _CHART_SIZES]
    lines = [style(BOLD, "Throughput of one producer by records in a transaction, N S / (N T_write + O_tx)")]
    for size, rate in zip(_CHART_SIZES, rates, strict=True):
        bar = "█" * max(1, round(_CHART_BAR * rate / max(rates)))
        lines.append(f"{size:>9,}  {bar.ljust(_CHART_BAR)}  {rate / 1e6:,.3f} MB/s")
    return "\n".join(lines)


def _title(audit: Audit, style: Style, width: int) -> str:
    size = sum(one.known_bytes for one in audit.partitions)
    batches = sum(one.batches for one in audit.partitions)
    facts = [utc(audit.now_ms), count(len(audit.partitions), "partition"), size_words(size)]
    facts += [count(batches, "batch", "batches"), *phrases(audit.ended)] if audit.source.has_records else []
    then = f"; as of {audit.as_of}: what a read_committed consumer would have seen then" if audit.as_of else ""
    return f"{style(BOLD, printable(audit.title))}\n{style(DIM, _wrap(', '.join(facts) + then, width, ''))}"


def verdict(audit: Audit) -> tuple[str, Severity | Literal["clean", "waiting"]]:
    """Return the audit in one sentence, and its severity. "waiting": nothing is wrong, but transactions are open."""
    wrong = audit.at_least("warning")
    if not wrong:
        if audit.source.has_records and not any(one.batches for one in audit.partitions):
            then = f" as of {audit.as_of}" if audit.as_of else ""
            return f"Nothing to check: no batch in {count(len(audit.partitions), 'partition')}{then}.", "clean"
        text, worst = _without_findings(audit)
        unread = len(audit.source.unread)
        return (f"{text} {count(unread, 'partition')} could not be read.", "waiting") if unread else (text, worst)
    many = Counter(one.check for one in wrong)
    parts = [count(many[check], *nouns) for check, nouns in NOUNS.items() if many[check]]
    return f"Findings: {', '.join(parts)}.", "error" if audit.at_least("error") else "warning"


def _without_findings(audit: Audit) -> tuple[str, Literal["clean", "waiting"]]:
    """Return the verdict if there are no findings. It claims only what the selected checks can prove."""
    checked_all = {"hanging", "damage"} <= set(audit.checks)
    by_some = f"othing found by {', '.join(audit.checks)}"
    # The directories lack the decisions or the markers for a comparison.
    is_unproved = any(one.check == "torn" for one in audit.findings)
    listed = "hat the coordinator's log cannot prove is listed with --all"
    waits = open_now.waiting(audit)
    if waits.transactions:
        is_unverifiable = any(one.verdict is Verdict.UNVERIFIABLE for one in audit.open_transactions)
        nothing = "No fault is proved" if is_unverifiable else "Nothing is broken"
        start = nothing if checked_all else f"N{by_some}"
        return f"{start}. {open_now.sentence(waits)}.{f' W{listed}.' if is_unproved else ''}", "waiting"
    if not checked_all:
        return f"Clean: n{by_some}.", "clean"
    return f"Clean: every transaction is decided; every batch is sound{f'; w{listed}' if is_unproved else ''}.", "clean"


def _verdict(audit: Audit, style: Style, width: int) -> str:
    text, worst = verdict(audit)
    return style(_COLOURS[worst], _wrap(printable(text), width))


def _partitions(audit: Audit, everything: bool, style: Style, width: int) -> str:
    shown, hidden = split_internal(audit, everything)
    text = partition_table(shown, audit.replicated, style, width) if shown else "No user topics."
    return text + (style(DIM, f"\n{internal_words(hidden)}") if hidden else "")


def split_internal(audit: Audit, everything: bool) -> tuple[list[PartitionAudit], list[PartitionAudit]]:
    """Return the partitions to show and the hidden ones: internal topics without findings, if not `everything`."""
    named = names_with_findings(audit.findings)
    hidden = [
        one
        for one in audit.partitions
        if not everything and one.log.is_internal and not one.open_transactions and one.name not in named
    ]
    out = {id(one) for one in hidden}
    return [one for one in audit.partitions if id(one) not in out], hidden


def internal_words(hidden: Sequence[PartitionAudit]) -> str:
    """Return a sentence about the partitions that are not shown; empty if all are shown."""
    return f"Internal topics were audited too ({count(len(hidden), 'partition')}); --all shows them" if hidden else ""


def _open_transactions(audit: Audit, style: Style, width: int) -> str:
    rows = open_now.open_rows(audit)
    heads: Sequence[str] = _OPEN_HEADS
    cells = [_open_cells(row) for row in rows]
    layout = lay_out(heads, cells, _OPEN_NUMERIC, width, " ")
    while layout.width > width and len(heads) > _OPEN_AT_LEAST:
        heads, cells = heads[:-1], [line[:-1] for line in cells]
        layout = lay_out(heads, cells, _OPEN_NUMERIC[: len(heads)], width, " ")
    out = [style(BOLD, "Open transactions"), *(style(DIM, line) for line in layout.lines(heads, " "))]
    for row, line in zip(rows, cells, strict=True):
        verdict = str(row.open.verdict)
        text = "\n".join(layout.lines(line))
        head, found, rest = text.rpartition(verdict) if verdict in text else (text, "", "")
        out.append(head + style(RED if row.open.is_hanging else YELLOW, found) + rest)
    commands = open_now.commands(rows)
    if commands:
        out.append(style(DIM, "Ask the brokers what holds a partition back:"))
        out += [f"  {command}" for command in commands[:_MOST_SHOWN]]
    if len(commands) > _MOST_SHOWN:
        out.append(style(DIM, f"and for {count(len(commands) - _MOST_SHOWN, 'more partition')}; --format json has all"))
    return "\n".join(out)


# The last parts are left out on a narrow terminal.
_OPEN_HEADS = ("transactional id", "open since", "topic", "partition", "withheld", "verdict", "first offset", "records")
_OPEN_NUMERIC = (False, False, False, True, True, False, True, True)
_OPEN_AT_LEAST = 6


def _open_cells(row: open_now.OpenRow) -> list[str]:
    one = row.open
    return [
        printable(one.transactional_id or "") or f"unknown (producer {one.producer_id}, epoch {one.producer_epoch})",
        row.since,
        one.topic,
        str(one.partition),
        f"{row.withheld:,}",
        str(one.verdict),
        f"{one.first_offset:,}",
        f"{one.records:,}",
    ]


def _findings(findings: Sequence[Finding], style: Style, width: int) -> str:
    out = [style(BOLD, "Findings")]
    shown: Counter[tuple[str, str]] = Counter()
    for one in findings:
        shown[one.check, one.severity] += 1
        if shown[one.check, one.severity] > _MOST_SHOWN:
            continue
        where = one.place or one.transactional_id or "all partitions"
        out.append(f"{style(_COLOURS[one.severity], one.severity)} {one.check}  {style(BOLD, printable(where))}")
        out.append(_wrap(one.message, width, "  "))
        if one.file is not None:
            position = "" if one.position is None else f" position {one.position:,}"
            out.append(style(DIM, printable(f"  in {shown_path(one.file)}{position}")))
        if one.severity != "info":
            advice, command = split_action(one.action)
            out.append(_wrap(f"→ {advice or 'run:'}", width, "  "))
            out += [f"    {command}"] if command else []
    for (check, severity), many in shown.items():
        if many > _MOST_SHOWN:
            out.append(style(DIM, f"{many - _MOST_SHOWN:,} more of {severity} {check}; --format json has all"))
    return "\n".join(out)


def split_action(action: str) -> tuple[str, str]:
    """Return the text of an action, and the command line at its end; an empty string without one."""
    found = _COMMAND.search(action)
    return (action[: found.start()].rstrip(), found[0]) if found else (action, "")


def _notes(notes: Counter[str]) -> str:
    parts = [f"{check} {notes[check]:,}" for check in CHECKS if notes[check]]
    return f"{count(sum(notes.values()), 'note')} in addition to the findings ({', '.join(parts)}); --all shows them"


def _wrap(text: str, width: int, indent: str = "") -> str:
    """Wrap text. Commands and paths are not broken."""
    return textwrap.fill(
        printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def size_words(size: int) -> str:
    """Return a size such as `1.5 MiB`."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"
