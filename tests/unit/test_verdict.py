import subprocess

import pytest

from ottla.verdict import (
    KnownTransaction,
    OpenTransaction,
    Standing,
    abort_commands,
    age_ms,
    judge,
    marker_epoch,
    remedies,
    time_left_ms,
)

NOW_MS = 1_000_000
HERE = ("ledger", 0)
FOUND = OpenTransaction("ledger", 0, 7, 5, 3, 42, NOW_MS - 9_000)
KNOWN = KnownTransaction("order-1", 2, "Ongoing", 7, 5, 60_000, NOW_MS - 10_000, frozenset({HERE}))

ROWS = {
    "ongoing": ({}, Standing.IN_TIME),
    "ongoing to its last millisecond": ({"start_ms": NOW_MS - 60_000}, Standing.IN_TIME),
    "ongoing, timed out, before the coordinator's next check": ({"start_ms": NOW_MS - 80_000}, Standing.IN_TIME),
    "ongoing after the checks that had to abort it": ({"start_ms": NOW_MS - 80_001}, Standing.OVERDUE),
    "ongoing for as long as two clocks differ": ({"start_ms": NOW_MS + 5_000}, Standing.IN_TIME),
    "ongoing since a time in the future": ({"start_ms": NOW_MS + 5_001}, Standing.UNKNOWN),
    "ongoing without this partition": ({"partitions": frozenset({("ledger", 1)})}, Standing.FORGOTTEN),
    "ongoing at a later epoch": ({"epoch": 6}, Standing.FORGOTTEN),
    "ongoing at an earlier epoch": ({"epoch": 4}, Standing.FORGOTTEN),
    "commit prepared": ({"state": "PrepareCommit"}, Standing.ENDING),
    "abort prepared in the epoch of its marker": ({"state": "PrepareAbort", "epoch": 6}, Standing.ENDING),
    "fenced": ({"state": "PrepareEpochFence", "epoch": 6}, Standing.ENDING),
    "prepared long ago": ({"state": "PrepareAbort", "start_ms": 0}, Standing.ENDING),
    "prepared, the marker here written": ({"state": "PrepareAbort", "partitions": frozenset()}, Standing.FORGOTTEN),
    "prepared, its marker will be refused": ({"state": "PrepareAbort", "epoch": 4}, Standing.FORGOTTEN),
    "committed": ({"state": "CompleteCommit", "partitions": frozenset()}, Standing.FORGOTTEN),
    "committed in the epoch after it": (
        {"state": "CompleteCommit", "partitions": frozenset(), "epoch": 6},
        Standing.DECIDED,
    ),
    "committed long after it": ({"state": "CompleteCommit", "partitions": frozenset(), "epoch": 7}, Standing.FORGOTTEN),
    "aborted": ({"state": "CompleteAbort", "partitions": frozenset()}, Standing.FORGOTTEN),
    "without a transaction": ({"state": "Empty", "partitions": frozenset(), "start_ms": -1}, Standing.FORGOTTEN),
    "being forgotten": ({"state": "Dead", "partitions": frozenset()}, Standing.FORGOTTEN),
    "the id has another producer id by now": ({"producer_id": 8}, Standing.FORGOTTEN),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_verdict_follows_from_the_coordinators_entry(row):
    changes, expected = ROWS[row]
    known = KNOWN._replace(**changes)
    verdict = judge(FOUND, [known], NOW_MS, ())
    assert verdict.standing is expected
    assert verdict.known == (known if known.producer_id == FOUND.producer_id else None)
    assert verdict.reason


def test_a_transaction_without_a_coordinator_entry_is_forgotten():
    assert judge(FOUND, [], NOW_MS, ()).standing is Standing.FORGOTTEN


@pytest.mark.parametrize("known", [[], [KNOWN._replace(state="CompleteAbort", partitions=frozenset())]])
def test_a_verdict_is_unknown_while_a_coordinator_has_not_answered(known):
    verdict = judge(FOUND, known, NOW_MS, ("broker 2 is still loading its transactions",))
    assert (verdict.standing, verdict.reason) == (Standing.UNKNOWN, "broker 2 is still loading its transactions")


def test_one_coordinators_entry_is_enough_if_another_does_not_answer():
    assert judge(FOUND, [KNOWN], NOW_MS, ("broker 2 is still loading",)).standing is Standing.IN_TIME


def test_of_two_ids_with_one_producer_id_the_ongoing_one_is_used():
    ended = KNOWN._replace(transactional_id="order-0", state="CompleteCommit", partitions=frozenset())
    assert judge(FOUND, [ended, KNOWN], NOW_MS, ()).known == KNOWN


def test_age_counts_from_the_begin_or_from_the_last_batch_of_a_forgotten_one():
    alive, forgotten = judge(FOUND, [KNOWN], NOW_MS, ()), judge(FOUND, [], NOW_MS, ())
    assert (age_ms(FOUND, alive, NOW_MS), age_ms(FOUND, forgotten, NOW_MS)) == (10_000, 9_000)
    assert age_ms(FOUND._replace(last_timestamp_ms=NOW_MS + 5), forgotten, NOW_MS) == 0


def test_time_is_left_to_an_ongoing_transaction_only():
    assert time_left_ms(KNOWN, NOW_MS) == 50_000
    assert time_left_ms(KNOWN, NOW_MS + 60_000) == -10_000
    assert time_left_ms(KNOWN._replace(state="PrepareAbort"), NOW_MS) is None


def commands(given):
    return [words(remedy.command) for remedy in given if remedy.command]


def words(line):
    """Return the words that bash makes of a command line."""
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    return printed.decode().split("\0")[:-1]


def test_abort_commands_have_the_offset_of_the_partition():
    ottla, java = abort_commands(FOUND, "a:1,b:2")
    assert ottla.command == "ottla txn abort ledger 0 42 -b a:1,b:2"
    assert java.command == (
        "kafka-transactions.sh --bootstrap-server a:1,b:2 abort --topic ledger --partition 0 --start-offset 42"
    )


def test_a_topic_that_looks_like_an_option_is_an_argument():
    ottla, _ = abort_commands(FOUND._replace(topic="--yes"), "a:1", "my file")
    assert ottla.command == "ottla txn abort -b a:1 --command-config 'my file' -- --yes 0 42"


def test_commands_of_kafka_have_the_file_with_the_login():
    verdict = judge(FOUND, [KNOWN], NOW_MS, ())
    given = [*abort_commands(FOUND, "a:1", "my file"), *remedies(FOUND, verdict, "a:1", NOW_MS, "my file")]
    java = [one.command for one in given if one.command and one.command.startswith("kafka-transactions.sh")]
    assert len(java) == 2
    assert all("--bootstrap-server a:1 --command-config 'my file' " in command for command in java)


@pytest.mark.parametrize(("last_marker", "epoch"), [(-1, 0), (0, 0), (3, 3)])
def test_before_the_first_marker_the_coordinator_epoch_to_abort_with_is_0(last_marker, epoch):
    assert marker_epoch(FOUND._replace(coordinator_epoch=last_marker)) == epoch


@pytest.mark.parametrize("name", ["order-1", 'it\'s "quoted" $HOME\n`x`', "Bücher 📚"])
def test_one_in_time_is_waited_for_or_fenced_and_never_aborted_on_one_partition(name):
    verdict = judge(FOUND, [KNOWN._replace(transactional_id=name)], NOW_MS, ())
    wait, *fencing = remedies(FOUND, verdict, "a:1", NOW_MS)
    assert wait.command is None and "50 s" in wait.advice
    ottla, java = commands(fencing)
    assert ottla == ["ottla", "txn", "fence", name, "-b", "a:1"]
    assert java == [
        *("kafka-transactions.sh", "--bootstrap-server", "a:1"),
        *("forceTerminateTransaction", "--transactionalId", name),
    ]


def test_a_prepared_commit_gets_no_abort_command():
    verdict = judge(FOUND, [KNOWN._replace(state="PrepareCommit")], NOW_MS, ())
    assert [remedy.command for remedy in remedies(FOUND, verdict, "a:1", NOW_MS)] == [None]


def test_an_unknown_verdict_gets_its_reason_and_no_abort_command():
    verdict = judge(FOUND, [], NOW_MS, ("no answer",))
    (advice,) = remedies(FOUND, verdict, "a:1", NOW_MS)
    assert advice.command is None and "no answer" in advice.advice


def test_a_clock_that_is_wrong_is_to_be_set():
    verdict = judge(FOUND, [KNOWN._replace(start_ms=NOW_MS + 3_600_000)], NOW_MS, ())
    (advice,) = remedies(FOUND, verdict, "a:1", NOW_MS)
    assert advice.command is None and "clock" in advice.advice
    assert verdict.is_clock and not verdict.needs_proof


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("gaps", [(), ("this user lacks DESCRIBE on transactional ids",)])
def test_an_abort_is_printed_for_a_forgotten_one_alone(row, gaps):
    changes, _ = ROWS[row]
    verdict = judge(FOUND, [KNOWN._replace(**changes)], NOW_MS, gaps)
    given = remedies(FOUND, verdict, "a:1", NOW_MS)
    assert verdict.needs_proof or verdict.known is not None
    assert (verdict.standing is Standing.FORGOTTEN) == any(" abort " in (each.command or "") for each in given)
    assert verdict.standing is not Standing.FORGOTTEN or not gaps
