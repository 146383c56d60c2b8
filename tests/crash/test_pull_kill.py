"""`ottla pull` is killed with SIGKILL at random moments, and the same command again makes the copy of the source.

OTTLA_KILLS sets how often (3 in CI), OTTLA_SEED the moments. The source has transactions, four codecs and a compacted
topic. Half of the copies begin from an earlier copy, which lacks the newest records.
"""

import hashlib
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the audit extra is not installed")

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata
from open_transactions import Client
from targets import TARGETS

from ottla.protocol.batch_header import iter_batches
from ottla.protocol.checkpoints import CLEAN_SHUTDOWN, LOG_STARTS, decode_offsets
from tests.timeout import EVENT_TIMEOUT_S

KILLS = int(os.environ.get("OTTLA_KILLS") or 3)
SEED = os.environ.get("OTTLA_SEED") or str(random.SystemRandom().randrange(1 << 32))
PULL = "from ottla.cli.pull.command import pull; pull.main(arguments)"
CODECS = ("gzip", "snappy", "lz4", "zstd")
LEDGER, BALANCES = "ledger", "balances"
SEGMENT = {"segment.bytes": str(2**20)}
COMPACTED = SEGMENT | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
OVERRIDES = {
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
# The limit gives the kills time between the bytes.
OPTIONS = ("--topics", "*", "--groups", "--transactions", "--max-bytes-per-second", "20M")
KILLS_OF_A_COPY = 2
AFTER_BYTES_S = 0.3
"""A kill comes at most so long after a part of the bytes is there: during recovery and the checkpoints, too."""


def create_topics(bootstrap):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    topics = {LEDGER: (2, SEGMENT), BALANCES: (1, COMPACTED)}
    admin.create_topics([NewTopic(name, count, 1, topic_configs=configs) for name, (count, configs) in topics.items()])
    admin.close()


def write(bootstrap, chance, mark):
    """Write 3 MB of transactions in four codecs, each fourth aborted, with committed positions, and an open one."""
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=f"{mark}-{codec}", compression_type=codec, acks="all"
        )
        producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            for partition in range(2):
                producer.send(LEDGER, chance.randbytes(30_000), partition=partition)
            place = TopicPartition(LEDGER, 0)
            producer.send_offsets_to_transaction({place: OffsetAndMetadata(number, "", -1)}, "auditors")
            producer.flush()
            if number % 4 == 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()
    client = Client(bootstrap)
    client.begin(f"{mark}-open", [(LEDGER, 0), (LEDGER, 1)], timeout_ms=900_000)
    client.close()


def write_balances(bootstrap, chance):
    """Write few keys often, and wait until compaction has removed the first records."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for number in range(250):
        producer.send(BALANCES, chance.randbytes(20_000), key=b"account-%d" % (number % 7))
    producer.close()
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not first_offset(bootstrap):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def first_offset(bootstrap):
    """Return the offset of the first record of the compacted topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=100_000)
    place = TopicPartition(BALANCES, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found = consumer.poll(timeout_ms=EVENT_TIMEOUT_S * 1000, max_records=1)
    consumer.close()
    return found[place][0].offset


def start_pull(context, bootstrap, place):
    arguments = (f"kafka://{bootstrap}", str(place), *OPTIONS)
    process = context.Process(target=exec, args=(PULL, {"arguments": arguments}))
    process.start()
    return process


def written_bytes(place):
    """Return the bytes of the segments of a copy."""
    total = 0
    for path in Path(place).glob("*/*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # an empty segment that another one has replaced
    return total


def kill(context, bootstrap, place, at_bytes, delay_s):
    """Start a pull, and kill it after the copy has so many bytes. Return whether it was still running."""
    process = start_pull(context, bootstrap, place)
    while process.is_alive() and (not place.exists() or written_bytes(place) < at_bytes):
        time.sleep(0.0005)
    process.join(delay_s)
    process.kill()
    process.join(EVENT_TIMEOUT_S)
    return process.exitcode < 0


def digests(root, starts):
    """Return the SHA-1 of the batches of each partition from its log start on."""
    found = {}
    for directory in root.iterdir():
        topic, _, index = directory.name.rpartition("-")
        if not directory.is_dir() or topic == "__cluster_metadata":
            continue
        found[directory.name] = digest = hashlib.sha1()
        for path in sorted(directory.glob("*.log")):
            content = memoryview(path.read_bytes())
            for at, header in iter_batches(content):
                if header.last_offset >= starts.get((topic, int(index)), 0):
                    digest.update(content[at : at + header.size_bytes])
    return {name: digest.hexdigest() for name, digest in found.items()}


def complete(context, bootstrap, place):
    process = start_pull(context, bootstrap, place)
    process.join(EVENT_TIMEOUT_S)
    assert process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ottla", pytest.param("apache", marks=pytest.mark.maven)])
def test_a_pull_that_is_killed_continues(target, tmp_path):
    chance = random.Random(SEED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ottla.scan.windows", "ottla.cli.pull.directory", "ottla.broker.ports.disk"])
    source = TARGETS[target](tmp_path / "source", OVERRIDES).start()
    try:
        create_topics(source.bootstrap)
        write(source.bootstrap, chance, "first")
        write_balances(source.bootstrap, chance)
        old, whole = tmp_path / "old", tmp_path / "whole"
        complete(context, source.bootstrap, old)
        write(source.bootstrap, chance, "second")
        complete(context, source.bootstrap, whole)
        starts = decode_offsets((whole / LOG_STARTS).read_bytes())
        expected = digests(source.data_dir, starts)
        assert digests(whole, starts) == expected
        assert len(expected) == 7
        ends = {old: written_bytes(old), None: 0}
        killed = copies = 0
        while killed < KILLS:
            copy = tmp_path / f"copy-{copies}"
            begin = (old, None)[copies % 2]
            copies += 1
            if begin:
                shutil.copytree(begin, copy)
            for _ in range(KILLS_OF_A_COPY):
                at_bytes = chance.uniform(ends[begin], written_bytes(whole))
                delay_s = chance.choice((0, chance.uniform(0, AFTER_BYTES_S)))
                killed += kill(context, source.bootstrap, copy, at_bytes, delay_s)
            complete(context, source.bootstrap, copy)
            assert digests(copy, starts) == expected, f"seed {SEED}, copy {copies}"
            assert (copy / CLEAN_SHUTDOWN).exists()
            shutil.rmtree(copy)
        print(f"{killed} kills of {copies} copies of {written_bytes(whole)} bytes, seed {SEED}")
    finally:
        source.stop()
