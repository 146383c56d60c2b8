"""Live consumer groups move from Apache Kafka 4.3.1 to Ottla and back, on the same files and the same port."""

import signal
import subprocess
import sys
import time

import pytest
from consumer_group_clients import EVENT_TIMEOUT_S, QUICK, consume, create_topics, play_groups, poll, settle
from dumps import DECODERS, by_file, ottla_lines
from targets import ApacheKafka, Ottla
from test_graduation import GraduatedKafka, graduate
from test_written_files import dump

from ottla.broker.group.consumer.consumer_group import ConsumerGroupState
from ottla.broker.group.log import CoordinatorRecord
from ottla.broker.group.shard import GroupStore
from ottla.protocol.internal_topics.consumer_group_records import (
    decode_consumer_group_value,
    read_consumer_group_key,
)
from ottla.testkit.scanner import scan_partition
from tests.spark.views import read_view

pytest.importorskip("confluent_kafka", minversion="2.12", reason="no confluent-kafka with the consumer protocol")

PARTITION = "__consumer_offsets-0"
COUNT = 20
STOPPED = (0, 128 + signal.SIGTERM)

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


@pytest.fixture
def brokers(tmp_path):
    """Return an Apache Kafka and an Ottla on one directory and one port; none runs."""
    kafka, ottla = ApacheKafka(tmp_path / "kafka", QUICK), Ottla(tmp_path / "ottla", QUICK)
    ottla.data_dir, ottla.bootstrap = kafka.data_dir, kafka.bootstrap
    yield kafka, ottla
    for broker in (kafka, ottla):
        if broker.process is not None and broker.process.poll() is None:
            broker.kill()


def groups_in(broker):
    """Return the groups that the log has, by id."""
    store = GroupStore()
    for batch in scan_partition(broker.data_dir / PARTITION).batches:
        for record in batch.records():
            if (key := read_consumer_group_key(record.key)) is not None:
                value = None if record.value is None else decode_consumer_group_value(key.record_type, record.value)
                store.apply(CoordinatorRecord(-1, record.offset, key, value), 0)
    return {group_id: metadata.group for group_id, metadata in store.groups.items()}


def run_ottla(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_files(broker):
    """Both tools print the same about the records of groups, and the other commands find no problem."""
    root, name = broker.data_dir.parent, broker.data_dir.name
    files = [*(broker.data_dir / PARTITION).glob("*.log")]
    theirs = by_file(dump(root, files, "--deep-iteration", "--offsets-decoder", compacted=DECODERS).splitlines(), root)
    ours = ottla_lines(root, [name])
    assert theirs
    assert {path: ours[path] for path in theirs} == theirs
    assert "problems:" not in run_ottla("inspect", broker.data_dir)
    assert "Clean: " in run_ottla("audit", broker.data_dir)


def produce(bootstrap, first):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, first + COUNT):
        producer.produce("orders", b"%d" % number, partition=number % 3)
    assert producer.flush(EVENT_TIMEOUT_S) == 0


def consume_and_commit(consumers, first):
    """Poll until each group has the values from `first` on, each once, and commit after each."""
    deadline, found = time.monotonic() + EVENT_TIMEOUT_S, []
    while len(found) < COUNT:
        assert time.monotonic() < deadline, found
        for consumer in consumers:
            values = poll(consumer)
            if values:
                consumer.commit(asynchronous=False)
                found += values
    assert sorted(found, key=int) == [b"%d" % number for number in range(first, first + COUNT)]


def join(bootstrap, lost):
    """Return the members of two groups, one of them static, and the partitions that they share."""
    options = {"on_lost": lambda _, partitions: lost.append(partitions)}
    auditors = [consume(bootstrap, "auditors", "one", "orders", "payments", **options)]
    settle(auditors, 5)
    auditors.append(
        consume(bootstrap, "auditors", "two", "orders", "payments", group_instance_id="instance-2", **options)
    )
    settle(auditors, 5)
    billing = [consume(bootstrap, "billing", "range", "orders", group_remote_assignor="range", **options)]
    settle(billing, 3)
    return {"auditors": auditors, "billing": billing}


def are_stable(groups, before):
    """Return whether every member has the epoch of its group, and each group a later one than before."""
    return all(
        group.state is ConsumerGroupState.STABLE and (not before or group.epoch > before[group_id].epoch)
        for group_id, group in groups.items()
    )


def use(broker, members, first, before=()):
    """Let the groups consume new records and commit on a broker, then return them as its stopped log has them."""
    produce(broker.bootstrap, first)
    for consumers in members.values():
        consume_and_commit(consumers, first)
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not are_stable(groups_in(broker), before):
        assert time.monotonic() < deadline, "a group has no new epoch, or is not stable"
        poll(*(consumer for consumers in members.values() for consumer in consumers))
    assert broker.stop() in STOPPED
    check_files(broker)
    offsets = read_view(broker.data_dir, "group_offsets")
    found = {(row["group"], row["committedPartition"]): row["committedOffset"] for row in offsets}
    end = first + COUNT
    assert found == {(group_id, index): (end + 2 - index) // 3 for group_id in members for index in range(3)}
    return groups_in(broker)


def check_went_on(before, after):
    """Another broker begins one group epoch, as its hash of the topics differs; nothing else changes."""
    for group_id, group in before.items():
        then = after[group_id]
        assert then.epoch == group.epoch + 1
        assert then.targets == group.targets
        assert then.static_members == group.static_members
        for member_id, member in group.members.items():
            assert then.members[member_id].epoch == then.epoch
            # A member of the classic protocol joins again, with a new subscription of the same topics.
            both = then.members[member_id].metadata, member.metadata
            assert both[0]._replace(classic=None) == both[1]._replace(classic=None)
            assert (both[0].classic is None) == (both[1].classic is None)
            assert then.members[member_id].current.assigned == member.current.assigned
    assert before.keys() == after.keys()


def test_members_go_on_from_kafka_to_ottla_and_back(brokers):
    lost = []
    kafka, ottla = brokers
    create_topics(kafka.start().bootstrap, orders=3, payments=2)
    members = join(kafka.bootstrap, lost)
    at_kafka = use(kafka, members, 0)
    at_ottla = use(ottla.start(), members, COUNT, at_kafka)
    check_went_on(at_kafka, at_ottla)
    at_home = use(kafka.start(), members, 2 * COUNT, at_ottla)
    check_went_on(at_ottla, at_home)
    ids = {group_id: {member.memberid() for member in consumers} for group_id, consumers in members.items()}
    assert ids == {group_id: {*group.members} for group_id, group in at_home.items()}
    assert lost == []


def test_group_in_a_migration_goes_on_from_ottla_to_kafka_and_back(brokers):
    """Move a member of each protocol to Kafka and back, then downgrade the group at Kafka and move it back."""
    kafka, ottla = brokers
    create_topics(kafka.start().bootstrap, orders=3, payments=2)
    kafka.stop()
    options = {"heartbeat_interval_ms": 300, "session_timeout_ms": 30_000, "group_protocol": "classic"}
    classic = consume(ottla.start().bootstrap, "auditors", "classic", "orders", "payments", **options)
    settle([classic], 5)
    new = consume(ottla.bootstrap, "auditors", "new", "orders", "payments")
    settle([classic, new], 5)
    members = {"auditors": [classic, new]}
    at_ottla = use(ottla, members, 0)
    at_kafka = use(kafka.start(), members, COUNT, at_ottla)
    check_went_on(at_ottla, at_kafka)
    check_went_on(at_kafka, use(ottla.start(), members, 2 * COUNT, at_kafka))
    kafka.start()
    new.close()
    settle([classic], 5)
    produce(kafka.bootstrap, 3 * COUNT)
    consume_and_commit([classic], 3 * COUNT)
    kafka.stop()
    produce(ottla.start().bootstrap, 4 * COUNT)
    consume_and_commit([classic], 4 * COUNT)
    assert ottla.stop() in STOPPED
    check_files(ottla)


def test_members_go_on_from_ottla_to_a_graduated_kafka(tmp_path):
    lost = []
    ottla = Ottla(tmp_path / "ottla", QUICK)
    kafka = GraduatedKafka(tmp_path / "kafka", ottla.data_dir, QUICK)
    ottla.bootstrap = kafka.bootstrap
    try:
        create_topics(ottla.start().bootstrap, orders=3, payments=2)
        members = join(ottla.bootstrap, lost)
        at_ottla = use(ottla, members, 0)
        done = graduate(ottla.data_dir, kafka.properties)
        assert done.returncode == 0, done.stderr
        check_went_on(at_ottla, use(kafka.start(), members, COUNT, at_ottla))
        assert lost == []
    finally:
        for broker in (ottla, kafka):
            if broker.process is not None:
                broker.stop()


def test_every_kind_of_record_of_kafka_is_dumped_as_by_its_tool(brokers):
    kafka, _ = brokers
    play_groups(kafka.start().bootstrap)
    kafka.stop()
    check_files(kafka)
