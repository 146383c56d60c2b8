"""`ottla top` on a broker: its single output, the size of its requests, and the live view on a terminal."""

import contextlib
import importlib.util
import json
import os
import pty
import select
import signal
import sys
import time
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from served import Served

from ottla.cli.main import main
from ottla.cli.top import watch as watching
from ottla.cli.top.watch import Watch
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S
from tests.unit.cli.test_terminal import check_document

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
OPTIONS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    # The assignor does not run again for a second member.
    "group.consumer.assignment.interval.ms": "600000",
    "group.consumer.max.assignment.interval.ms": "600000",
}
HOSTILE = "order-\x1b[2J"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("top")
    more = [f"--override={name}={value}" for name, value in OPTIONS.items()]
    served = Served(folder / "data", "--admin-listen", "127.0.0.1:0", "--test-control", *more).ready()
    served.url = served.process.stdout.readline().removeprefix("admin ").strip()
    served.bootstrap = f"127.0.0.1:{served.port}"
    plain = KafkaProducer(bootstrap_servers=served.bootstrap)
    for number in range(4):
        plain.send("ledger", b"plain", partition=number).get(EVENT_TIMEOUT_S)
    for number in range(3):
        group = KafkaConsumer(bootstrap_servers=served.bootstrap, group_id=f"readers-{number}")
        place = TopicPartition("ledger", 0)
        group.assign([place])
        group.commit({place: OffsetAndMetadata(0, "", -1)})
        group.close()
    held = KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=HOSTILE, transaction_timeout_ms=600_000)
    held.init_transactions()
    held.begin_transaction()
    for number in (1, 0):
        held.send("ledger", b"held", partition=number).get(EVENT_TIMEOUT_S)
    plain.send("ledger", b"behind", partition=0).get(EVENT_TIMEOUT_S)
    yield served
    held.abort_transaction()
    held.close()
    plain.close()
    assert served.end() == 0
    served.process.communicate()


def top(*arguments):
    return CliRunner().invoke(main, ["top", *arguments], catch_exceptions=False)


@pytest.mark.slow
def test_once_lists_the_transaction_that_holds_partitions_back(broker):
    done = top("-b", broker.bootstrap, "--once", "--format", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    check_document("ottla top --once", document)
    (transaction,) = document["transactions"]
    assert transaction["transactional_id"] == HOSTILE
    assert transaction["state"] == "Ongoing"
    assert 0 < transaction["time_left_ms"] <= 600_000 - transaction["age_ms"]
    assert (transaction["partitions"], transaction["where"]) == (2, "ledger-0, ledger-1")
    rows = {row["partition"]: row for row in document["partitions"]}
    assert {row["topic"] for row in rows.values()} == {"ledger"}
    assert [
        (number, row["last_stable_offset"], row["high_watermark"], row["held_back"])
        for number, row in sorted(rows.items())
    ] == [(0, 1, 3, 2), (1, 1, 2, 1)]
    assert all((row["standing"], row["transactional_id"]) == ("in time", HOSTILE) for row in rows.values())
    assert [(row["group"], row["lag"], row["stable_lag"]) for row in document["groups"]] == [
        (f"readers-{number}", 3, 1) for number in range(3)
    ]
    assert "left out" not in document and "not answered" not in document


@pytest.fixture
def rebalancing(broker):
    """Yield a group of the consumer protocol with two members. The assignor has not run for the second."""
    with BlockingConnection("127.0.0.1", broker.port, timeout_s=EVENT_TIMEOUT_S) as connection:

        def ask(api, version, **fields):
            return connection.send(codec.request_class(api)(**fields), version)

        def heartbeat(name, epoch, **fields):
            reply = ask(HEARTBEAT, 1, group_id="moving", member_id=name, member_epoch=epoch, **fields)
            assert reply.error_code == ErrorCode.NONE, reply

        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["ledger"], "topic_partitions": []}
        for name in ("one", "two"):
            heartbeat(name, 0, **joining)
        yield "moving"
        for name in ("one", "two"):
            heartbeat(name, -1)
        (deleted,) = ask(ApiKey.DELETE_GROUPS, 2, groups_names=["moving"]).results
        assert deleted.error_code == ErrorCode.NONE, deleted


def top_groups(broker):
    document = json.loads(top("-b", broker.bootstrap, "--once", "--format", "json").stdout)
    check_document("ottla top --once", document)
    return {row["group"]: row for row in document["groups"]}, document


def test_a_group_of_the_consumer_protocol_has_the_state_and_the_epochs_of_the_admin_port(broker, rebalancing):
    rows, document = top_groups(broker)
    row = rows[rebalancing]
    assert (row["type"], row["state"], row["epoch"], row["assignment_epoch"]) == ("consumer", "Assigning", 3, 2)
    assert (rows["readers-0"]["type"], rows["readers-0"]["epoch"], rows["readers-0"]["assignment_epoch"]) == (
        "classic",
        None,
        None,
    )
    assert "not answered" not in document
    with urlopen(f"{broker.url}/v1/groups?prefix={rebalancing}", timeout=EVENT_TIMEOUT_S) as reply:
        (shown,) = json.load(reply)["groups"]
    assert {name: shown[name] for name in ("type", "state", "epoch", "assignment_epoch")} == {
        name: row[name] for name in ("type", "state", "epoch", "assignment_epoch")
    }


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        ("GROUP_AUTHORIZATION_FAILED", ["broker 1 does not describe groups: GROUP_AUTHORIZATION_FAILED"]),
        ("GROUP_ID_NOT_FOUND", []),
    ],
)
def test_a_group_that_is_not_described_is_listed_without_epochs(broker, rebalancing, error, reasons):
    plan = ["ctl", "fault", "add", "reply", "--api", "ConsumerGroupDescribe", "--error", error]
    assert CliRunner().invoke(main, [*plan, "--times", "1", "--admin", broker.url]).exit_code == 0
    rows, document = top_groups(broker)
    row = rows[rebalancing]
    assert (row["type"], row["state"], row["epoch"], row["assignment_epoch"]) == ("consumer", "Assigning", None, None)
    assert [each["reason"] for each in document.get("not answered", [])] == reasons


def test_once_as_text_moves_no_cursor(broker):
    done = top("-b", broker.bootstrap, "--once")
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout and "order-\\x1b[2J" in done.stdout
    assert done.stdout.startswith("1 open transaction, 0 overdue; 3 offsets held back in 2 partitions; 3 groups")


def test_a_poll_is_bounded_and_later_polls_cover_the_rest(broker, monkeypatch):
    monkeypatch.setattr(watching, "MOST_PARTITIONS", 20)
    monkeypatch.setattr(watching, "MOST_GROUPS", 2)
    monkeypatch.setattr(watching, "MOST_HELD_BACK", 1)
    with Watch([("127.0.0.1", broker.port)], EVENT_TIMEOUT_S) as watch:
        seen, groups = set(), set()
        ends = watch._ends
        monkeypatch.setattr(watch, "_ends", lambda *args: (found := ends(*args), seen.update(found))[0])
        picture = watch.poll()
        assert {(each.what, each.looked_at) for each in picture.left_out} == {
            ("partitions", 20),
            ("partitions that hold back", 1),
            ("groups", 2),
        }
        of = {each.what: each.of for each in picture.left_out}
        assert (of["partitions that hold back"], of["groups"]) == (2, 3)
        assert of["partitions"] > 100  # with those of the internal topics
        for _ in range(1 + of["partitions"] // 10):
            picture = watch.poll()
            groups.update(each.group_id for each in picture.groups)
            assert len(picture.held_back) == 1
        assert len(seen) == of["partitions"]
        assert groups == {"readers-0", "readers-1", "readers-2"}


def test_of_too_many_transactions_some_are_described_and_all_counted(broker, monkeypatch):
    others = [
        KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"other-{number}") for number in range(2)
    ]
    try:
        for producer in others:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("ledger", b"other", partition=3).get(EVENT_TIMEOUT_S)
        monkeypatch.setattr(watching, "MOST_TRANSACTIONS", 1)
        monkeypatch.setattr(watching, "OLDER_MS", (0,))
        with Watch([("127.0.0.1", broker.port)], EVENT_TIMEOUT_S) as watch:
            picture = watch.poll()
        assert len(picture.transactions) == 1
        assert ("transactions", 1, 3) in picture.left_out
    finally:
        for producer in others:
            producer.abort_transaction()
            producer.close()


def test_an_error_to_one_request_is_reported_and_the_rest_is_listed(broker):
    plan = ["ctl", "fault", "add", "reply", "--api", "ListGroups", "--error", "COORDINATOR_LOAD_IN_PROGRESS"]
    assert CliRunner().invoke(main, [*plan, "--times", "1", "--admin", broker.url]).exit_code == 0
    document = json.loads(top("-b", broker.bootstrap, "--once", "--format", "json").stdout)
    check_document("ottla top --once", document)
    (row,) = document["not answered"]
    assert row["reason"].endswith("does not list its groups: COORDINATOR_LOAD_IN_PROGRESS")
    assert len(document["transactions"]) == 1


def test_errors_of_top_are_printed_as_one_line(broker, monkeypatch):
    done = top("-b", "127.0.0.1:1", "--once")
    assert done.exit_code == 2
    assert done.stderr == "ottla: 127.0.0.1:1: nothing listens there (-b HOST:PORT names the brokers to ask)\n"
    assert top("-b", "nowhere", "--once").exit_code == 2
    assert "--format json needs --once" in top("-b", broker.bootstrap, "--format", "json").stderr
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = top("-b", broker.bootstrap)
    assert (done.exit_code, done.stderr) == (
        2,
        "ottla: the live view needs rich: pip install 'ottla[top]'; --once does not need it\n",
    )


def test_the_live_view_draws_filters_and_quits_on_a_terminal(broker):
    pytest.importorskip("rich", reason="the live view needs rich: pip install 'ottla[top]'")
    words = [sys.executable, "-m", "ottla", "top", "-b", broker.bootstrap, "--interval-s", "0.2"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, words, os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"})
    shown = bytearray()

    def until(*parts):
        start, deadline = len(shown), time.monotonic() + EVENT_TIMEOUT_S
        while not all(part in shown[start:] for part in parts):
            assert time.monotonic() < deadline, bytes(shown[-2000:])
            if select.select([terminal], [], [], 1.0)[0]:
                shown.extend(os.read(terminal, 65_536))

    try:
        until(b"order-\\x1b[2J", b"readers-0", b"held back")
        os.write(terminal, b"/nothing of the kind")
        until(b"/nothing of the kind", b"transactions 0", b"groups 0")
        os.write(terminal, b"\x1b")
        until(b"readers-0")
        os.write(terminal, b"\x1b[3~\x1b[Bq")
        with contextlib.suppress(OSError):  # that of a terminal which nobody has open any more
            while data := os.read(terminal, 65_536):
                shown.extend(data)
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)  # nothing, if it has ended
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
