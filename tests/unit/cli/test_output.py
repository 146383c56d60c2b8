"""Text tables of the commands: times, widths, and commands to paste."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.output import MOMENTS, WIDTH, output_for

ROOT = Path(__file__).parents[3]
DURATIONS = {"age_ms", "ahead_ms", "last_write_age_ms", "time_left_ms", "timeout_ms"}
# `ottla audit`, `ottla dump` and `ottla trace` print lines of their own in text.
OTHERS = {"delete_horizon_ms", "since_ms", "time_ms", "took_ms"}
MOMENT_MS = 1_795_515_303_000


def print_table(capsys, *table):
    for format_name in ("json", "text"):
        output = output_for(format_name)
        output.table("rows", *table)
        output.close()
    document, _, text = capsys.readouterr().out.partition("\nrows:\n")
    return json.loads(document)["rows"], text


def test_every_column_of_milliseconds_is_a_time_or_a_duration():
    named = set(re.findall(r"`(\w+_ms)`", (ROOT / "docs/json.md").read_text()))
    assert named - MOMENTS - DURATIONS - OTHERS == set()


@pytest.mark.parametrize("column", [*sorted(DURATIONS), "ms"])
def test_text_has_durations_and_json_milliseconds(capsys, column):
    (row,), text = print_table(capsys, (column,), [(200_000,)])
    assert row == {column: 200_000}
    assert "3 min 20 s" in text and "200000" not in text and "_ms" not in text


@pytest.mark.parametrize("column", sorted(MOMENTS))
def test_text_has_times_in_utc_and_json_milliseconds(capsys, column):
    (row,), text = print_table(capsys, (column,), [(MOMENT_MS,)])
    assert row == {column: MOMENT_MS}
    assert "2026-11-24 10:15:03 UTC" in text and str(MOMENT_MS) not in text and "_ms" not in text


def test_a_wide_table_is_folded_and_loses_nothing(capsys):
    long_id = "".join(f"{number:03d}." for number in range(60))
    prose = " ".join(f"word{number}" for number in range(60))
    columns = ("transactional_id", *(f"a_number_with_a_long_name_{number}" for number in range(6)), "reason")
    _, text = print_table(capsys, columns, [(long_id, *range(6), prose), ("short", *range(6), "none")])
    assert max(map(len, text.splitlines())) <= WIDTH
    lines = text.splitlines()
    rows = lines[next(at for at, line in enumerate(lines) if set(line) <= {"-", " "}) + 1 :]
    width = re.match(r"  \S+", rows[0]).end()
    assert "".join(line[2:width] for line in rows[:-1]).replace(" ", "") == long_id
    assert re.findall(r"word\d+", text) == prose.split()
    assert rows[-1].split() == ["short", *map(str, range(6)), "none"]


def test_a_command_is_one_line_however_long(capsys):
    command = "kafka-transactions.sh --bootstrap-server " + ",".join(f"broker-{number}:9092" for number in range(20))
    rows = [(12, "wait", None), (12, "or abort it", command)]
    document, text = print_table(capsys, ("start_offset", "advice", "command"), rows)
    assert [row["command"] for row in document] == [None, command]
    assert f"\n    {command}\n" in text
    assert "command" not in text.splitlines()[0]


def print_on_terminal(**variables):
    """Print a table with verdicts on a terminal, and return what the terminal gets."""
    rows = [("orders", "forgotten"), ("ledger", "in time")]
    code = f"from ottla.cli.output import output_for; output_for('text').table('held', ('topic', 'standing'), {rows})"
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    leader, follower = os.openpty()
    try:
        asked = environment | {"TERM": "xterm"} | variables
        subprocess.run([sys.executable, "-c", code], stdout=follower, env=asked, cwd=ROOT, check=True)
        return os.read(leader, 4096).decode()
    finally:
        os.close(leader)
        os.close(follower)


def test_a_terminal_shows_verdicts_in_colour():
    coloured = [line for line in print_on_terminal().splitlines() if "\033" in line]
    assert coloured == ["  \033[31morders  forgotten\033[0m"]


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_user_can_do_without_colours(name, value):
    printed = print_on_terminal(**{name: value})
    assert "orders  forgotten" in printed and "\033" not in printed


def test_output_without_a_terminal_has_no_colours(capsys):
    output_for("text").table("held", ("topic", "standing"), [("orders", "forgotten")])
    assert "\033" not in capsys.readouterr().out
