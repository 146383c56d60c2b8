"""`python -m lab.simulate`: what it prints and what it returns."""

import io
import json
import sys

from lab import simulate
from ottla.testkit import checker


def test_one_seed_prints_its_trace_and_writes_a_valid_history(capsys, tmp_path):
    history = tmp_path / "history.jsonl"
    assert simulate.main(["--seed", "7", "--history", str(history)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seed 7, profile ")
    assert "  trace: " in told
    entries = [json.loads(line) for line in history.read_text().splitlines()]
    assert {"init", "send", "end", "poll"} <= {entry["f"] for entry in entries}
    assert checker.check(entries, {}, logs_only=True) == []


def test_many_seeds_are_counted(capsys):
    assert simulate.main(["--seeds", "0-4"]) == 0
    assert capsys.readouterr().out.startswith("5 seeds, ")


def test_the_progress_of_many_seeds_is_shown_on_a_terminal(capsys, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    assert simulate.main(["--seeds", "0-2", "--profile", "calm"]) == 0
    assert "\r2 of 3 seeds, 0 fail, " in terminal.getvalue()
    assert capsys.readouterr().out.startswith("3 seeds, ")


def test_a_failing_seed_is_printed_with_the_command_that_runs_it_again(capsys):
    planted = ["--plant", "aborted-list-empty"]
    assert simulate.main(["--seeds", "0-9", *planted]) == 0
    assert "aborted-list-empty: " in capsys.readouterr().out
    assert simulate.main(["--seed", "0", "--profile", "mixed", *planted]) == 1
    assert "PROBLEM: G1a" in capsys.readouterr().out
    assert simulate.main(["--seed", "0", "--profile", "mixed", "--steps", "3", *planted]) == 0
