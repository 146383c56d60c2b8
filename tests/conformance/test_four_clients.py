"""The files of two thousand transactions, read by Kafka's DumpLogSegments, by `ottla dump`, and by Kafka's broker."""

import re
import shutil
from collections import Counter, defaultdict

import pytest
from clients import eventually, start_client
from dumps import differences, files_of, kafka_lines, ottla_lines
from four_clients import CODECS, COMPACTED_TOPICS, GROUPS, OVERRIDES, TOPICS, WHOLE, Play
from kafka import KafkaAdminClient
from targets import Ottla
from test_graduation import GraduatedKafka, graduate, list_transactions
from test_written_files import dump

from ottla.testkit.scanner import scan_partition

TRANSACTIONS = 2_000
MORE_TRANSACTIONS = 400
SEED = 7
DIRECTORIES = ("clean", "killed", "recovered")
# Nothing is taken away while two brokers are compared.
AT_REST = {
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": "3600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
BATCH_FIELDS = re.compile(r"(\w+): (\S+)")

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.slow]


class Played:
    """The directories, and the outcome that clients got for each (topic, value) of the first one."""

    def __init__(self, root, fates, still_open):
        self.root, self.fates, self.still_open = root, fates, still_open


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """The directory as it was stopped; the same served again and killed; and that one recovered and stopped."""
    root = tmp_path_factory.mktemp("storage")
    broker = Ottla(root / "broker", OVERRIDES).start()
    try:
        fates, still_open = play_all(broker, root)
        assert broker.stop() == 0, broker.log_tail()
        shutil.copytree(broker.data_dir, root / "clean")
        broker.start()
        play = Play(broker, root / "second", SEED + 1)
        play.start(MORE_TRANSACTIONS)
        play.wait_for(MORE_TRANSACTIONS // 2)
        broker.kill()
        play.kill()
        shutil.copytree(broker.data_dir, root / "killed")
        broker.start()
        assert broker.stop() == 0, broker.log_tail()
        shutil.copytree(broker.data_dir, root / "recovered")
    finally:
        broker.stop()
    return Played(root, fates, still_open)


def play_all(broker, root):
    play = Play(broker, root / "first", SEED)
    play.create_topics()
    timed_out = play.leave_open("confluent-kafka", 1_000)
    play.start(TRANSACTIONS)
    for share in (0.3, 0.6, 0.9):
        play.wait_for(TRANSACTIONS * share)
        for topic in ("financial-ledger", "append-time"):
            play.delete_records(topic, 0, share / 2)
    fates = play.finish() | dict.fromkeys(timed_out, False)
    still_open = [*play.leave_open("java", 900_000), *play.leave_open("kafka-python", 900_000)]
    eventually(lambda: first_offset(broker.data_dir / "audit-log-0") > 0, "retention deleted a segment")
    play.close()
    return fates, still_open


def first_offset(directory):
    return min(int(file.stem) for file in directory.glob("*.log"))


@pytest.fixture(scope="module")
def theirs(directories):
    return kafka_lines(directories.root, files_of(directories.root, DIRECTORIES), COMPACTED_TOPICS)


def test_kafkas_dump_and_ottla_dump_print_the_same_for_each_file(directories, theirs):
    assert differences(ottla_lines(directories.root, DIRECTORIES), theirs) == []
    assert sum(map(len, theirs.values())) > len(DIRECTORIES) * 8 * TRANSACTIONS


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_finds_every_index_sound(directories, check):
    files = files_of(directories.root, DIRECTORIES, {".index", ".timeindex"})
    printed = dump(directories.root, files, check)
    if check == "--index-sanity-check":
        assert len(re.findall(r"passed sanity check\.| is empty\.", printed)) == len(files)


def test_the_play_left_what_it_was_made_for(directories, theirs):
    """Else all of this would prove little."""
    batches = defaultdict(list)
    for name, lines in theirs.items():
        if name.startswith("clean/") and name.endswith(".log"):
            topic = name.split("/")[1].rpartition("-")[0]
            batches[topic] += [dict(BATCH_FIELDS.findall(line)) for line in lines if line.startswith("baseOffset")]
    for codec in CODECS[1:]:
        assert {each["compresscodec"] for each in batches[f"as-{codec}"] if each["isControl"] == "false"} == {codec}
    assert {each["compresscodec"] for each in batches["as-uncompressed"]} == {"none"}
    assert {each["compresscodec"] for each in batches["financial-ledger"]} == set(CODECS)
    assert any("LogAppendTime" in each for each in batches["append-time"])
    assert max(int(each["producerEpoch"]) for each in batches["orders"]) > 20, "no transactions V2"
    for topic in ("balances", "compacted-zstd"):
        assert any(each["deleteHorizonMs"].startswith("OptionalLong[") for each in batches[topic]), topic
        assert any(each["count"] not in ("null", "0") and is_thinned(each) for each in batches[topic]), topic
    segments = Counter(file.parent.name for file in files_of(directories.root, ["clean"], {".log"}))
    rolled = {name.rpartition("-")[0] for name, count in segments.items() if count > 1}
    assert {"financial-ledger", "orders", "many-index-entries", "append-time"} <= rolled
    assert {"__transaction_state", "__consumer_offsets"} <= rolled
    assert first_offset(directories.root / "clean" / "append-time-0") > 0, "DeleteRecords deleted no segment"
    for directory in DIRECTORIES:
        assert any(file.stat().st_size for file in files_of(directories.root, [directory], {".txnindex"}))


def is_thinned(batch):
    return int(batch["count"]) <= int(batch["lastOffset"]) - int(batch["baseOffset"])


def test_records_per_isolation_level_match_the_outcomes_of_clients(directories):
    seen = {"read_committed": Counter(), "read_uncommitted": Counter()}
    for topic, (partitions, _) in TOPICS.items():
        for number in range(partitions):
            found = scan_partition(directories.root / "clean" / f"{topic}-{number}")
            assert found.damages == []
            for isolation, places in seen.items():
                places.update((topic, record.value) for record in found.records(isolation) if record.value is not None)
    committed = {place for place, fate in directories.fates.items() if fate}
    assert set(seen["read_committed"]) <= committed
    assert set(seen["read_uncommitted"]) <= set(directories.fates) | set(directories.still_open)
    for isolation, expected in (
        ("read_committed", committed),
        ("read_uncommitted", set(directories.fates) | set(directories.still_open)),
    ):
        whole = Counter(place for place in expected if place[0] in WHOLE)
        found = Counter({place: count for place, count in seen[isolation].items() if place[0] in WHOLE})
        # Behind the open transactions there is nothing, so what was committed is seen.
        assert found == whole, isolation


def observe(bootstrap, directory):
    """Records in both isolations, positions of the groups, and transactions."""
    client = start_client("confluent-kafka", bootstrap, directory)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    rows = list_transactions(admin)
    admin.close()
    seen = {
        "transactions": sorted((row.transactional_id, row.producer_id, str(row.state)) for row in rows),
        "offsets": {group: client.fetch_offsets(group, "orders", (0, 1)) for group in GROUPS},
        "committed": sorted(client.read([*TOPICS]), key=lambda record: record[:3]),
        "uncommitted": sorted(client.read([*TOPICS], "read_uncommitted"), key=lambda record: record[:3]),
    }
    client.close()
    return seen


@pytest.mark.parametrize("name", ["clean", "recovered"])
def test_kafka_serves_the_graduated_directory_as_ottla_does(directories, tmp_path, name):
    broker = Ottla(tmp_path / "ottla", AT_REST)
    shutil.copytree(directories.root / name, broker.data_dir)
    broker.start()
    try:
        before = observe(broker.bootstrap, tmp_path)
    finally:
        assert broker.stop() == 0, broker.log_tail()
    assert len(before["uncommitted"]) > len(before["committed"]) > TRANSACTIONS
    assert "TransactionState.ONGOING" in {state for _, _, state in before["transactions"]}
    kafka = GraduatedKafka(tmp_path / "kafka", broker.data_dir)
    with kafka.properties.open("a") as properties:
        properties.writelines(f"{key}={value}\n" for key, value in AT_REST.items())
    done = graduate(broker.data_dir, kafka.properties)
    assert done.returncode == 0, done.stderr
    kafka.start()
    try:
        assert observe(kafka.bootstrap, tmp_path) == before
    finally:
        kafka.stop()
