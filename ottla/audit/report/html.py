"""An audit as one HTML file that needs nothing else: verdict, findings, timelines of transactions, charts. pure"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ottla.audit.audited import Audit, PartitionAudit, names_with_findings
from ottla.audit.checks.finding import CHECKS, Finding
from ottla.audit.checks.once import phrases
from ottla.audit.checks.words import count
from ottla.audit.report import charts, open_now, timeline
from ottla.audit.report.page import anchor, element, page, table
from ottla.audit.report.text import internal_words, limits, size_words, split_action, split_internal, verdict
from ottla.printable import html_text as escape
from ottla.protocol.batch import COMMIT
from ottla.protocol.times import duration, utc
from ottla.scan import events
from ottla.scan.storage import hide_secrets

# At most this many findings, timelines and producers are shown; `--format json` and the tables have all.
MOST_FINDINGS = 200
# At most this many findings of one check are unfolded; a click shows the others.
MOST_OPEN = 5
MOST_OPEN_ROWS = 200
MOST_TIMELINES = 40
MOST_PRODUCERS = 12

_OPEN_HEADS = [
    ("transactional id", True),
    ("open since", True),
    ("partition", True),
    ("offsets withheld", False),
    ("verdict", True),
    ("first offset", False),
    ("records", False),
]
_HEADS = [
    ("topic", True),
    ("partition", False),
    ("log start", False),
    ("log end", False),
    ("last stable", False),
    ("committed", False),
    ("aborted", False),
    ("open", False),
    ("", True),
    ("plain records", False),
    ("size", False),
]


def render(audit: Audit, everything: bool = True) -> str:
    """Return the whole document. Internal topics without findings are one line unless `everything` is set."""
    report = _Report(audit, everything)
    return page(audit.title, report.parts())


class _Report:
    def __init__(self, audit: Audit, everything: bool) -> None:
        self._audit = audit
        self._everything = everything
        worth = [one for one in audit.findings if one.is_at_least("warning")]
        self._findings = worth[:MOST_FINDINGS]
        self._left_out = len(worth) - len(self._findings)
        self._notes = [one for one in audit.findings if not one.is_at_least("warning")]
        self._timelines = self._with_timelines()
        self._anchors = {one.name for one, _ in self._timelines}

    def parts(self) -> Iterator[str]:
        yield self._head()
        yield self._open_transactions()
        yield self._render_findings()
        yield self._drawn_timelines()
        yield self._drawn_charts()
        yield self._table()
        yield self._render_notes()

    def _head(self) -> str:
        audit = self._audit
        text, worst = verdict(audit)
        size = sum(one.known_bytes for one in audit.partitions)
        facts = [
            count(len(audit.partitions), "partition"),
            size_words(size),
            count(sum(one.batches for one in audit.partitions), "batch", "batches"),
            *phrases(audit.ended),
            count(open_now.waiting(audit).transactions, "open transaction"),
        ]
        limited = [element("p", escape(line), class_="soft") for line in limits(audit, self._everything)]
        chips = "".join(element("li", escape(fact)) for fact in facts)
        when = f"{utc(audit.now_ms)}; checks: {', '.join(audit.checks)}"
        if audit.as_of:
            when += f"; as of {audit.as_of}: what a read_committed consumer would have seen then"
        return (
            element("h1", escape(audit.title))
            + element("p", escape(text), class_=f"verdict {worst}")
            + element("p", escape(when), class_="soft")
            + "".join(limited)
            + element("ul", chips, class_="chips")
        )

    def _open_transactions(self) -> str:
        rows = open_now.open_rows(self._audit)
        if not rows:
            return ""
        cells = [self._open_row(row) for row in rows[:MOST_OPEN_ROWS]]
        commands = open_now.commands(rows)
        parts = [element("h2", "Open transactions"), table(_OPEN_HEADS, cells)]
        parts += [
            element("p", "Ask the brokers what holds a partition back:", class_="soft") if commands else "",
            *(_command(one) for one in commands[:MOST_OPEN]),
        ]
        if more := commands[MOST_OPEN:]:
            summary = element("summary", f"{count(len(more), 'more partition')}")
            parts.append(element("details", summary + "\n".join(map(_command, more[:MOST_OPEN_ROWS]))))
        if len(rows) > MOST_OPEN_ROWS:
            parts.append(element("p", f"{len(rows) - MOST_OPEN_ROWS:,} more: --format json has all", class_="soft"))
        return "\n".join(parts)

    def _open_row(self, row: open_now.OpenRow) -> Sequence[str]:
        one = row.open
        name = f"{one.topic}-{one.partition}"
        owner = one.transactional_id or f"unknown (producer {one.producer_id}, epoch {one.producer_epoch})"
        return [
            element("td", escape(owner), class_="left name"),
            element("td", row.since, class_="left"),
            element("td", self._link(name, name), class_="left name"),
            element("td", f"{row.withheld:,}"),
            element("td", str(one.verdict), class_=f"left {'held' if one.is_hanging else 'waiting'}"),
            element("td", f"{one.first_offset:,}"),
            element("td", f"{one.records:,}"),
        ]

    def _link(self, partition: str, text: str) -> str:
        """Return the text as a link to the timeline of a partition, if that is drawn."""
        return f'<a href="#{anchor(partition)}">{escape(text)}</a>' if partition in self._anchors else escape(text)

    def _render_findings(self) -> str:
        if not self._findings:
            return ""
        many = Counter(one.check for one in self._findings)
        chips = "".join(
            element("li", f'<a href="#{check}">{check} <b>{many[check]}</b></a>') for check in CHECKS if many[check]
        )
        parts = [element("h2", "Findings")]
        if len(many) > 1:
            parts.append(element("ul", chips, class_="chips"))
        rendered = [(one.check, self._finding(at, one)) for at, one in enumerate(self._findings)]
        for check in CHECKS:
            mine = [text for name, text in rendered if name == check]
            if not mine:
                continue
            number = element("span", f"{many[check]:,}", class_="many")
            # Do not fold a single finding.
            open_ones = MOST_OPEN if len(mine) > MOST_OPEN + 1 else len(mine)
            parts += [element("h3", f"{check} {number}", id=check), *mine[:open_ones]]
            if mine[open_ones:]:
                more = element("summary", f"{len(mine) - open_ones:,} more of {check}")
                parts.append(element("details", more + "\n".join(mine[open_ones:])))
        if self._left_out:
            parts.append(element("p", f"{count(self._left_out, 'more finding')}: --format json has all", class_="soft"))
        return "\n".join(parts)

    def _finding(self, at: int, one: Finding) -> str:
        place = self._link(f"{one.topic}-{one.partition}", one.place or one.transactional_id or "all partitions")
        lines = [
            element("p", f'<span class="label">{one.severity}</span> <span class="place">{place}</span>'),
            element("p", escape(one.message)),
            *_action(one.action),
        ]
        if one.file is not None:
            position = "" if one.position is None else f", position {one.position:,}"
            lines.append(element("p", f"{element('code', escape(hide_secrets(one.file)))}{position}", class_="soft"))
        return element("div", "".join(lines), class_=f"finding {one.severity}", id=f"f{at}")

    def _with_timelines(self) -> list[tuple[PartitionAudit, list[timeline.Span]]]:
        """Return partitions with transactions to draw: findings first, and internal topics only with findings."""
        audit = self._audit
        named = names_with_findings(audit.findings)
        drawn = [
            (one, timeline.spans_of(one, self._name, audit.now_ms))
            for one in audit.partitions
            if not one.log.is_internal or one.name in named or one.open_transactions
        ]
        drawn = [(one, spans) for one, spans in drawn if spans]
        drawn.sort(key=lambda each: (each[0].name not in named, each[0].last_stable_offset == each[0].log_end))
        return drawn[:MOST_TIMELINES]

    def _drawn_timelines(self) -> str:
        if not self._timelines:
            return ""
        legend = "".join(
            f'<span><i style="background:var(--{fate})"></i>{fate}</span>' for fate in ("committed", "aborted", "open")
        )
        legend += '<span><i class="waits"></i>readers wait</span><span><b>▾</b>finding</span>'
        switch = (
            '<div class="switch"><label><input type="radio" name="axis" id="offset" checked> over offsets</label>'
            '<label><input type="radio" name="axis" id="time"> over time</label></div>'
        )
        about = (
            "A bar is a transaction in one partition, from first record to marker. Readers of committed records "
            "wait at the dashed line; a triangle leads to its finding."
        )
        parts = [element("h2", "Timelines"), element("p", about, class_="soft"), switch]
        parts.append(element("div", legend, class_="legend"))
        parts += [self._timeline(one, spans) for one, spans in self._timelines]
        return "\n".join(parts)

    def _timeline(self, one: PartitionAudit, spans: list[timeline.Span]) -> str:
        marks = [
            (found.offset, f"f{at}", found.message)
            for at, found in enumerate(self._findings)
            if found.offset is not None and (found.topic, found.partition) == (one.log.topic, one.log.partition)
        ]
        ended = one.committed.transactions + one.aborted.transactions
        shown = sum(span.fate != "open" for span in spans)
        facts = f"{count(one.committed.transactions, 'commit')}, {count(one.aborted.transactions, 'abort')}"
        if shown < ended:
            facts += f"; the newest {shown:,} are drawn"
        for held in one.open_transactions:
            owner = held.transactional_id or f"producer {held.producer_id}"
            facts += f"; {owner} open since offset {held.first_offset:,} ({duration(held.age_ms)}, {held.verdict})"
        begin = timeline.drawn_from(one, spans)
        if one.plain_records:
            facts += f"; {count(one.plain_records, 'record')} outside of transactions are not drawn"
            facts += f"; drawn from offset {begin:,} on" if begin > one.log_start else ""
        by_time = timeline.over_time(one, spans, self._audit.now_ms)
        head = element("h3", escape(one.name), id=anchor(one.name)) + element("p", escape(facts), class_="soft")
        drawn = (
            element("div", head, class_="line")
            + element("div", timeline.over_offsets(one, spans, marks, begin), class_="by-offset")
            + element("div", by_time or "<p class='soft'>Start times are not known.</p>", class_="by-time")
        )
        return element("div", drawn, class_="drawn")

    def _name(self, producer_id: int) -> str:
        return self._audit.names.get(producer_id, f"producer {producer_id}")

    def _drawn_charts(self) -> str:
        audit = self._audit
        drawn = [
            ("How long transactions take", "first record to marker, in each partition", charts.durations(audit.shape)),
            ("How large they are", "records of one partition", charts.sizes(audit.shape)),
            ("Who aborts", "ends in partitions, of the transactions drawn above", charts.aborts(self._by_producer())),
        ]
        if audit.model is not None:
            model = audit.model
            formula = (
                f"N·S / (N·T_write + O_tx), fitted: S = {model.record_bytes:,.0f} bytes, "
                f"T_write = {model.write_ms:.3g} ms, O_tx = {model.overhead_ms:.3g} ms"
            )
            drawn.append(("What larger transactions would bring", formula, charts.throughput(model)))
        boxes = [
            f"<div>{element('h3', title)}{element('p', about, class_='soft')}{chart}</div>"
            for title, about, chart in drawn
            if chart
        ]
        return element("h2", "Transactions") + element("div", "".join(boxes), class_="charts") if boxes else ""

    def _by_producer(self) -> list[tuple[str, int, int]]:
        ended: dict[str, list[int]] = {}
        for one, _ in self._timelines:
            for row in one.recent[one.recent[:, events.ENDED_FIRST_OFFSET] >= 0].tolist():
                counts = ended.setdefault(self._name(row[events.ENDED_PRODUCER_ID]), [0, 0])
                counts[0 if row[events.ENDED_FATE] == COMMIT else 1] += 1
        rows = [(name, committed, aborted) for name, (committed, aborted) in ended.items() if aborted]
        return sorted(rows, key=lambda row: (-row[2], row[0]))[:MOST_PRODUCERS]

    def _table(self) -> str:
        shown, hidden = split_internal(self._audit, self._everything)
        rows = [self._row(one) for one in sorted(shown, key=lambda one: one.log.is_internal)]
        note = internal_words(hidden)
        return element("h2", "Partitions") + table(_HEADS, rows) + (element("p", note, class_="soft") if note else "")

    def _row(self, one: PartitionAudit) -> Sequence[str]:
        fates = one.committed.transactions, one.aborted.transactions, one.opened.transactions
        held = "held" if one.last_stable_offset < one.log_end else ""
        return [
            element("td", self._link(one.name, one.log.topic), class_="left name"),
            element("td", str(one.log.partition)),
            element("td", f"{one.log_start:,}"),
            element("td", f"{one.log_end:,}"),
            element("td", f"{one.last_stable_offset:,}", class_=held),
            *(element("td", f"{many:,}", class_="" if many else "zero") for many in fates),
            element("td", charts.share(*fates), class_="left"),
            element("td", f"{one.plain_records:,}", class_="" if one.plain_records else "zero"),
            element("td", size_words(one.known_bytes)),
        ]

    def _render_notes(self) -> str:
        if not self._notes:
            return ""
        shown = self._notes[:MOST_FINDINGS]
        lines = "".join(
            element("p", f'<span class="label">{one.check}</span> {escape(one.place)} {escape(one.message)}')
            for one in shown
        )
        more = f"<p>{len(self._notes) - len(shown):,} more</p>" if len(shown) < len(self._notes) else ""
        head = element("summary", f"{count(len(self._notes), 'note')} in addition to the findings")
        return element("details", head + lines + more)


def _action(action: str) -> list[str]:
    """Return an action as markup. A command line is a separate element."""
    advice, command = split_action(action)
    return [element("p", f"→ {escape(advice or 'run:')}")] + ([_command(command)] if command else [])


def _command(line: str) -> str:
    return element("p", element("code", escape(line)), class_="action")
