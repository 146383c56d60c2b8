"""The audit as text: internal topics, numbers, colours, narrow terminals."""

import re

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.checks import shape
from ottla.audit.checks.finding import Finding, in_order
from ottla.audit.pipeline import audit
from ottla.audit.report.text import chart, text_report
from ottla.audit.request import Request
from ottla.audit.runner import Progress, ThreadRunner
from ottla.colours import Style


def run_audit(root, now_ms=10_000):
    return audit(ThreadRunner(1), Request((str(root),), (), now_ms))


def report(found, **more):
    return text_report(found, **{"everything": False, "colour": False, **more})


def test_internal_partitions_are_hidden_unless_a_transaction_is_open(write_log):
    write_log().data(1)
    write_log("__consumer_offsets", 0).data(1)
    write_log("__consumer_offsets", 1).data(1, producer_id=4)
    text = report(run_audit(write_log.root))
    lines = [line for line in text.splitlines() if line.startswith("__consumer_offsets")]
    assert {line.split()[1] for line in lines} == {"1"}
    assert "Internal topics were audited too (1 partition)" in text
    table = report(run_audit(write_log.root), everything=True).partition("topic ")[2].split("Open transactions")[0]
    assert table.count("__consumer_offsets") == 2


def test_zero_counts_are_dots_and_offsets_are_numbers(write_log):
    write_log().data(3)
    text = report(run_audit(write_log.root))
    line = next(line for line in text.splitlines() if line.startswith("ledger"))
    assert line.replace("│", " ").split() == ["ledger", "0", "0", "3", "3", "·", "·", "·", "·", "·", "·", "3"]
    assert re.search(r" UTC, 1 partition, \d+ bytes, 1 batch\n", text)


def test_colours_change_nothing_but_colours(write_log):
    write_log().data(3, producer_id=1)
    found = run_audit(write_log.root, 10**12)
    plain, coloured = report(found), report(found, colour=True)
    assert "\033[" in coloured
    assert "\033" not in plain
    assert re.sub("\033\\[\\d+m", "", coloured) == plain


@pytest.mark.parametrize("width", [76, 80, 100, 132])
def test_only_lines_with_paths_exceed_the_terminal_width(reference, width):
    text = report(run_audit(reference("clean"), 1_795_300_000_000), width=width)
    whole = ("Audit of ", "    kafka-transactions.sh ")
    assert [line for line in text.splitlines() if len(line) > width and not line.startswith(whole)] == []
    assert "hanging-01" in text


def test_long_topics_are_folded_before_columns_are_left_out(write_log):
    write_log("a-topic-with-a-name-that-is-longer-than-it-should-be-for-a-terminal").data(3)
    text = report(run_audit(write_log.root), width=110)
    (first, second) = re.findall(r"^(a-topic-[a-z-]+) +0 │.*\n([a-z-]+)$", text, re.MULTILINE)[0]
    assert first + second == "a-topic-with-a-name-that-is-longer-than-it-should-be-for-a-terminal"
    assert "transaction" in text


def test_findings_are_sorted_by_severity_and_repeated_ones_are_counted(write_log):
    def finding(severity, check, offset):
        return Finding(check, severity, "ledger", 0, offset, None, None, "said", "done")

    many = [finding("error", "sequence", offset) for offset in range(30)]
    found = audited_with(write_log, [finding("info", "gaps", 1), finding("warning", "torn", 2), *many])
    text = report(found)
    assert text.index("30 breaks in sequences") < text.index("error sequence") < text.index("warning torn")
    assert "10 more of error sequence; --format json has all" in text
    assert "info gaps" not in text
    assert "info gaps  ledger-0@1" in report(found, everything=True)


def audited_with(write_log, findings):
    write_log().data(1)
    return run_audit(write_log.root)._replace(findings=in_order(findings))


def test_the_verdict_is_limited_to_what_was_checked(write_log):
    write_log().data(1, producer_id=4)
    late = Request((str(write_log.root),), (), 10**12, ("damage", "gaps"))
    waits = "1 transaction is open; readers of 1 partition wait for 1 offset."
    assert f"Nothing found by damage, gaps. {waits}" in report(audit(ThreadRunner(1), late))
    # No coordinator record shows whether it is within its timeout.
    assert f"No fault is proved. {waits}" in report(run_audit(write_log.root))
    cut = Request((str(write_log.root),), (), 10**12, as_of="ledger:0:1", until_offsets={("ledger", 0): 1})
    assert f"Nothing is broken. {waits}" in report(audit(ThreadRunner(1), cut))


def test_a_clean_verdict_mentions_unverifiable_findings(write_log):
    log = write_log()
    log.data(1, producer_id=6)
    log.marker(6, commit=True)
    text = " ".join(report(run_audit(write_log.root, now_ms=10**12)).split())
    assert "every batch is sound; what the coordinator's log cannot prove is listed with --all." in text


def test_chart_draws_the_model(write_log):
    lines = chart(shape.Model(0.01, 10.0, 200.0), Style(False)).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["1", "10", "100", "1,000", "10,000", "100,000"]
    bars = [line.count("█") for line in lines[1:]]
    assert bars == sorted(bars) and bars[-1] == 40
    assert lines[-1].endswith("19.802 MB/s")


class Terminal:
    def __init__(self, is_terminal):
        self.written = ""
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def write(self, text):
        self.written += text

    def flush(self):
        pass


def test_progress_is_written_only_to_a_terminal():
    for watched in (True, False):
        terminal = Terminal(watched)
        progress = Progress(terminal)
        progress.show("reading segments: 50%")
        progress.clear()
        assert ("50%" in terminal.written) == watched
        assert not watched or terminal.written.endswith("\r")


def test_progress_reports_the_compilation_of_kernels(monkeypatch, tmp_path):
    from ottla.scan.compiled.kernels import kernel

    # Kernels cached next to this file by an earlier run would be loaded, not compiled.
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    terminal, silent = Terminal(True), Terminal(False)
    for stream in (terminal, silent):
        with Progress(stream).report_compiling():
            assert kernel(lambda one: one + 1).of_kind("compiled")(1) == 2
    assert "compiling" in terminal.written
    assert not silent.written
    written = terminal.written
    assert kernel(lambda one: one + 2).of_kind("compiled")(1) == 3
    assert terminal.written == written


def test_progress_leaves_out_a_size_below_one_mebibyte(write_log):
    write_log().data(1)
    terminal = Terminal(True)
    audit(ThreadRunner(1, terminal), Request((str(write_log.root),), (), 10_000))
    assert "reading segments: 0%" in terminal.written
    assert "MiB" not in terminal.written
