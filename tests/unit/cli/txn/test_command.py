import re
import shlex
import socket
import threading

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.wire import brokers
from ottla.wire.topology import PARTITIONS_AT_ONCE
from tests.timeout import EVENT_TIMEOUT_S
from tests.unit.cli.txn.world import LEDGER, STATES, Partition, forget_nothing, hold, ottla, producer, run_json


def test_why_reports_no_held_back_offsets_after_transactions_end(world):
    world.partitions[LEDGER] = Partition(stable=8, end=8, producers=[producer(0, -1)])
    result = ottla("why", "ledger", "0", "-b", "one:9092")
    assert result.exit_code == 0
    assert "ledger-0: nothing is held back, the last stable offset is the end, 8." in result.stdout
    assert "open transactions:" not in result.stdout


def test_why_blames_the_oldest_transaction_and_lists_later_ones(world):
    hold(world, 30, 10, 20)
    forget_nothing(world, 0, 1, 2)
    document = run_json("why", "ledger", "0", code=1)
    assert document["partition"] == [
        {
            "topic": "ledger",
            "partition": 0,
            "leader": 1,
            "last_stable_offset": 10,
            "high_watermark": 100,
            "held_back": 90,
        }
    ]
    rows = document["open transactions"]
    assert [(row["start_offset"], row["frees"], row["transactional_id"]) for row in rows] == [
        (10, 10, "order-1"),
        (20, 10, "order-2"),
        (30, 70, "order-0"),
    ]
    assert {(row["standing"], row["state"], row["coordinator"]) for row in rows} == {("in time", "Ongoing", 1)}
    assert "90 offsets are held back, from 10 on, by producer id 1" in document["answer"]
    assert "2 later open transactions wait" in document["answer"]
    assert {row["start_offset"] for row in document["remedies"]} == {10}


def test_a_forgotten_later_transaction_has_a_remedy_too(world):
    hold(world, 10, 20, 30)
    forget_nothing(world, 0, 2)
    document = run_json("why", "ledger", "0", code=1)
    assert [row["standing"] for row in document["open transactions"]] == ["in time", "forgotten", "in time"]
    assert {row["start_offset"] for row in document["remedies"]} == {10, 20}


def test_overdue_has_no_time_left(world):
    hold(world, 10)
    world.know("order-0", 0, LEDGER, age_ms=90_000)
    document = run_json("why", "ledger", "0", code=1)
    (row,) = document["open transactions"]
    assert row["standing"] == "overdue"
    assert row["age_ms"] >= 90_000 and row["time_left_ms"] <= -30_000
    assert "(overdue, open for 1 min 3" in document["answer"]


def test_a_transaction_that_ends_during_why_is_not_called_forgotten(world):
    hold(world, 10, 20)
    forget_nothing(world, 1)

    def ends():
        world.partitions[LEDGER] = Partition(stable=20, end=101, producers=[producer(0, -1), producer(1, 20)])

    world.then(ApiKey.DESCRIBE_PRODUCERS, ends)
    document = run_json("why", "ledger", "0", code=1)
    assert [row["standing"] for row in document["open transactions"]] == ["in time"]
    assert document["partition"][0]["last_stable_offset"] == 20


def test_an_end_that_is_not_replicated_yet_is_no_open_transaction(world):
    world.partitions[LEDGER] = Partition(stable=10, end=20)
    assert "no transaction is open" in run_json("why", "ledger", "0", code=1)["answer"]


def test_a_name_that_would_write_on_the_terminal_is_escaped(world):
    hold(world, 10)
    world.know("\x1b[2J", 0, LEDGER)
    output = ottla("why", "ledger", "0", "-b", "one:9092").stdout
    assert "\x1b" not in output and "\\x1b[2J" in output


def test_no_orphans(world):
    hold(world, 10, 20)
    forget_nothing(world, 0, 1)
    result = ottla("orphans", "-b", "one:9092")
    assert (result.exit_code, result.stdout) == (0, "no forgotten transactions; 2 open in 2 partitions.\n")


def test_an_orphan_is_reported_with_commands_that_abort_it(world):
    world.partitions["__consumer_offsets", 3] = Partition(
        stable=10, end=20, producers=[producer(9, 10, epoch=4, coordinator_epoch=6, age_ms=5_000)]
    )
    document = run_json("orphans", code=1)
    (row,) = document["orphans"]
    assert 5_000 <= row.pop("last_write_age_ms") < 60_000
    assert row == {
        "topic": "__consumer_offsets",
        "partition": 3,
        "producer_id": 9,
        "epoch": 4,
        "coordinator_epoch": 6,
        "start_offset": 10,
        "transactional_id": None,
        "state": None,
        "reason": "no transactional id has producer id 9",
    }
    ours, java = [shlex.split(row["command"]) for row in document["remedies"]]
    assert ours == ["ottla", "txn", "abort", "__consumer_offsets", "3", "10", "-b", "one:9092"]
    assert java[-2:] == ["--start-offset", "10"]


def test_a_partition_left_open_by_a_completed_id_is_an_orphan(world):
    world.partitions[LEDGER] = Partition(stable=10, end=20, producers=[producer(0, 10, coordinator_epoch=0)])
    world.know("order-0", 0, state="CompleteCommit")
    (row,) = run_json("orphans", code=1)["orphans"]
    assert (row["transactional_id"], row["state"]) == ("order-0", "CompleteCommit")


@pytest.mark.parametrize("start", [-1, 11])
def test_a_transaction_that_ends_during_the_search_is_no_orphan(world, start):
    hold(world, 10)

    def ends():
        world.partitions[LEDGER].producers = [producer(0, start)]

    world.then(ApiKey.LIST_TRANSACTIONS, ends)
    assert run_json("orphans", code=0)["answer"].startswith("no forgotten transactions")


def test_a_prepared_one_whose_marker_is_on_its_way_is_no_orphan(world):
    hold(world, 10)
    world.know("order-0", 0, LEDGER, state="PrepareCommit", epoch=1)
    run_json("orphans", code=0)


def test_a_transaction_whose_coordinator_moves_meanwhile_is_no_orphan(world):
    world.brokers[2] = ("two", 9092)
    hold(world, 10)
    world.know("order-0", 0, LEDGER, broker=2)

    def moves():
        world.known["order-0"].broker = 1
        world.partitions[STATES].leader_epoch += 1

    world.then(ApiKey.LIST_TRANSACTIONS, moves)
    run_json("orphans", code=0)


def test_a_loading_coordinator_is_queried_again(world):
    hold(world, 10)
    forget_nothing(world, 0)
    world.loading.add(1)
    world.then(ApiKey.LIST_TRANSACTIONS, world.loading.clear)
    run_json("orphans", code=0)


def test_a_coordinator_that_has_not_begun_to_load_is_queried_again(world):
    """The metadata names it as the leader, and it lists what it knows without an error."""
    hold(world, 10)
    forget_nothing(world, 0)
    world.unloaded.add(1)
    world.then(ApiKey.DESCRIBE_TRANSACTIONS, world.unloaded.clear)
    run_json("orphans", code=0)


def test_a_coordinator_that_unloads_meanwhile_is_queried_again(world):
    hold(world, 10)
    forget_nothing(world, 0)
    world.then(ApiKey.DESCRIBE_TRANSACTIONS, lambda: world.unloaded.add(1))
    world.then(ApiKey.LIST_TRANSACTIONS, lambda: world.then(ApiKey.DESCRIBE_TRANSACTIONS, world.unloaded.clear))
    run_json("orphans", code=0)


def test_a_coordinator_that_unloads_and_loads_again_is_queried_again_if_the_first_broker_learns_of_neither(world):
    world.brokers[2] = ("two", 9092)
    world.partitions[STATES].leader = 2
    hold(world, 10)
    world.know("order-0", 0, LEDGER, broker=2)
    world.stop_learning(1)

    def load():
        world.unloaded.clear()
        world.partitions[STATES].leader_epoch += 2

    world.then(ApiKey.LIST_TRANSACTIONS, lambda: (world.unloaded.add(2), world.then(ApiKey.LIST_TRANSACTIONS, load)))
    run_json("orphans", code=0)


def test_the_previous_transaction_of_the_id_at_a_former_coordinator_decides_nothing(world):
    world.brokers[2] = ("two", 9092)
    hold(world, 10)
    world.know("order-0", 0, state="CompleteCommit")
    world.former[1, "order-0"] = world.known["order-0"]
    world.stop_learning(1)
    world.partitions[STATES].leader, world.partitions[STATES].leader_epoch = 2, 1
    world.know("order-0", 0, LEDGER, broker=2)
    run_json("orphans", code=0)
    (row,) = run_json("why", "ledger", "0", code=1)["open transactions"]
    assert (row["standing"], row["coordinator"]) == ("in time", 2)


def test_a_transaction_that_ended_at_the_new_leader_is_no_orphan_for_the_former_one(world):
    world.brokers[2] = ("two", 9092)
    hold(world, 10)
    world.stop_learning(1)
    world.partitions[STATES].leader, world.partitions[STATES].leader_epoch = 2, 1
    world.partitions[LEDGER] = Partition(leader=2, leader_epoch=1, stable=12, end=12, producers=[producer(0, -1)])
    world.know("order-0", 0, broker=2, state="CompleteCommit")
    run_json("orphans", code=0)


def loading(world):
    world.loading.add(1)


def unload(world):
    world.unloaded.add(1)


def headless(world):
    world.partitions[STATES].leader = -1


@pytest.mark.parametrize("trouble", [loading, unload, headless])
def test_a_transaction_is_unknown_when_no_coordinator_answers(world, trouble):
    hold(world, 10)
    trouble(world)
    result = ottla("orphans", "-b", "one:9092")
    assert result.exit_code == 2
    assert result.stdout.startswith("no forgotten transactions")
    assert re.fullmatch(r"ottla: open transactions without a verdict: 1 \(.*\)", result.stderr.splitlines()[-1])
    (row,) = run_json("why", "ledger", "0", code=1)["open transactions"]
    assert row["standing"] == "unknown"


def test_partitions_are_queried_in_batches_at_their_leader(world):
    world.brokers[2] = ("two", 9092)
    many = PARTITIONS_AT_ONCE * 2 + 1
    for number in range(many):
        world.partitions["wide", number] = Partition(leader=2)
    world.partitions["wide", 400].producers = [producer(5, 7)]
    (row,) = run_json("orphans", code=1)["orphans"]
    assert (row["topic"], row["partition"]) == ("wide", 400)
    asked = [
        (broker, sum(len(topic.partition_indexes) for topic in message.topics))
        for api, broker, message in world.requests
        if api is ApiKey.DESCRIBE_PRODUCERS
    ]
    assert sorted(asked) == sorted([(1, 2), (2, 200), (2, 200), (2, 1), (2, 1)])


def test_orphans_searches_only_the_named_topics(world):
    hold(world, 10)
    world.partitions["audit", 0] = Partition(producers=[producer(5, 7)])
    assert [row["topic"] for row in run_json("orphans", "--topic", "audit", code=1)["orphans"]] == ["audit"]
    result = ottla("orphans", "--topic", "audit", "--topic", "nothing", "-b", "one:9092")
    assert (result.exit_code, result.stderr) == (2, "ottla: topic nothing: UNKNOWN_TOPIC_OR_PARTITION\n")


def test_young_ones_can_be_left_out(world):
    world.partitions[LEDGER] = Partition(producers=[producer(0, 10, age_ms=1_000), producer(1, 20, age_ms=90_000)])
    (row,) = run_json("orphans", "--min-age-ms", "60000", code=1)["orphans"]
    assert row["producer_id"] == 1


def test_a_changed_leader_is_looked_up_again(world):
    world.brokers[2] = ("two", 9092)
    hold(world, 10)

    def moves():
        world.partitions[LEDGER].leader = 2

    world.then(ApiKey.METADATA, lambda: world.then(ApiKey.METADATA, moves))
    assert len(run_json("orphans", code=1)["orphans"]) == 1


def test_a_topic_deleted_during_the_search_has_no_orphans(world):
    hold(world, 10)
    world.then(ApiKey.METADATA, lambda: world.partitions.pop(LEDGER))
    run_json("orphans", code=0)


@pytest.mark.parametrize(
    ("leader", "error", "line"),
    [(-1, 0, "LEADER_NOT_AVAILABLE"), (1, ErrorCode.KAFKA_STORAGE_ERROR, "KAFKA_STORAGE_ERROR")],
)
def test_a_partition_that_cannot_be_queried_is_named_with_its_error(world, leader, error, line):
    world.partitions["audit", 1] = Partition(leader=leader, error=error)
    result = ottla("orphans", "-b", "one:9092")
    assert (result.exit_code, result.stderr) == (2, f"ottla: audit-1: {line}\n")


def test_a_topic_that_may_not_be_read_is_named(world):
    world.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    result = ottla("orphans", "-b", "one:9092")
    assert (result.exit_code, result.stderr) == (2, "ottla: topic secret: TOPIC_AUTHORIZATION_FAILED\n")


def test_the_first_broker_that_answers_is_enough(world):
    world.refusals["zero", 1] = ConnectionRefusedError()
    assert ottla("orphans", "-b", "zero:1,one:9092").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("why", "nothing", "0"), "topic nothing: UNKNOWN_TOPIC_OR_PARTITION"),
        (("why", "ledger", "7"), "topic ledger has partitions 0 to 0, not 7"),
        (("why", "leaderless", "0"), "leaderless-0 has no leader"),
        (("orphans", "-b", "one"), "one is not HOST:PORT"),
        (("orphans", "-b", "one:0"), "one:0 is not HOST:PORT"),
        (("orphans", "-b", "one:http"), "one:http is not HOST:PORT"),
    ],
)
def test_an_impossible_query_is_one_line_and_exit_code_2(world, arguments, line):
    world.partitions["leaderless", 0] = Partition(leader=-1)
    result = ottla(*arguments, *(() if "-b" in arguments else ("-b", "one:9092")))
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"ottla: {line}\n")


def test_an_address_may_be_ipv6():
    assert brokers.parse_address("[::1]:9092") == ("::1", 9092)


@pytest.fixture
def listener():
    """Something that takes one connection and is no broker: `listener(act)`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threads = []

        def serve(act):
            def run():
                with server.accept()[0] as connection:
                    connection.recv(1024)
                    act(connection)

            threads.append(threading.Thread(target=run))
            threads[0].start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        yield serve
        for thread in threads:
            thread.join(EVENT_TIMEOUT_S)


TLS_ALERT = bytes([0x15, 3, 3, 0, 2, 2, 10])


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda connection: None, "closed the connection"),
        (lambda connection: connection.sendall(TLS_ALERT), "PLAINTEXT"),
        (lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "PLAINTEXT"),
        (lambda connection: connection.recv(1), "no answer within 0.2 s"),
    ],
)
def test_a_peer_that_is_no_broker_is_a_one_line_error(listener, act, words):
    address = listener(act)
    result = ottla("orphans", "-b", address, "--timeout-s", "0.2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(rf"ottla: {address}: [^\n]*{words}[^\n]*\n", result.stderr), result.stderr


def test_a_refused_connection_is_a_one_line_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = ottla("why", "ledger", "0", "-b", f"127.0.0.1:{port}")
    told = f"ottla: 127.0.0.1:{port}: nothing listens there (-b HOST:PORT names the brokers to ask)\n"
    assert (result.exit_code, result.stderr) == (2, told)


def test_on_a_terminal_a_long_search_shows_how_far_it_is(world, monkeypatch):
    for number in range(PARTITIONS_AT_ONCE * 2):
        world.partitions["wide", number] = Partition()
    quiet = ottla("orphans", "-b", "one:9092")
    assert quiet.stderr == ""
    shown = []
    monkeypatch.setattr("ottla.cli.txn.progress.sys", Terminal(shown))
    result = ottla("orphans", "-b", "one:9092")
    assert result.stdout == quiet.stdout
    assert "asking partitions" in "".join(shown)


class Terminal:
    """A `sys` module whose stderr is a terminal."""

    def __init__(self, shown):
        self.stderr = self
        self.write = shown.append

    def isatty(self):
        return True

    def flush(self):
        return
