"""Open transactions with nothing broken: the verdict, the table, the lines of JSON, the exit code."""

import json
import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.report import html
from ottla.audit.report.open_now import Waiting, open_rows, sentence, waiting
from ottla.audit.report.text import text_report, verdict
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.spark_jobs import audit as job

NOW_MS = 1_795_515_303_000
LONG_ID = "-".join(f"payments{number:02d}" for number in range(20))


def run_audit(*roots, **more):
    return audit(ThreadRunner(1), Request(tuple(map(str, roots)), (), NOW_MS, **more))


@pytest.fixture
def open_log(write_log):
    """Open two transactions over three partitions, followed by records that readers wait for."""
    write_log.ledger = [write_log("ledger", number) for number in range(3)]
    for log, producers in zip(write_log.ledger, [(7,), (7, 8), (8,)], strict=True):
        log.data(2, timestamp_ms=NOW_MS - 60_000)
        for producer_id in producers:
            log.data(3, producer_id=producer_id, timestamp_ms=NOW_MS - 30_000 - producer_id)
        log.data(10, timestamp_ms=NOW_MS - 10_000)
    write_log("idle").data(1, timestamp_ms=NOW_MS - 60_000)
    return write_log.root


def test_each_transaction_partition_and_offset_counts_once(open_log):
    found = run_audit(open_log)
    assert waiting(found) == Waiting(2, 3, 13 + 16 + 13, 0)
    assert verdict(found) == (
        "No fault is proved. 2 transactions are open; readers of 3 partitions wait for 42 offsets.",
        "waiting",
    )
    assert [(row.open.partition, row.withheld) for row in open_rows(found)] == [(0, 13), (1, 3), (1, 13), (2, 13)]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Waiting(1, 1, 1, 0), "1 transaction is open; readers of 1 partition wait for 1 offset"),
        (
            Waiting(2, 3, 1_863, 0),
            "2 transactions are open; readers of 3 partitions wait for 1,863 offsets",
        ),
        (
            Waiting(1, 0, 0, 1),
            "1 transaction is open; offsets of groups wait in 1 partition of __consumer_offsets",
        ),
        (
            Waiting(2, 1, 5, 2),
            "2 transactions are open; readers of 1 partition wait for 5 offsets; "
            "offsets of groups wait in 2 partitions of __consumer_offsets",
        ),
    ],
)
def test_the_sentence_has_the_right_numbers(found, text):
    assert sentence(found) == text


def test_a_command_for_a_cluster_has_the_file_with_the_login(open_log):
    found = run_audit(open_log)
    source = found.source._replace(properties="my client.properties")
    (row, *_) = open_rows(found._replace(directories=("kafka://b-1:9096,b-2:9096",), source=source))
    assert row.command == "ottla txn why ledger 0 -b b-1:9096,b-2:9096 --command-config 'my client.properties'"


def test_a_group_is_no_reader(write_log):
    write_log("__consumer_offsets").data(1, producer_id=7, timestamp_ms=NOW_MS - 1_000)
    assert waiting(run_audit(write_log.root)) == Waiting(1, 0, 0, 1)


def test_of_replicas_the_longest_counts(open_log, write_log, tmp_path):
    replica = tmp_path / "replica"
    shutil.copytree(open_log, replica)
    write_log.ledger[0].data(5, timestamp_ms=NOW_MS)
    both = run_audit(open_log, replica)
    assert waiting(both) == waiting(run_audit(open_log))
    assert sum(row.withheld for row in open_rows(both)) == waiting(both).offsets


def test_clean_means_that_nothing_is_open(write_log):
    log = write_log()
    log.data(1, producer_id=7, timestamp_ms=NOW_MS - 1_000)
    assert verdict(run_audit(write_log.root))[1] == "waiting"
    log.marker(7, commit=True, timestamp_ms=NOW_MS - 500)
    assert verdict(run_audit(write_log.root))[1] == "clean"


def test_text_html_and_json_have_the_table_and_a_line_to_paste(open_log, tmp_path, capsys):
    found = run_audit(open_log)
    text, page = text_report(found, everything=False, colour=False), html.render(found)
    for number in range(3):
        command = f"ottla txn why ledger {number} -b HOST:PORT"
        assert f"\n  {command}\n" in text
        assert f"<code>{command}</code>" in page
    assert "2026-11-24 10:14:32 UTC" in text and "2026-11-24 10:14:32 UTC" in page
    assert '<p class="verdict waiting">No fault is proved. 2 transactions are open' in page
    arguments = ["--as-of", str(NOW_MS), "--format", "json", str(open_log)]
    assert job.main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line["check"] == "open"]
    assert [(row["partition"], row["withheld"], row["since_ms"]) for row in rows] == [
        (0, 13, NOW_MS - 30_007),
        (1, 3, NOW_MS - 30_007),
        (1, 13, NOW_MS - 30_008),
        (2, 13, NOW_MS - 30_008),
    ]
    assert {row["severity"] for row in rows} == {"info"}
    assert rows[0]["action"] == "ottla txn why ledger 0 -b HOST:PORT"


def test_long_names_are_folded_into_120_columns(open_log):
    found = run_audit(open_log)
    named = [
        one._replace(open_transactions=tuple(each._replace(transactional_id=LONG_ID) for each in one.open_transactions))
        for one in found.partitions
    ]
    lines = text_report(found._replace(partitions=named), everything=True, colour=False).splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("Audit of ")] == []
    table = lines[lines.index("Open transactions") + 1 :]
    width = table[0].index("open since") if "open since" in table[0] else table[0].index("open")
    folded = "".join(line[:width].strip() for line in table[1:] if not line.startswith("  "))
    assert folded.count(LONG_ID) == 4
