"""The verdict on an open transaction, and the sources that show it: the tables VERDICT and SEES."""

import json

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.acls import PatternType
from ottla.protocol.values import NEVER_TIMES_OUT_MS
from ottla.verdict import (
    OVERDUE_AFTER_MS,
    RESTORE,
    SKEW_MS,
    KnownTransaction,
    OpenTransaction,
    Standing,
    judge,
    remedies,
)
from ottla.wire import brokers
from tests.tables.rows import row, rows
from tests.unit.cli.txn.world import LEDGER, Partition, World, now_ms

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
YEAR_MS = 365 * 86_400_000
FOUND = OpenTransaction("ledger", 0, 7, 5, 3, 42, NOW_MS - 9_000)
KNOWN = KnownTransaction("order-1", 2, "Ongoing", 7, 5, TIMEOUT_MS, NOW_MS - 9_000, frozenset({LEDGER}))
NOTHING = {"partitions": frozenset()}
ELSEWHERE = {"partitions": frozenset({("ledger", 1)})}

CASES = [
    ("VERDICT-1", {"start_ms": NOW_MS - TIMEOUT_MS}, Standing.IN_TIME),
    ("VERDICT-2", {"start_ms": NOW_MS - TIMEOUT_MS - OVERDUE_AFTER_MS}, Standing.IN_TIME),
    ("VERDICT-3", {"start_ms": NOW_MS - TIMEOUT_MS - OVERDUE_AFTER_MS - 1}, Standing.OVERDUE),
    ("VERDICT-4", {"start_ms": NOW_MS + SKEW_MS + 1}, Standing.UNKNOWN),
    ("VERDICT-5 PrepareCommit", {"state": "PrepareCommit", "epoch": 6}, Standing.ENDING),
    ("VERDICT-5 PrepareAbort", {"state": "PrepareAbort", "epoch": 6, "start_ms": 0}, Standing.ENDING),
    ("VERDICT-5 PrepareEpochFence", {"state": "PrepareEpochFence"}, Standing.ENDING),
    ("VERDICT-6 V2", {"state": "CompleteCommit", "epoch": 6} | NOTHING, Standing.DECIDED),
    ("VERDICT-7 CompleteCommit", {"state": "CompleteCommit"} | NOTHING, Standing.FORGOTTEN),
    ("VERDICT-7 later", {"state": "CompleteCommit", "epoch": 7} | NOTHING, Standing.FORGOTTEN),
    ("VERDICT-7 CompleteAbort", {"state": "CompleteAbort", "epoch": 6} | NOTHING, Standing.FORGOTTEN),
    ("VERDICT-7 Empty", {"state": "Empty", "epoch": 6, "start_ms": -1} | NOTHING, Standing.FORGOTTEN),
    ("VERDICT-7 Dead", {"state": "Dead"} | NOTHING, Standing.FORGOTTEN),
    ("VERDICT-8 Ongoing", ELSEWHERE, Standing.FORGOTTEN),
    ("VERDICT-8 PrepareCommit", {"state": "PrepareCommit"} | ELSEWHERE, Standing.FORGOTTEN),
    ("VERDICT-9 Ongoing", {"epoch": 4}, Standing.FORGOTTEN),
    ("VERDICT-9 PrepareAbort", {"state": "PrepareAbort", "epoch": 4}, Standing.FORGOTTEN),
    ("VERDICT-10", {"epoch": 6}, Standing.FORGOTTEN),
    ("VERDICT-11", {"producer_id": 8}, Standing.FORGOTTEN),
    ("VERDICT-13", {"timeout_ms": NEVER_TIMES_OUT_MS}, Standing.IN_TIME),
    ("VERDICT-13 a year", {"timeout_ms": NEVER_TIMES_OUT_MS, "start_ms": NOW_MS - YEAR_MS}, Standing.IN_TIME),
]
WORDS = {
    Standing.IN_TIME: ("wait", "forceTerminateTransaction"),
    Standing.OVERDUE: ("wait", "forceTerminateTransaction"),
    Standing.ENDING: ("wait", ""),
    Standing.DECIDED: (RESTORE, ""),
    Standing.FORGOTTEN: ("abort it on this partition", "abort --topic ledger"),
    Standing.UNKNOWN: ("clock", ""),
}


@rows(CASES)
def test_the_verdict_and_remedy_follow_from_the_coordinator_state(case):
    _, changes, standing = case
    verdict = judge(FOUND, [KNOWN._replace(**changes)], NOW_MS, ())
    assert verdict.standing is standing
    given = remedies(FOUND, verdict, "a:1", NOW_MS)
    commands = " ".join(each.command or "" for each in given)
    advice, command = WORDS[standing]
    assert advice in given[0].advice and command in commands and bool(command) == bool(commands)


@row("VERDICT-6 V1")
def test_a_partition_without_a_marker_of_the_producer_lacks_the_one_of_its_commit(row):
    known = KNOWN._replace(state="CompleteCommit", partitions=frozenset())
    assert judge(FOUND._replace(coordinator_epoch=-1), [known], NOW_MS, ()).standing is Standing.DECIDED


@rows([(f"VERDICT-12 {name}", changes) for name, changes, standing in CASES if standing is Standing.FORGOTTEN])
def test_a_transaction_that_may_be_hidden_is_unknown_with_the_reason(case):
    verdict = judge(FOUND, [KNOWN._replace(**case[1])], NOW_MS, ("no right",))
    assert (verdict.standing, verdict.reason) == (Standing.UNKNOWN, "no right")
    assert [each.command for each in remedies(FOUND, verdict, "a:1", NOW_MS)] == [None]


@pytest.fixture
def world(monkeypatch):
    """Leave two transactions open in ledger-0: its coordinator knows that of producer 1, and not that of 2."""
    world = World()
    monkeypatch.setattr(brokers, "BlockingConnection", world.connect)
    producers = [(1, 0, -1, 10, now_ms()), (2, 0, -1, 20, now_ms())]
    world.partitions[LEDGER] = Partition(stable=10, end=30, producers=producers)
    world.know("order-1", 1, LEDGER)
    world.acls = [("order-1", PatternType.LITERAL)]
    return world


def standings():
    words = ["txn", "why", "ledger", "0", "-b", "one:9092", "--format", "json"]
    document = json.loads(CliRunner().invoke(main, words).stdout)
    return tuple(each["standing"] for each in document["open transactions"])


@row("SEES-1", "SEES-2")
def test_transactions_are_in_time_or_forgotten_if_every_id_is_visible(row, world):
    if row == "SEES-2":
        world.acls = None
    assert standings() == ("in time", "forgotten")


@row("SEES-3 all ids", "SEES-3 the cluster", "SEES-3 the coordinators", "SEES-4")
def test_a_missing_transaction_is_unknown_if_ids_may_be_hidden(row, world):
    lacks = {
        "SEES-3 all ids": lambda kind, name: kind == "id",
        "SEES-3 the cluster": lambda kind, name: kind == "cluster",
        "SEES-3 the coordinators": lambda kind, name: name == "__transaction_state",
        "SEES-4": lambda kind, name: name == "order-1",
    }[row]
    world.may = lambda operation, kind, name: not lacks(kind, name)
    hidden = row in ("SEES-3 all ids", "SEES-4")
    assert standings() == ("unknown" if hidden else "in time", "unknown")


@row("SEES-5", "SEES-6 none", "SEES-6 a part")
def test_files(row):
    """Coordinator records, present and missing: `tests/audit/test_checks_hanging.py` reads both from files."""
    gaps = () if row == "SEES-5" else ("__transaction_state is not here",)
    records = [] if row == "SEES-6 none" else [KNOWN]
    mine = Standing.UNKNOWN if row == "SEES-6 none" else Standing.IN_TIME
    assert judge(FOUND, records, NOW_MS, gaps).standing is mine
    other = FOUND._replace(producer_id=8)
    expected = Standing.FORGOTTEN if row == "SEES-5" else Standing.UNKNOWN
    assert judge(other, records, NOW_MS, gaps).standing is expected
