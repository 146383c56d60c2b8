"""`ottla txn list`, `why` of many partitions, `fence` and `abort`."""

import pytest
from click.testing import CliRunner

from ottla.cli import output
from ottla.cli.main import main
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.values import NEVER_TIMES_OUT_MS
from tests.unit.cli.txn.world import LEDGER, Partition, hold, ottla, producer, run_json

OFFSETS = "__consumer_offsets"


def test_list_has_the_open_transactions_the_oldest_first(world):
    world.know("young", 1, LEDGER, age_ms=1_000)
    world.know("old", 2, LEDGER, ("ledger", 1), age_ms=9_000)
    world.know("done", 3, state="CompleteCommit")
    document = run_json("list", code=0)
    assert document["answer"] == "2 open transactions."
    rows = document["transactions"]
    assert [(row["transactional_id"], row["partitions"], row["standing"]) for row in rows] == [
        ("old", 2, "in time"),
        ("young", 1, "in time"),
    ]
    assert rows[0]["age_ms"] >= 9_000


def test_list_has_the_ended_ones_if_asked(world):
    world.know("done", 3, state="CompleteCommit")
    world.know("going", 4, LEDGER)
    rows = run_json("list", "--all", code=0)["transactions"]
    assert [(row["transactional_id"], row["state"]) for row in rows] == [
        ("going", "Ongoing"),
        ("done", "CompleteCommit"),
    ]
    assert ottla("list", "-b", "one:9092").stdout.startswith("1 open transaction.")


def test_list_names_a_broker_that_does_not_answer(world):
    world.loading.add(1)
    result = ottla("list", "-b", "one:9092")
    assert (result.exit_code, result.stdout) == (2, "no open transactions in the answers that came.\n")
    assert "COORDINATOR_LOAD_IN_PROGRESS" in result.stderr


def test_why_without_a_partition_has_the_worst_first(world):
    hold(world, 10, place=LEDGER, end=20)
    world.know("going", 0, LEDGER, ("ledger", 1))
    hold(world, 5, place=("ledger", 1), end=90)
    world.partitions["audit", 0] = Partition(stable=7, end=9, producers=[producer(8, 7), producer(0, 8)])
    world.partitions["calm", 0] = Partition(stable=4, end=4)
    document = run_json("why", code=1)
    rows = document["held partitions"]
    assert [(row["topic"], row["partition"], row["held_back"], row["standing"], row["other_open"]) for row in rows] == [
        ("audit", 0, 2, "forgotten", 1),
        ("ledger", 1, 85, "in time", 0),
        ("ledger", 0, 10, "in time", 0),
    ]
    assert document["answer"].startswith(
        "3 partitions are held back, 97 offsets in all; partitions: 5. The worst is audit-0"
    )
    first, java, fence, _ = [row["command"] for row in document["remedies"]]
    assert (first, fence) == ("ottla txn abort audit 0 7 -b one:9092", "ottla txn fence going -b one:9092")
    assert java.startswith("kafka-transactions.sh"), "the best remedy of each transaction is its first"


def test_why_of_a_topic_asks_no_other_partition(world):
    hold(world, 10, place=("audit", 0))
    hold(world, 10)
    world.know("going", 0, LEDGER)
    assert [row["topic"] for row in run_json("why", "ledger", code=1)["held partitions"]] == ["ledger"]
    world.partitions["calm", 0] = Partition(stable=4, end=4)
    assert run_json("why", "calm", code=0) == {"answer": "nothing is held back; partitions: 1."}
    assert ottla("why", "nothing", "-b", "one:9092").stderr == "ottla: topic nothing: UNKNOWN_TOPIC_OR_PARTITION\n"


def test_why_of_a_group_has_its_partitions_and_the_one_with_its_offsets(world):
    hold(world, 10)
    hold(world, 10, place=("other", 0))
    world.committed = [LEDGER]
    for number in range(3):
        world.partitions[OFFSETS, number] = Partition(stable=1, end=9, producers=[producer(5, 1)])
    world.know("going", 0, LEDGER)
    rows = run_json("why", "--group", "copy", code=1)["held partitions"]
    assert {(row["topic"], row["partition"]) for row in rows} == {LEDGER, (OFFSETS, coordinator_partition("copy", 3))}


def test_why_of_a_group_without_offsets_is_one_line(world):
    result = ottla("why", "--group", "copy", "-b", "one:9092")
    assert (result.exit_code, result.stderr) == (
        2,
        "ottla: group 'copy' has no committed offsets, or does not exist\n",
    )
    assert ottla("why", "ledger", "--group", "copy").exit_code == 2


def test_a_partition_that_does_not_answer_leaves_a_gap(world):
    world.partitions["audit", 0] = Partition(leader=-1)
    result = ottla("why", "-b", "one:9092")
    assert result.exit_code == 2
    assert result.stdout == "nothing is held back in the answers that came; partitions: 3.\n"
    assert result.stderr == "ottla: audit-0: LEADER_NOT_AVAILABLE\n"


def test_fence_repeats_its_request_until_the_transaction_has_ended(world):
    world.know("going", 7, LEDGER, epoch=3, age_ms=5_000)
    document = run_json("fence", "going", "--yes", code=0)
    (row,) = document["transactional id"]
    assert (row["state"], row["partitions"], row["standing"]) == ("Ongoing", 1, "in time")
    answer = "'going' is fenced, its transaction is aborted: producer id 7 is at epoch 5 from now on."
    assert document["answer"] == answer
    assert [api for api, _, _ in world.requests].count(ApiKey.INIT_PRODUCER_ID) == 2


def test_fence_without_a_transaction_ends_the_producer_only(world):
    world.know("idle", 7, state="CompleteCommit")
    assert "no transaction was open" in run_json("fence", "idle", "--yes", code=0)["answer"]


def test_fence_leaves_a_two_phase_commit_alone(world):
    world.know("two-phase", 7, LEDGER)
    world.known["two-phase"].transaction_timeout_ms = NEVER_TIMES_OUT_MS
    document = run_json("fence", "two-phase", "--yes", code=1)
    assert "is not fenced" in document["answer"] and "forceTerminateTransaction" in document["answer"]
    assert world.known["two-phase"].transaction_state == "Ongoing"


@pytest.mark.parametrize("command", [("fence", "going"), ("abort", "ledger", "0", "10")])
def test_without_a_terminal_the_user_has_to_agree_beforehand(world, command):
    hold(world, 10)
    world.know("going", 7, LEDGER)
    result = ottla(*command, "-b", "one:9092")
    assert result.exit_code == 2
    assert "--yes" in result.stderr and result.stderr.count("\n") == 1
    changes = (ApiKey.INIT_PRODUCER_ID, ApiKey.WRITE_TXN_MARKERS)
    assert not [api for api, _, _ in world.requests if api in changes]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_fence_asks_on_a_terminal(world, monkeypatch, answer, code):
    monkeypatch.setattr(output, "can_answer", lambda: True)
    world.know("going", 7, LEDGER, ("ledger", 1), age_ms=5_000)
    result = CliRunner().invoke(main, ["txn", "fence", "going", "-b", "one:9092"], input=answer)
    assert result.exit_code == code
    assert (
        result.stderr.startswith("'going' is Ongoing for 5")
        and "in 2 partitions, and will be aborted." in result.stderr
    )
    assert (world.known["going"].transaction_state == "Ongoing") is (code == 1)


def test_fence_of_an_unknown_id_is_one_line(world):
    result = ottla("fence", "nothing", "--yes", "-b", "one:9092")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "ottla: the coordinator, broker 1, does not know the transactional id 'nothing'\n"


def test_fence_gives_up_when_the_coordinator_cannot_end_the_transaction(world, monkeypatch):
    monkeypatch.setattr("ottla.cli.txn.fence.ENDS_WITHIN_S", 0.03)
    world.know("stuck", 7, LEDGER, state="PrepareCommit")
    busy = type("Reply", (), {"error_code": ErrorCode.CONCURRENT_TRANSACTIONS})
    monkeypatch.setattr(world, "_init_producer_id", lambda broker, message: busy)
    result = ottla("fence", "stuck", "--yes", "-b", "one:9092")
    assert result.exit_code == 2 and "CONCURRENT_TRANSACTIONS" in result.stderr


def test_abort_writes_the_marker_of_a_forgotten_transaction(world):
    world.partitions[LEDGER] = Partition(stable=10, end=20, producers=[producer(7, 10, epoch=4, coordinator_epoch=6)])
    document = run_json("abort", "ledger", "0", "10", "--yes", code=0)
    assert world.markers == [("ledger", 0, 7, 4, 6)]
    assert document["transaction"][0]["standing"] == "forgotten"
    assert document["answer"].endswith("is aborted. The last stable offset of the partition is 21.")


def test_abort_refuses_what_its_coordinator_holds_and_names_what_ends_it(world):
    hold(world, 10)
    world.know("going", 0, LEDGER)
    document = run_json("abort", "ledger", "0", "10", "--yes", code=1)
    assert "is not aborted: it is in time" in document["answer"]
    assert "ottla txn fence going -b one:9092" in [row["command"] for row in document["remedies"]]
    assert world.markers == []


def test_abort_asks_again_before_it_writes(world):
    """Between the verdict and the marker, the coordinator may have shown that it still holds the transaction."""
    hold(world, 10)
    world.then(ApiKey.DESCRIBE_PRODUCERS, lambda: None)
    world.then(ApiKey.DESCRIBE_PRODUCERS, lambda: world.know("going", 0, LEDGER))
    result = ottla("abort", "ledger", "0", "10", "--yes", "-b", "one:9092")
    assert result.exit_code == 2 and "has changed meanwhile" in result.stderr
    assert world.markers == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("ledger", "0", "11"), "ledger-0 has no open transaction that begins at 11: open transactions begin at 10"),
        (("calm", "0", "0"), "calm-0 has no open transaction that begins at 0: no transaction is open there"),
        (("ledger", "7", "10"), "topic ledger has partitions 0 to 0, not 7"),
        (("nothing", "0", "10"), "topic nothing: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_abort_of_something_else_is_one_line(world, place, line):
    hold(world, 10)
    world.partitions["calm", 0] = Partition()
    result = ottla("abort", *place, "--yes", "-b", "one:9092")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"ottla: {line}\n")


def test_a_marker_that_the_leader_refuses_is_named(world):
    hold(world, 10)
    world.marker_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    result = ottla("abort", "ledger", "0", "10", "--yes", "-b", "one:9092")
    assert result.exit_code == 2
    assert result.stderr == "ottla: ledger-0: the leader did not write the marker: CLUSTER_AUTHORIZATION_FAILED\n"
