"""`ottla pull`: a copy of a cluster as a log directory, with the bytes of the source."""

import hashlib
import json
import shutil
import stat

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from ottla.broker.ports.disk import RealDisk
from ottla.cli.graduate.command import graduate
from ottla.cli.pull import partition
from ottla.cli.pull.command import pull
from ottla.cli.pull.directory import Progress, Pull, open_directory
from ottla.cli.pull.mark import MARK, decode_mark, encode_mark
from ottla.cli.pull.partition import load_log_files, save_log_files
from ottla.cli.pull.source import Request, list_source
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.checkpoints import LEADER_EPOCHS, LOG_STARTS, META_PROPERTIES, decode_offsets
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.wire import Unanswered
from ottla.wire.address import connections_to, parse_kafka_address
from tests.audit.test_cluster import HERE, SERVED, SOON_MS, audit_of, facts_of
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker
from tests.timeout import EVENT_TIMEOUT_S

EVERYTHING = ("--topics", "*", "--groups", "--transactions")
TIME_MS = 1_700_000_000_000


def serving(case, tmp_path):
    root = write_files(files_of(HERE[case]), tmp_path / "source") / "data"
    return ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING), root


def run(broker, directory, *options):
    return CliRunner().invoke(pull, [f"kafka://{broker.bootstrap}", str(directory), *options])


def produce(broker, numbers):
    """Write one batch for each number to topic ledger, a millisecond after the other."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in numbers:
        producer.send("ledger", b"%d" % number, timestamp_ms=TIME_MS + number).get(EVENT_TIMEOUT_S)
    producer.close()


def pull_json(broker, directory, *options):
    """Pull as JSON; return the document."""
    result = run(broker, directory, *options, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def batches_of(directory, from_offset=0):
    """Return the bytes of all batches of a partition that reach `from_offset` or later."""
    content = b""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for at, header in iter_batches(memoryview(data)):
            if header.last_offset >= from_offset:
                content += data[at : at + header.size_bytes]
    return content


def digests_of(root, names, starts):
    return {name: hashlib.sha1(batches_of(root / name, starts[name])).hexdigest() for name in names}


def recover(root, starts=None):
    """Return `logs_of` a copy of the directory whose files recovery made of the segments.

    Index files of empty segments are left out.
    """
    other = root.with_name(f"{root.name}-recovered")
    shutil.copytree(root, other)
    for path in other.glob("*/*"):
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot") or path.name == LEADER_EPOCHS:
            path.unlink()
    for each in other.iterdir():
        if each.is_dir():
            loaded = load_log_files(RealDisk(), str(each), (starts or {}).get(each.name, 0), 0, 0)
            save_log_files(RealDisk(), str(each), loaded, 0)
    for path in other.glob("*/*.log"):
        if not path.stat().st_size:
            path.with_suffix(".index").unlink(missing_ok=True)
            path.with_suffix(".timeindex").unlink(missing_ok=True)
    return logs_of(other)


def logs_of(root):
    """Return {partition: {file: content}} of the segments, indexes and snapshots."""
    return {
        each.name: {path.name: path.read_bytes() for path in sorted(each.iterdir())}
        for each in sorted(root.iterdir())
        if each.is_dir()
    }


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_each_partition_has_the_bytes_of_the_source(case, tmp_path):
    broker, root = serving(case.name, tmp_path)
    copy = tmp_path / "copy"
    with broker:
        rows = {row["partition"]: row for row in pull_json(broker, copy, *EVERYTHING)["partitions"]}
        starts = {name: row["start_offset"] for name, row in rows.items()}
        assert recover(copy, starts) == logs_of(copy)
        source = digests_of(root, rows, starts)
        assert digests_of(copy, rows, starts) == source
        assert set(rows) == {path.name for path in root.iterdir() if path.is_dir()} - {"__cluster_metadata-0"}
        again = pull_json(broker, copy, *EVERYTHING)["partitions"]
        assert {row["size_bytes"] for row in again} == {0}
        assert {row["partition"]: row["end_offset"] for row in again} == {
            name: row["end_offset"] for name, row in rows.items()
        }


def test_an_audit_of_the_copy_finds_what_an_audit_of_the_source_finds(tmp_path):
    broker, root = serving("hanging-transaction", tmp_path)
    with broker:
        pull_json(broker, tmp_path / "copy", *EVERYTHING)
        assert facts_of(audit_of((str(tmp_path / "copy"),))) == facts_of(audit_of((str(root),)))


@pytest.mark.slow
def test_a_broker_serves_the_copy_and_it_can_be_pulled_again(tmp_path):
    broker, _ = serving("compacted-transactions", tmp_path)
    copy, second = tmp_path / "copy", tmp_path / "second"
    with broker:
        rows = pull_json(broker, copy, *EVERYTHING)["partitions"]
        topics = broker.server.broker.cluster.image.topics
        described = {name: (one.topic_id, one.partition_count, one.configs) for name, one in topics.items()}
    starts = {row["partition"]: row["start_offset"] for row in rows}
    digests = digests_of(copy, starts, starts)
    served = ThreadBroker(copy, now_ms=BEGIN_MS + SOON_MS, **KEEPING)
    with served:
        image = served.server.broker.cluster.image
        assert {
            name: (one.topic_id, one.partition_count, one.configs) for name, one in image.topics.items()
        } == described
        assert image.next_producer_id % 1000 == 0
        written = [
            header.producer_id for name in starts for _, header in iter_batches(memoryview(batches_of(copy / name)))
        ]
        assert image.next_producer_id > max(written) > -1
        pull_json(served, second, *EVERYTHING)
    assert digests_of(second, starts, starts) == digests
    result = run(broker, copy, "--topics", "*")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_copy_graduates_as_it_is(tmp_path):
    broker, _ = serving("hanging-transaction", tmp_path)
    copy = tmp_path / "copy"
    with broker:
        pull_json(broker, copy, *EVERYTHING)
    count = sum(path.name.startswith("__transaction_state-") for path in copy.iterdir())
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"transaction.state.log.num.partitions={count}\nlog.dirs={copy}\n"
    )
    result = CliRunner().invoke(graduate, [str(copy), "--node-id", "7", "--config", str(properties)])
    assert result.exit_code == 0, result.output
    assert "wrote bootstrap.checkpoint" in result.output


def test_the_directory_is_private_and_its_mark_names_the_source(tmp_path):
    broker, _ = serving("hanging-transaction", tmp_path)
    copy = tmp_path / "new" / "copy"
    with broker:
        pull_json(broker, copy, "--topics", "hanging-*")
        cluster_id = broker.server.broker.logs.properties.cluster_id
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    mark = decode_mark((copy / MARK).read_bytes())
    assert (mark.source, mark.cluster_id, list(mark.topics)) == (
        f"kafka://{broker.bootstrap}",
        cluster_id,
        ["hanging-transaction"],
    )
    assert mark.ended_ms >= mark.began_ms > 0
    assert encode_mark(mark) == (copy / MARK).read_bytes()


def test_new_records_are_appended_and_old_ones_are_not_read_again(tmp_path):
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        first = pull_json(broker, tmp_path / "copy", "--topics", "ledger")["partitions"]
        produce(broker, range(10, 30))
        second = pull_json(broker, tmp_path / "copy", "--topics", "ledger")["partitions"]
        assert [(row["start_offset"], row["end_offset"]) for row in (*first, *second)] == [(0, 10), (0, 30)]
        source = batches_of(tmp_path / "source" / "ledger-0")
        assert batches_of(tmp_path / "copy" / "ledger-0") == source
        assert first[0]["size_bytes"] + second[0]["size_bytes"] == len(source)
        whole = tmp_path / "whole"
        pull_json(broker, whole, "--topics", "ledger")
    assert logs_of(tmp_path / "copy")["ledger-0"].keys() - logs_of(whole)["ledger-0"].keys() == set()


def test_a_topic_that_was_created_again_is_refused(tmp_path):
    copy = tmp_path / "copy"
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        pull_json(broker, copy, "--topics", "ledger")
        before = logs_of(copy)
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.delete_topics(["ledger"])
        admin.create_topics([NewTopic("ledger", 1, 1)])
        admin.close()
        produce(broker, range(30))
        result = run(broker, copy, "--topics", "ledger")
    assert result.exit_code == 1
    assert "ledger: the topic was created again since it was copied" in result.stdout
    assert logs_of(copy) == before


def test_records_that_were_deleted_between_runs_move_the_log_start(tmp_path):
    copy = tmp_path / "copy"
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        pull_json(broker, copy, "--topics", "ledger")
        produce(broker, range(10, 30))
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.delete_records({TopicPartition("ledger", 0): 20})
        admin.close()
        (row,) = pull_json(broker, copy, "--topics", "ledger")["partitions"]
        assert (row["start_offset"], row["end_offset"]) == (20, 30)
    assert decode_offsets((copy / LOG_STARTS).read_bytes()) == {("ledger", 0): 20}
    (found,) = audit_of((str(copy),)).partitions
    assert (found.log_start, found.log_end, found.batches) == (20, 30, 10)


def test_since_begins_at_the_first_record_from_that_time_on(tmp_path):
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        (row,) = pull_json(broker, tmp_path / "copy", "--topics", "ledger", "--since", str(TIME_MS + 6))["partitions"]
        assert (row["start_offset"], row["end_offset"]) == (6, 10)
        late = pull_json(broker, tmp_path / "late", "--topics", "ledger", "--since", str(TIME_MS + 60))["partitions"]
        assert [(one["start_offset"], one["end_offset"]) for one in late] == [(10, 10)]
    assert decode_offsets((tmp_path / "copy" / LOG_STARTS).read_bytes()) == {("ledger", 0): 6}


@pytest.mark.slow
def test_damage_at_the_source_is_listed_by_each_run(tmp_path):
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
    path = tmp_path / "source" / "ledger-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    headers = dict(iter_batches(memoryview(bytes(content))))
    (end,) = [at + header.size_bytes for at, header in headers.items() if header.base_offset == 4]
    content[end - 1] ^= 1
    path.write_bytes(content)
    with ThreadBroker(tmp_path / "source") as broker:
        for _ in range(2):
            result = run(broker, tmp_path / "copy", "--topics", "ledger")
            assert result.exit_code == 1
            assert result.stdout.count("ledger-0: offsets 4 to 4: CRC mismatch") == 1
    assert len(decode_mark((tmp_path / "copy" / MARK).read_bytes()).topics["ledger"].partitions[0].missing) == 1


def test_a_partition_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("audit", 1, 1)])
        admin.close()
        read = partition.read_runs

        def fail_once(window, log):
            if window.topic == "audit":
                raise Unanswered("audit-0: KAFKA_STORAGE_ERROR")
            return read(window, log)

        with monkeypatch.context() as patch:
            patch.setattr(partition, "read_runs", fail_once)
            result = run(broker, copy, "--topics", "*")
        assert result.exit_code == 1
        assert "audit-0: KAFKA_STORAGE_ERROR" in result.stdout
        assert batches_of(copy / "ledger-0") == batches_of(tmp_path / "source" / "ledger-0") != b""
        assert run(broker, copy, "--topics", "*").exit_code == 0


def test_a_changed_identity_is_one_line(ledger, tmp_path):
    copy = tmp_path / "copy"
    pull_json(ledger, copy, "--topics", "ledger")
    (copy / META_PROPERTIES).write_text("version=1\n")
    result = run(ledger, copy, "--topics", "ledger")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "meta.properties was changed ('node.id'): remove it" in result.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "name what to copy"),
        (("--topics", "nope"), "no topic matches nope, or this user lacks DESCRIBE on it; it sees ledger"),
        (("--topics", "ledger", "--since", "yesterday"), "--since yesterday"),
        (("--topics", "ledger", "--max-bytes-per-second", "fast"), "not a number of bytes such as"),
        (("--topics", "ledger", "--command-config", "/no/such/file"), "/no/such/file"),
    ],
)
def test_a_pull_that_cannot_run_is_one_line_and_makes_no_directory(options, told, ledger, tmp_path):
    result = run(ledger, tmp_path / "copy", *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert told in result.stderr
    assert not (tmp_path / "copy").exists()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with ThreadBroker(tmp_path_factory.mktemp("source")) as broker:
        produce(broker, range(3))
        yield broker


def change_mark(**fields):
    def change(copy):
        document = json.loads((copy / MARK).read_bytes())
        (copy / MARK).write_text(json.dumps(document | fields))

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda copy: (copy / MARK).unlink(), "has other files, and no pull.json"),
        (lambda copy: (copy / "__cluster_metadata-0").mkdir(), "has served or graduated since it was pulled"),
        (lambda copy: (copy / MARK).write_text("[]"), "pull.json: it was changed"),
        (change_mark(cluster_id="another"), "is a copy of cluster another"),
        (change_mark(version=2), "another version of Ottla wrote it"),
        (change_mark(topics={"../ledger": {}}), "pull.json: it was changed"),
    ],
)
def test_a_foreign_or_used_directory_is_refused_unchanged(change, told, ledger, tmp_path):
    copy = tmp_path / "copy"
    pull_json(ledger, copy, "--topics", "ledger")
    change(copy)
    before = logs_of(copy)
    result = run(ledger, copy, "--topics", "ledger")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert told in result.stderr
    assert logs_of(copy) == before


def test_a_copy_that_lost_records_is_refused(ledger, tmp_path):
    copy = tmp_path / "copy"
    pull_json(ledger, copy, "--topics", "ledger")
    (copy / "ledger-0" / f"{0:020d}.log").write_bytes(b"")
    result = run(ledger, copy, "--topics", "ledger", "--format", "json")
    assert result.exit_code == 1
    assert "the log ends at 0, below the recovery point 3; pull into a new directory" in result.stdout


@pytest.mark.slow
def test_positions_by_offset_fetch_are_served_and_replaced(tmp_path):
    copy, places = tmp_path / "copy", [TopicPartition("ledger", 0)]
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        address = parse_kafka_address(f"kafka://{broker.bootstrap}")
        for position in (4, 7):
            commit(broker, places, position)
            run_of = pull_without_groups(address, copy)
            assert (run_of.positions, run_of.left_out) == (2, [])
    assert decode_mark((copy / MARK).read_bytes()).has_positions
    with ThreadBroker(copy) as served:
        for group in ("auditors", "billing"):
            assert read_positions(served, group, places) == [(7, "by hand")]
        result = run(served, copy, "--groups", "--topics", "ledger")
    assert result.exit_code == 2


@pytest.mark.slow
def test_positions_of_the_last_run_stay_if_a_broker_fails(tmp_path, monkeypatch):
    copy, places = tmp_path / "copy", [TopicPartition("ledger", 0)]

    def fail(cluster, now_ms):
        raise Unanswered("broker 1 does not list its groups: NOT_COORDINATOR")

    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(10))
        address = parse_kafka_address(f"kafka://{broker.bootstrap}")
        commit(broker, places, 4)
        pull_without_groups(address, copy)
        monkeypatch.setattr("ottla.cli.pull.directory.ask_positions", fail)
        (reason,) = pull_without_groups(address, copy).left_out
    assert reason == "__consumer_offsets: broker 1 does not list its groups: NOT_COORDINATOR"
    with ThreadBroker(copy) as served:
        assert read_positions(served, "billing", places) == [(4, "by hand")]


@pytest.mark.slow
def test_positions_and_a_copy_of_the_topic_do_not_mix(tmp_path):
    with ThreadBroker(tmp_path / "source") as broker:
        produce(broker, range(3))
        commit(broker, [TopicPartition("ledger", 0)], 2)
        address = parse_kafka_address(f"kafka://{broker.bootstrap}")
        pull_json(broker, tmp_path / "log", "--groups")
        before = logs_of(tmp_path / "log")
        (reason,) = pull_without_groups(address, tmp_path / "log").left_out
        assert reason.startswith("__consumer_offsets: this user lacks READ on the topic")
        assert logs_of(tmp_path / "log") == before | {"ledger-0": logs_of(tmp_path / "log")["ledger-0"]}
        pull_without_groups(address, tmp_path / "positions")
        result = run(broker, tmp_path / "positions", "--groups")
        assert result.exit_code == 1
        assert "__consumer_offsets: the copy has positions of OffsetFetch" in result.stdout


def pull_without_groups(address, copy):
    """Pull topic ledger as a user without READ on `__consumer_offsets`."""
    with connections_to(address).borrow() as cluster:
        source = list_source(cluster, Request(("ledger",)))._replace(lacks_groups=True)
    with open_directory(RealDisk(), str(copy)) as mark:
        found = Pull(RealDisk(), str(copy), address, mark, source, BEGIN_MS)
        found.run(Progress(lambda done, count: None, lambda size_bytes: None))
        found.finish(BEGIN_MS)
    return found


def commit(broker, places, position):
    for group in ("auditors", "billing"):
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
        consumer.assign(places)
        consumer.commit({place: OffsetAndMetadata(position, "by hand", -1) for place in places})
        consumer.close(autocommit=False)


def read_positions(broker, group, places):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    found = [consumer.committed(place, metadata=True) for place in places]
    consumer.close(autocommit=False)
    return [(each.offset, each.metadata) for each in found]
