"""The audit as text: durations, what is shown of internal topics, colours."""

import re

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.spark_jobs.audit_scan import Audit
from ottla.spark_jobs.listing import list_partitions
from ottla.spark_jobs.report import duration, text_report
from ottla.spark_jobs.scan import scan_partitions


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "unknown"),
        (-1, "in the future"),
        (999, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (192_000, "3 min 12 s"),
        (7_500_000, "2 h 5 min"),
        (86_400_000 * 3 + 3_600_000 * 4, "3 d 4 h"),
    ],
)
def test_duration_has_two_units_at_most(milliseconds, text):
    assert duration(milliseconds) == text


def audited(root):
    logs = list_partitions(str(root))
    fates = scan_partitions(logs, on_damage="report", check_crc=True, threads=1)
    return Audit(str(root), 1_700_000_000_000, list(zip(logs, fates, strict=True)), [])


def test_internal_partitions_are_hidden_until_they_have_something_to_tell(write_log):
    write_log().data(1)
    write_log("__consumer_offsets", 0).data(1)
    write_log("__consumer_offsets", 1).data(1, producer_id=4)
    text = text_report(audited(write_log.root), every_partition=False, colour=False)
    lines = [line for line in text.splitlines() if line.startswith("__consumer_offsets")]
    assert [line.split()[1] for line in lines] == ["1"]
    assert "Internal topics were audited too (1 partition)" in text
    assert text_report(audited(write_log.root), every_partition=True, colour=False).count("__consumer_offsets") == 2


def test_zero_counts_are_dots_and_offsets_are_numbers(write_log):
    write_log().data(3)
    text = text_report(audited(write_log.root), every_partition=False, colour=False)
    line = next(line for line in text.splitlines() if line.startswith("ledger"))
    assert line.replace("│", " ").split() == ["ledger", "0", "0", "3", "3", "·", "·", "·", "·", "·", "·", "3"]
    assert re.search(r" UTC, 1 partition, \d+ bytes, 1 batch\n", text)


def test_colours_change_nothing_but_colours(write_log):
    write_log().data(3, producer_id=1)
    plain = text_report(audited(write_log.root), every_partition=False, colour=False)
    coloured = text_report(audited(write_log.root), every_partition=False, colour=True)
    assert "\033[" in coloured
    assert re.sub("\033\\[\\d+m", "", coloured) == plain
