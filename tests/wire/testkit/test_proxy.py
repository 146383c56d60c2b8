"""The proxy in front of our broker: clients stay connected to it, faults fire, and the traffic is checked."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from ottla.demo.clients import own_broker
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.testkit.checker import check_files
from ottla.testkit.history import checker_lines
from ottla.testkit.proxying import ProxyServer
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.once_more import one_at_hand_others_slow

ASKS_AGAIN = {"metadata_max_age_ms": 1_000}
"""kafka-python forgets a subscription without a group that comes while a Metadata request is in flight, until then."""
LIBRDKAFKA = {"log_level": 0, "socket.timeout.ms": 10_000}


@pytest.fixture(scope="module")
def broker():
    """A broker with coordinators: their topic is created when a client looks for one."""
    find = codec.request_class(ApiKey.FIND_COORDINATOR)(key_type=1, coordinator_keys=["ledger"])
    with own_broker() as broker:
        with connect(broker) as client:
            assert client.send(find).coordinators[0].error_code == 0
        yield broker


@pytest.fixture
def proxy(broker):
    with ProxyServer(broker.bootstrap) as proxy:
        yield proxy


@pytest.fixture
def topic():
    return f"ledger-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(proxy):
    with connect(proxy) as client:
        yield client


def connect(server):
    host, _, port = server.bootstrap.rpartition(":")
    return BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S)


def init(txn_id, timeout_ms=60_000):
    request = codec.request_class(ApiKey.INIT_PRODUCER_ID)
    return request(transactional_id=txn_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1)


def heartbeat():
    return codec.request_class(ApiKey.HEARTBEAT)(group_id="nobody", generation_id=1, member_id="m")


def frame(message, version, correlation_id=1):
    return codec.encode_request(message, version, correlation_id, "raw")


def raw(proxy):
    host, _, port = proxy.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=EVENT_TIMEOUT_S)


def read(sock):
    """Return the correlation id of the next reply; None at the end."""
    size = sock.recv(4, socket.MSG_WAITALL)
    return int.from_bytes(sock.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)[:4], "big") if size else None


def until(holds):
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def is_closed(sock):
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


# ---- clients


def write_with_confluent(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-c", **LIBRDKAFKA})
    producer.init_transactions(EVENT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value="c")
    producer.commit_transaction(EVENT_TIMEOUT_S)


def write_with_kafka_python(bootstrap, topic):
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-k")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"k").get(timeout=EVENT_TIMEOUT_S)
    producer.commit_transaction()
    producer.close()


def write_with_aiokafka(bootstrap, topic):
    from aiokafka import AIOKafkaProducer

    async def write():
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-a")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"a")
        await producer.stop()

    asyncio.run(write())


def values(bootstrap, topic, count):
    how = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", **ASKS_AGAIN}
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, consumer_timeout_ms=EVENT_TIMEOUT_S * 1000, **how)
    found = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "write", one_at_hand_others_slow([write_with_kafka_python, write_with_confluent, write_with_aiokafka])
)
def test_a_client_stays_on_the_proxy_for_any_address_that_a_broker_returns(broker, topic, write):
    port = broker.bootstrap.rpartition(":")[2]
    with ProxyServer(f"localhost:{port}", advertised_host="localhost") as proxy:
        write(proxy.bootstrap, topic)
        assert values(proxy.bootstrap, topic, 1)
        assert proxy.requests["EndTxn"] == proxy.requests["Produce"] == 1
        assert proxy.requests["Fetch"] >= 1
        brokers = proxy.brokers
    assert set(brokers) == {f"localhost:{port}", f"127.0.0.1:{port}"}
    assert len(set(brokers.values())) == 2


# ---- faults


def test_an_error_reply_is_sent_without_forwarding_the_request(proxy, client, topic):
    fault = proxy.add(api="InitProducerId", do="reply", error="COORDINATOR_LOAD_IN_PROGRESS")
    assert client.send(init(topic)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.send(init(topic)).producer_epoch == 0
    assert (fault.seen, fault.hits) == (1, 1)


def test_a_connection_is_dropped_before_or_after_the_request(proxy, topic):
    for at, epoch in (("request", 0), ("reply", 1)):
        proxy.add(at=at, api="InitProducerId", do="drop")
        host, _, port = proxy.bootstrap.rpartition(":")
        with BlockingConnection(host, int(port)) as client, pytest.raises(ConnectionError):
            client.send(init(f"{topic}-{at}"))
        with BlockingConnection(host, int(port)) as client:
            assert client.send(init(f"{topic}-{at}")).producer_epoch == epoch


def test_a_lost_reply_does_not_stop_later_replies(proxy):
    proxy.add(at="reply", api="Heartbeat", do="lose")
    with raw(proxy) as sock:
        sock.sendall(frame(heartbeat(), 4, 1) + frame(heartbeat(), 4, 2))
        assert read(sock) == 2


def test_a_held_request_delays_those_after_it_until_its_release(proxy):
    fault = proxy.add(api="Heartbeat", do="hold")
    with raw(proxy) as sock:
        sock.sendall(frame(heartbeat(), 4, 1) + frame(heartbeat(), 4, 2))
        proxy.await_hits(fault)
        assert proxy.requests["Heartbeat"] == 1
        proxy.plan.release(fault.id)
        assert [read(sock), read(sock)] == [1, 2]


def test_a_reply_is_held_when_the_request_was_carried_out(proxy, client, topic):
    fault = proxy.add(at="reply", api="InitProducerId", do="hold")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(client.send(init(topic), 4)))
    asking.start()
    proxy.await_hits(fault)
    host, _, port = proxy.bootstrap.rpartition(":")
    proxy.plan.release(fault.id)
    with BlockingConnection(host, int(port)) as other:
        assert other.send(init(topic)).producer_epoch == 1
    asking.join()
    assert answers[0].producer_epoch == 0


def test_a_held_request_of_a_closed_connection_is_not_forwarded(proxy, client, topic):
    fault = proxy.add(api="InitProducerId", do="hold")
    with raw(proxy) as sock:
        sock.sendall(frame(init(topic), 4))
        until(lambda: proxy.plan.count_held(fault.id) == 1)
    until(lambda: proxy.plan.count_held(fault.id) == 0)
    proxy.plan.release(fault.id)
    assert client.send(init(topic)).producer_epoch == 0


def test_a_request_is_carried_out_twice_and_answered_once(proxy, topic):
    proxy.add(api="InitProducerId", do="duplicate")
    with raw(proxy) as sock:
        sock.sendall(frame(init(topic), 4, 1) + frame(heartbeat(), 4, 2))
        assert [read(sock), read(sock)] == [1, 2]
    host, _, port = proxy.bootstrap.rpartition(":")
    with BlockingConnection(host, int(port)) as client:
        assert client.send(init(topic)).producer_epoch == 2


def test_a_delay_passes(proxy, client):
    fault = proxy.add(api="Heartbeat", do="delay", ms=1)
    assert client.send(heartbeat()).error_code
    assert fault.hits == 1


def test_an_answer_of_the_proxy_waits_for_those_before_it(proxy):
    proxy.add(api="Heartbeat", nth=2, do="reply", error="REBALANCE_IN_PROGRESS")
    with raw(proxy) as sock:
        sock.sendall(b"".join(frame(heartbeat(), 4, number) for number in (1, 2, 3)))
        assert [read(sock), read(sock), read(sock)] == [1, 2, 3]


def test_a_producer_that_wants_no_answers_gets_none(proxy, topic):
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, acks=0, enable_idempotence=False)
    for number in range(5):
        producer.send(topic, b"%d" % number)
        producer.flush()
    producer.close()
    assert values(proxy.bootstrap, topic, 5) == [b"%d" % number for number in range(5)]


def test_a_fault_strikes_whom_it_names(proxy, client, topic):
    proxy.add(api="InitProducerId", where={"transactional_id": topic}, do="reply", error="PRODUCER_FENCED")
    assert client.send(init(f"{topic}-other")).error_code == 0
    assert client.send(init(topic)).error_code == ErrorCode.PRODUCER_FENCED


def test_hanging_up_ends_all_connections_and_refuses_new_ones_for_a_while(proxy):
    with raw(proxy) as sock:
        sock.sendall(frame(heartbeat(), 4))
        assert read(sock) == 1
        proxy.hang_up(for_s=60)
        assert sock.recv(1) == b""
    with raw(proxy) as sock:
        assert is_closed(sock)
    proxy.hang_up()
    with raw(proxy) as sock:
        sock.sendall(frame(heartbeat(), 4))
        assert read(sock) == 1


# ---- connections


def test_a_half_closed_connection_still_gets_its_reply():
    with (
        socket.create_server(("127.0.0.1", 0)) as upstream,
        ProxyServer(f"127.0.0.1:{upstream.getsockname()[1]}") as proxy,
        raw(proxy) as sock,
    ):
        sock.sendall(frame(heartbeat(), 4))
        sock.shutdown(socket.SHUT_WR)
        connection, _ = upstream.accept()
        with connection:
            while connection.recv(1000):
                pass
            connection.sendall(b"\0\0\0\4\0\0\0\1")
            assert read(sock) == 1
        assert sock.recv(1) == b""


def test_a_broker_that_is_away_ends_the_connection():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with ProxyServer(f"127.0.0.1:{port}") as proxy, raw(proxy) as sock:
        assert is_closed(sock)


def test_bytes_that_are_no_request_end_their_connection_only(proxy):
    with raw(proxy) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(1) == b""
    with raw(proxy) as sock:
        sock.sendall(frame(heartbeat(), 4))
        assert read(sock) == 1


def test_a_large_reply_reaches_who_reads_slowly(proxy, topic):
    value = bytes(range(256)) * 3_000
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap)
    producer.send(topic, value).get(timeout=EVENT_TIMEOUT_S)
    producer.close()
    how = {"auto_offset_reset": "earliest", "receive_buffer_bytes": 4096, **ASKS_AGAIN}
    consumer = KafkaConsumer(topic, bootstrap_servers=proxy.bootstrap, **how)
    assert next(consumer).value == value
    consumer.close()


def test_passwords_are_left_out_of_the_journal(proxy):
    handshake = codec.request_class(ApiKey.SASL_HANDSHAKE)(mechanism="PLAIN")
    secret = codec.request_class(ApiKey.SASL_AUTHENTICATE)(auth_bytes=b"\0alice\0secret")
    with raw(proxy) as sock:
        sock.sendall(frame(handshake, 1, 1) + frame(secret, 2, 2))
        assert read(sock) and read(sock)
    entries = list(proxy.journal.since(0))
    assert [entry.request[:2] for entry in entries] == [b"\0\x11", b"\0\x24"]
    assert not any(b"secret" in entry.request for entry in entries)


# ---- the history


def play(proxy, topic):
    """Run transactions of three libraries, one of which copies, while replies are lost and requests are refused."""
    for at, api, nth, what in [
        ("reply", "EndTxn", 2, {"do": "drop"}),
        ("request", "EndTxn", 4, {"do": "reply", "error": "CONCURRENT_TRANSACTIONS", "times": 2}),
        ("request", "EndTxn", 8, {"do": "drop"}),
        ("reply", "Produce", 3, {"do": "drop"}),
        ("reply", "Produce", 8, {"do": "drop"}),
        ("request", "Produce", 5, {"do": "reply", "error": "NOT_LEADER_OR_FOLLOWER"}),
        ("request", "Produce", 11, {"do": "duplicate"}),
        ("reply", "InitProducerId", 2, {"do": "drop"}),
        ("reply", "TxnOffsetCommit", 1, {"do": "drop"}),
        ("request", "TxnOffsetCommit", 2, {"do": "reply", "error": "NOT_COORDINATOR"}),
    ]:
        proxy.add(at=at, api=api, nth=nth, **what)
    how = {"bootstrap.servers": proxy.bootstrap, **LIBRDKAFKA}
    producer = Producer({"transactional.id": f"{topic}-c", **how})
    producer.init_transactions(EVENT_TIMEOUT_S)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, value="equal")
        producer.produce(f"{topic}-other", value="equal")
        producer.flush()
        producer.abort_transaction(EVENT_TIMEOUT_S) if number == 2 else producer.commit_transaction(EVENT_TIMEOUT_S)
    write_with_kafka_python(proxy.bootstrap, topic)
    write_with_aiokafka(proxy.bootstrap, topic)
    copy(producer, Consumer({**how, "group.id": topic, **READ_COMMITTED}), topic)
    assert all(fault.hits for fault in proxy.plan), [fault.describe() for fault in proxy.plan if not fault.hits]


READ_COMMITTED = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.auto.commit": False}


def copy(producer, consumer, topic):
    consumer.subscribe([topic])
    for _ in range(5):
        record = consumer.poll(EVENT_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(f"{topic}-copy", value=record.value() + b"<%s/0/%d" % (topic.encode(), record.offset()))
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction(EVENT_TIMEOUT_S)
    consumer.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Yield the journal entries of a run, and its log directory."""
    with own_broker() as broker:
        with ProxyServer(broker.bootstrap) as proxy:
            play(proxy, "ledger")
            entries = list(proxy.journal.since(0))
        broker.stop()
        yield entries, broker.data_dir


def check(tmp_path, lines, data_dir):
    history = tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return check_files(history, data_dir)


@pytest.mark.slow
def test_a_sound_history_with_lost_replies_has_no_anomaly(run, tmp_path):
    entries, data_dir = run
    lines = checker_lines(entries)
    assert check(tmp_path, lines, data_dir) == []
    told = {(line["f"], line["type"]) for line in lines}
    assert {(f, "ok") for f in ("init", "send", "end", "offsets", "poll", "fetch-offsets")} <= told


def commit_nothing(line):
    return {"commit": False} if line["f"] == "end" and line.get("commit") else {}


def send_something_else(line):
    return {"mops": [[*mop[:2], mop[2] + "?"] for mop in line["mops"]]} if is_send(line) else {}


def read_further(line):
    if not is_poll(line):
        return {}
    ((poll, key, start, behind, records),) = line["mops"]
    return {"mops": [[poll, key, start, behind, records[1:]]]}


@pytest.mark.parametrize(
    ("planted", "kind"), [(commit_nothing, "G1a"), (send_something_else, "phantom"), (read_further, "poll-skip")]
)
def test_an_altered_history_has_the_planted_anomaly(run, tmp_path, planted, kind):
    entries, data_dir = run
    lines = [{**line, **planted(line)} for line in checker_lines(entries)]
    assert kind in {anomaly.kind for anomaly in check(tmp_path, lines, data_dir)}


def is_send(line):
    return line["f"] == "send" and line["type"] == "invoke" and line["mops"][0][1] == "ledger-copy/0"


def is_poll(line):
    return line["f"] == "poll" and line["type"] == "ok"


def test_an_acknowledged_write_missing_from_the_log_is_found(run, tmp_path):
    """The history has a send that the logs do not have, as with a broker that answers and does not write."""
    entries, data_dir = run
    lines = checker_lines(entries)
    for line in lines:
        if is_send(line) or (line["f"] == "send" and line["type"] == "ok" and line["mops"][0][1] == "ledger-copy/0"):
            line["mops"] = [[*mop[:2], mop[2] + "?", *mop[3:]] for mop in line["mops"]]
    assert "lost-write" in {anomaly.kind for anomaly in check(tmp_path, lines, data_dir)}


def test_a_batch_without_a_number_that_arrives_twice_is_found(tmp_path):
    with own_broker() as broker:
        with ProxyServer(broker.bootstrap) as proxy:
            fault = proxy.add(api="Produce", do="duplicate")
            producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, enable_idempotence=False)
            producer.send("ledger", b"paid").get(timeout=EVENT_TIMEOUT_S)
            producer.close()
            lines = checker_lines(proxy.journal.since(0))
        broker.stop()
        (found,) = check(tmp_path, lines, broker.data_dir)
    assert fault.hits == 1
    assert (found.kind, found.detail) == ("duplicate", "paid is at ledger/0@0, ledger/0@1")


# ---- the command


def test_the_command_plays_a_plan_and_leaves_a_history(broker, tmp_path, topic):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: reply, api: EndTxn, do: drop}\n- {at: reply, api: Produce, do: lose, nth: 100}\n")
    history, events = tmp_path / "history.jsonl", tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "ottla.cli.main", "proxy", "--upstream", broker.bootstrap, "--faults", str(plan)]
    command += ["--history", str(history), "--events", str(events), "--all-must-strike"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        ready = re.fullmatch(r"ready (127\.0\.0\.1:\d+)\n", process.stdout.readline())
        write_with_kafka_python(ready[1], topic)
    finally:
        process.terminate()
        _, said = process.communicate(timeout=EVENT_TIMEOUT_S)
    assert process.returncode == 1, said  # the second never strikes
    assert "fault 1: drop at reply of EndTxn, 1 time: fired 1, seen 1" in said
    assert "fault 2: lose at reply of Produce from number 100, 1 time: fired 0, seen 1" in said
    told = [json.loads(line) for line in history.read_text().splitlines()]
    assert [line["commit"] for line in told if line["f"] == "end" and line["type"] == "invoke"] == [True]
    seen = [json.loads(line) for line in events.read_text().splitlines()]
    assert [event["faults"] for event in seen if event["api"] == "EndTxn"] == [[1], []]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ('[{"at": "marker", "do": "lose"}]', "'lose' at 'marker' needs an Ottla broker"),
        ('[{"do": "drop"}, {"do": "dorp"}]', "fault 2: 'dorp' is an unknown action at 'request': did you mean drop?"),
        ("[", "plan.json: Expecting value"),
    ],
)
def test_the_command_refuses_a_plan_in_one_line(tmp_path, plan, said):
    (tmp_path / "plan.json").write_text(plan)
    command = [sys.executable, "-m", "ottla.cli.main", "proxy", "--upstream", "127.0.0.1:1"]
    done = subprocess.run([*command, "--faults", str(tmp_path / "plan.json")], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
