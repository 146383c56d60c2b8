"""A transaction whose id the user may not see is never called forgotten, whatever hides the id."""

import json

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.acls import PatternType
from ottla.wire import brokers
from ottla.wire import cluster as asked
from tests.unit.cli.txn.world import LEDGER, Partition, World, now_ms

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ENTRIES = [("order-1", LITERAL), ("pay-", PREFIXED), ("*", LITERAL)]


def everything(operation, kind, name):
    return True


def without(*denied):
    """Return a check that allows everything except these (kind, predicate of the name)."""
    return lambda operation, kind, name: not any(kind == each and is_it(name) for each, is_it in denied)


def match_name(name):
    return lambda asked: asked == name


def begins(prefix):
    return lambda asked: asked.startswith(prefix)


def anything(name):
    return True


ALL_IDS = ("id", anything)
HIDERS = {
    "READ on the topic alone": (without(ALL_IDS, ("cluster", anything), ("topic", begins("__"))), ENTRIES, "DESCRIBE"),
    "no DESCRIBE on ids": (without(ALL_IDS), ENTRIES, "DESCRIBE on transactional ids"),
    "rights on a prefix alone": (
        without(("id", lambda name: not name.startswith("mine-"))),
        [("mine-", PREFIXED)],
        "DESCRIBE on transactional ids",
    ),
    "one id denied": (without(("id", match_name("order-1"))), ENTRIES, "DESCRIBE on transactional id 'order-1'"),
    "a prefix denied": (
        without(("id", begins("pay-"))),
        ENTRIES,
        "DESCRIBE on transactional ids that begin with 'pay-'",
    ),
    "an id of another user, where ids without an ACL are open to all": (
        without(("id", match_name("order-1"))),
        [("order-1", LITERAL)],
        "DESCRIBE on transactional id 'order-1'",
    ),
    "no right to list ACLs": (without(("cluster", anything)), ENTRIES, "DESCRIBE on the cluster (DescribeAcls)"),
    "no right to see the coordinators": (
        without(("topic", match_name("__transaction_state"))),
        ENTRIES,
        "DESCRIBE on topic __transaction_state",
    ),
}


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(brokers, "BlockingConnection", world.connect)
    monkeypatch.setattr(asked, "RETRY_S", 0.001)
    monkeypatch.setattr(asked, "RETRY_FOR_S", 0.03)
    # One that its coordinator has, with an id that a user may not see, and one that is forgotten.
    producers = [(1, 0, -1, 10, now_ms()), (2, 0, -1, 20, now_ms())]
    world.partitions[LEDGER] = Partition(stable=10, end=30, producers=producers)
    world.know("order-1", 1, LEDGER)
    return world


def ottla(*arguments):
    result = CliRunner().invoke(main, [*arguments, "-b", "one:9092", "--format", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result, json.loads(result.stdout)


@pytest.mark.parametrize("hider", HIDERS)
@pytest.mark.parametrize("command", [("txn", "why", "ledger", "0"), ("txn", "orphans")], ids=lambda one: one[1])
def test_a_user_who_may_not_see_every_id_gets_no_abort_and_the_missing_right(world, hider, command):
    world.may, world.acls, right = HIDERS[hider]
    result, document = ottla(*command)
    assert " abort " not in result.output and "abort --" not in result.output
    assert "forgotten" not in result.stdout.replace("no forgotten transactions in the answers that came, gaps: ", "")
    assert right in result.output
    if command[1] == "orphans":
        assert result.exit_code == 2
        assert {row["producer_id"] for row in document["unknown"]} >= {2}
    else:
        rows = document["open transactions"]
        assert rows[1]["standing"] == "unknown" and rows[0]["standing"] in ("unknown", "in time")


@pytest.mark.parametrize("hider", HIDERS)
def test_top_does_not_call_it_forgotten_either(world, hider):
    world.may, world.acls, _ = HIDERS[hider]
    result, document = ottla("top", "--once")
    assert [row["standing"] in ("unknown", "in time") for row in document["partitions"]] == [True], result.output


@pytest.mark.parametrize("acls", [None, [], ENTRIES])
def test_a_user_who_sees_every_id_finds_the_forgotten_one(world, acls):
    world.acls = acls
    result, document = ottla("txn", "orphans")
    assert result.exit_code == 1
    assert [row["producer_id"] for row in document["orphans"]] == [2]
    assert "unknown" not in document
    assert [row["standing"] for row in ottla("txn", "why", "ledger", "0")[1]["open transactions"]] == [
        "in time",
        "forgotten",
    ]


def test_no_orphan_is_reported_when_one_of_two_brokers_hides_ids(world):
    world.brokers[2] = ("two", 9092)
    told = world._describe_transactions

    def deny_on_two(broker, message):
        world.may = without(ALL_IDS) if broker == 2 else everything
        return told(broker, message)

    world._describe_transactions = deny_on_two
    assert "orphans" not in ottla("txn", "orphans")[1]


def test_the_clock_of_the_coordinator_decides_what_is_overdue(world):
    world.know("order-1", 1, LEDGER, age_ms=3_600_000)
    assert ottla("txn", "why", "ledger", "0")[1]["open transactions"][0]["standing"] == "overdue"
    world.ahead_ms = -3_600_000
    (first, _) = ottla("txn", "why", "ledger", "0")[1]["open transactions"]
    assert first["standing"] == "in time" and "clock" in first["reason"]


def test_a_begin_in_the_future_is_not_in_time(world):
    world.know("order-1", 1, LEDGER, age_ms=-3_600_000)
    _, document = ottla("txn", "why", "ledger", "0")
    assert document["open transactions"][0]["standing"] == "unknown"
    assert "clock" in document["open transactions"][0]["reason"]
