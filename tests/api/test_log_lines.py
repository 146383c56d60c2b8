"""Lines of the log at INFO about transactional ids, groups, topics and non-Kafka clients, and their longest length."""

import logging
import re

import pytest

from ottla.broker.log_limiter import LOG_AGAIN_MS, LogLimiter
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from tests.api.callers import STATES, three_brokers
from tests.memory_broker import MemoryBroker

E = ErrorCode


@pytest.fixture
def broker():
    made = MemoryBroker(transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)
    for key, key_type in (("orders", 1), ("g", 0)):
        made.ask(ApiKey.FIND_COORDINATOR, 1, message(ApiKey.FIND_COORDINATOR, 1, key=key, key_type=key_type))
    made.advance(100.0)
    return made


@pytest.fixture
def new_lines(caplog):
    """Return the log lines since the last call, from INFO up."""
    caplog.set_level(logging.INFO, "ottla")

    def lines():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return lines


def init(broker, transactional_id="orders", timeout_ms=60_000, version=4, producer_id=-1, epoch=-1):
    fields = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    asked = message(ApiKey.INIT_PRODUCER_ID, version, **fields, producer_id=producer_id, producer_epoch=epoch)
    return broker.ask(ApiKey.INIT_PRODUCER_ID, version, asked)


def add(broker, producer, epoch):
    topics = [{"name": "ledger", "partitions": [0]}]
    asked = message(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="orders",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )
    return broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, asked)


def test_a_topic_that_is_made_and_deleted(broker, new_lines):
    new_lines()
    broker.create_topic("ledger", 3)
    (line,) = new_lines()
    assert re.fullmatch(r"Created topic ledger with 3 partitions and topic id [\w-]{22}", line)
    asked = message(ApiKey.DELETE_TOPICS, 5, topic_names=["ledger"], timeout_ms=1)
    broker.ask(ApiKey.DELETE_TOPICS, 5, asked)
    assert new_lines() == ["Deleted topic ledger"]


def test_leaders_that_move_and_brokers_that_stop_and_start(new_lines):
    cluster = three_brokers(factor=1)
    new_lines()
    cluster.complete(cluster.assembly.leadership.move_leader(STATES, 0, 2))
    assert new_lines() == [f"Broker 2 leads {STATES}-0 in leader epoch 1"]
    cluster.complete(cluster.assembly.stop_broker(1))
    assert new_lines() == ["Broker 1 has stopped; partitions without a leader: 1"]
    cluster.complete(cluster.assembly.start_broker(1))
    assert new_lines() == ["Broker 1 has started; partitions without a leader: 0"]


def test_an_epoch_bump_and_the_requests_it_fences_are_logged(broker, new_lines):
    broker.create_topic("ledger")
    first = init(broker)
    new_lines()
    second = init(broker)
    assert new_lines() == [
        f"Initialized transactionalId orders with producerId {first.producer_id} and producer epoch 1 for client "
        "client at client:0; lower epochs are fenced"
    ]
    assert add(broker, second, 0).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert new_lines() == [
        "Fenced client client at client:0: AddPartitionsToTxn answered PRODUCER_FENCED, transactional_id orders, "
        f"producer_id {first.producer_id}, producer_epoch 0"
    ]
    fields = {"transactional_id": "orders", "producer_id": first.producer_id, "producer_epoch": 0, "committed": True}
    assert broker.ask(ApiKey.END_TXN, 3, message(ApiKey.END_TXN, 3, **fields)).error_code == E.PRODUCER_FENCED
    assert new_lines() == [
        "Fenced client client at client:0: EndTxn answered PRODUCER_FENCED, transactional_id orders, "
        f"producer_id {first.producer_id}, producer_epoch 0"
    ]
    assert init(broker, producer_id=first.producer_id, epoch=0).error_code == E.PRODUCER_FENCED
    assert new_lines() == [
        f"Fenced client client at client:0: producerId {first.producer_id}, producer epoch 0 of transactionalId orders "
        "is not the current one"
    ]


def test_an_open_transaction_that_a_new_instance_ends(broker, new_lines):
    broker.create_topic("ledger")
    first = init(broker)
    add(broker, first, 0)
    new_lines()
    init(broker)
    lines = new_lines()
    assert lines[0] == (
        f"Aborting the open transaction of transactionalId orders: it is initialized again. ProducerId "
        f"{first.producer_id} with producer epoch 0 is fenced"
    )


def test_a_refused_transaction_timeout_is_logged_with_its_option(broker, new_lines):
    new_lines()
    assert init(broker, timeout_ms=3_600_000).error_code == E.INVALID_TRANSACTION_TIMEOUT
    assert new_lines() == [
        "Refused transactionalId orders of client client at client:0: a transaction timeout of 3600000 ms is not from "
        "1 to 900000 (transaction.max.timeout.ms)"
    ]


def test_a_name_of_any_size_takes_a_hundred_characters(broker, new_lines):
    new_lines()
    init(broker, transactional_id="x" * 20_000)
    init(broker, transactional_id="x" * 20_000, timeout_ms=-1)
    lines = new_lines()
    assert len(lines) == 2 and all(len(line) < 400 for line in lines)


def test_a_line_of_a_client_library_is_no_line_of_the_broker(new_lines):
    logging.getLogger("kafka.net.manager").error("Connection failed")
    assert new_lines() == []


def join(broker, member_id="", instance=None, protocol=b"", reason="a test", name="client"):
    client = broker.client(name)
    client.send(
        ApiKey.JOIN_GROUP,
        8,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": protocol}],
        reason=reason,
    )
    return client


def test_a_group_from_its_first_member_to_its_last(broker, new_lines):
    new_lines()
    (known,) = join(broker).replies
    assert known.error_code == E.MEMBER_ID_REQUIRED and new_lines() == []
    joining = join(broker, known.member_id)
    assert new_lines() == [
        "Group g: preparing to rebalance in state Empty with old generation 0 (reason: adding new member "
        f"{known.member_id} of /client; client reason: a test)",
        "Group g: stabilized generation 1 with 1 members",
    ]
    assert joining.replies[0].generation_id == 1
    sync = {"group_id": "g", "generation_id": 1, "member_id": known.member_id, "group_instance_id": None}
    assignments = [{"member_id": known.member_id, "assignment": b"all"}]
    broker.ask(ApiKey.SYNC_GROUP, 3, message(ApiKey.SYNC_GROUP, 3, **sync, assignments=assignments))
    assert new_lines() == [
        f"Group g: assignment of generation 1 received from leader {known.member_id} for 1 members, 0 of which are "
        "static"
    ]
    member = {"member_id": known.member_id, "group_instance_id": None, "reason": "closed"}
    broker.ask(ApiKey.LEAVE_GROUP, 5, message(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[member]))
    broker.advance(1_000.0)
    assert new_lines() == [
        "Group g: preparing to rebalance in state Stable with old generation 1 (reason: member "
        f"{known.member_id} left on LeaveGroup; client reason: closed)",
        "Group g: generation 2 is empty",
    ]


def test_a_member_that_falls_silent(broker, new_lines):
    join(broker, instance="i")
    broker.advance(4_000.0)
    new_lines()
    broker.advance(40_000.0)
    silent, *_ = new_lines()
    assert re.fullmatch(
        r"Group g: preparing to rebalance in state CompletingRebalance with old generation 1 \(reason: "
        r"member i-[-0-9a-f]+ sent no heartbeat in time, and failed\)",
        silent,
    )


def test_members_that_go_together_are_named_in_one_line(broker, new_lines):
    for number in range(8):
        join(broker, instance=f"i{number}", name=f"c{number}")
    new_lines()
    members = [{"member_id": "", "group_instance_id": f"i{number}", "reason": None} for number in range(8)]
    broker.ask(ApiKey.LEAVE_GROUP, 5, message(ApiKey.LEAVE_GROUP, 5, group_id="g", members=members))
    (left,) = [line for line in new_lines() if "LeaveGroup" in line]
    assert "members i0-" in left and "i4-" in left and "i5-" not in left
    assert left.endswith(" and 3 more left on LeaveGroup")


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (bytes.fromhex("16030100c8010000c40303"), "a TLS handshake arrived on a listener without TLS"),
        (
            b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n",
            "an HTTP request arrived on a listener of the Kafka protocol",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP request arrived"),
        (b"\x7f\xff\xff\xff\x00\x00\x00\x00", "frame size"),
    ],
    ids=["tls", "http", "http2", "nothing"],
)
def test_a_non_kafka_client_is_logged_with_the_reason_and_closed(broker, new_lines, sent, named):
    new_lines()
    client = broker.client("there:5")
    client._link.send(sent)
    broker.advance(10.0)
    assert client.closed
    (line,) = new_lines()
    assert line.startswith("Closing the connection of there") and named in line


def test_a_non_kafka_client_is_logged_once_a_minute(broker, new_lines):
    new_lines()
    for _ in range(5):
        client = broker.client("there")
        client._link.send(b"GET / HTTP/1.1\r\n\r\n")
        broker.advance(10.0)
        assert client.closed
    assert len(new_lines()) == 1
    broker.advance(LOG_AGAIN_MS)
    broker.client("there")._link.send(b"GET / HTTP/1.1\r\n\r\n")
    broker.advance(10.0)
    assert len([line for line in new_lines() if "HTTP" in line]) == 1


def test_each_problem_of_an_address_is_logged():
    clients = LogLimiter()
    assert clients.count(("1", "TLS"), 0.0) and clients.count(("1", "HTTP"), 0.0)
    assert clients.count(("2", "TLS"), 0.0) and not clients.count(("2", "TLS"), 1.0)


def test_recovery_after_a_crash_is_logged_and_a_clean_load_is_not(tmp_path, new_lines):
    from ottla.broker.log.log_config import LogConfig
    from ottla.broker.log.log_loader import Start, load_log, new_log
    from ottla.broker.ports.disk import RealDisk
    from ottla.protocol.batch import build_batch

    disk, directory = RealDisk(10), str(tmp_path)
    made = new_log(disk, directory, LogConfig(), 0, 0)
    made.segments.close()
    (tmp_path / "00000000000000000000.log").write_bytes(build_batch([(b"k", b"v")]))
    start = Start(0, 0, False, False, 0)
    load_log(disk, directory, LogConfig(), start).segments.close()
    assert new_lines() == [f"{directory}: recovering 1 of 1 segments, from offset 0 on"]
    load_log(disk, directory, LogConfig(), start._replace(clean=True)).segments.close()
    assert new_lines() == []
