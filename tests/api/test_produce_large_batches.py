"""Long work on a batch runs before its append, over several turns or in a worker."""

import random
from types import SimpleNamespace

import pytest

from ottla.broker.api import produce
from ottla.broker.api.produce_check import Write, check_batch, check_records
from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.log_validator import MAX_RECORD_ERRORS
from ottla.broker.log.long_work import LongWork
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.workers import DeferredWorkers
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import HEADER_SIZE, assemble, read_header
from ottla.protocol.compression import GZIP, NAMES
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.records import iter_records
from ottla.protocol.steps import RECORD_US
from tests.broker_stub import broker_of
from tests.memory_broker import MemoryBroker

NOW = 1_700_000_000_000


class Rig:
    """Checks batches as Produce does; `run` takes all turns and returns their number."""

    def __init__(self):
        self.later, self.bugs, self.found = [], [], []
        self.turns = Turns(self.later.append, self.bugs.append)
        self.parts = broker_of(
            config=SimpleNamespace(max_decompressed_message_bytes=1 << 25),
            turns=self.turns,
            long_work=LongWork(self.turns, DeferredWorkers(self.later.append), 1 << 26),
        )

    def start(self, handler):
        self.turns.event(lambda: self.turns.start(handler, self.found.append, self.bugs.append))

    def check(self, partition, records):
        self.start(check_records(self.parts, partition, memoryview(records)))

    def run(self):
        count = 1
        while self.later:
            self.turns.event(self.later.pop(0))
            count += 1
        assert self.parts.long_work.is_idle
        return count


@pytest.fixture
def rig():
    return Rig()


@pytest.fixture
def make_partition(tmp_path, rig):
    clock = SimpleNamespace(now_ms=lambda: NOW, monotonic_ms=lambda: 0.0, call_later=lambda delay_ms, callback: None)
    manager = LogManager(RealDisk(), clock, rig.turns, Config(log_dirs=str(tmp_path / "data")))
    manager.open()
    yield lambda settings: manager.open_partition("t", 0, bytes(range(16)), 0, settings)
    manager.abandon()


def large_batch(compression, count=16_000, timestamp_ms=NOW, key=b"k"):
    draw = random.Random(5)
    return build_batch(
        [(key, draw.randbytes(64) * 2) for _ in range(count)], timestamp_ms=timestamp_ms, compression=compression
    )


@pytest.mark.parametrize("compression", NAMES)
def test_a_large_batch_is_recompressed_before_its_append(rig, make_partition, compression):
    settings = LogConfig(max_message_bytes=1 << 25, compression_type="gzip", compression_gzip_level="1")
    partition = make_partition(settings)
    data = large_batch(compression)
    rig.check(partition, data)
    turns = rig.run()
    ((check, validated),) = rig.found
    assert turns > 4 and validated.settings is settings
    if compression == GZIP:
        assert validated.recompressed is None
    else:
        header = read_header(validated.recompressed)
        assert (
            header.compression == GZIP
            and partition.append_from_client(check, memoryview(data), validated).error is E.NONE
        )
        assert [*iter_records(memoryview(validated.recompressed), header)] == [
            *iter_records(memoryview(data), read_header(data))
        ]


def test_a_batch_validated_for_an_old_codec_is_recompressed(rig, make_partition):
    partition = make_partition(LogConfig(max_message_bytes=1 << 25, compression_type="gzip"))
    data = large_batch(0)
    rig.check(partition, data)
    rig.run()
    ((check, validated),) = rig.found
    partition.log.config = LogConfig(max_message_bytes=1 << 25, compression_type="zstd")
    assert partition.append_from_client(check, memoryview(data), validated).error is E.NONE
    assert NAMES[read_header(partition.read(0, 1 << 25).records).compression] == "zstd"


def test_a_batch_that_grows_beyond_the_topics_limit_is_refused(rig, make_partition):
    data = build_batch([(b"k", bytes(1000))] * 2_500, timestamp_ms=NOW, compression=GZIP)
    partition = make_partition(LogConfig(compression_type="uncompressed"))
    rig.check(partition, data)
    rig.run()
    ((check, validated),) = rig.found
    assert not isinstance(validated.recompressed, bytearray), "what will not be written is not kept"
    assert partition.append_from_client(check, memoryview(data), validated).error is E.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("settings", "content", "error"),
    [
        ({"cleanup_policy": "compact,delete"}, {"key": None}, E.INVALID_RECORD),
        ({"message_timestamp_before_max_ms": 1}, {"timestamp_ms": 5}, E.INVALID_TIMESTAMP),
    ],
)
def test_bad_records_of_a_large_batch_are_found_in_steps(rig, make_partition, settings, content, error):
    partition = make_partition(LogConfig(max_message_bytes=1 << 25, **settings))
    data = large_batch(GZIP, **content)
    rig.check(partition, data)
    assert rig.run() > 2
    ((check, validated),) = rig.found
    result = partition.append_from_client(check, memoryview(data), validated)
    assert result.error is error and len(result.record_errors) == MAX_RECORD_ERRORS
    assert partition.log_end_offset == 0


@pytest.mark.parametrize(("claimed", "cost_us"), [(50, 50 * RECORD_US), (-(2**31), 0), (1_000, 0)])
def test_an_immediate_check_charges_per_record_unless_the_count_is_false(rig, make_partition, claimed, cost_us):
    partition = make_partition(LogConfig())
    data = large_batch(0, count=50)
    data = assemble(
        read_header(data)._replace(record_count=claimed, last_offset_delta=max(claimed - 1, -1)), data[HEADER_SIZE:]
    )
    rig.parts.cluster = SimpleNamespace(
        partition=lambda topic, index: partition, is_unopened=lambda topic, index: False
    )
    before_us = rig.turns.charged_us
    write = check_batch(rig.parts, 11, "t", bytes(16), 0, memoryview(data))
    assert (write.validated is not None) == (write.error is E.NONE) == (claimed == 50)
    assert rig.turns.charged_us - before_us == cost_us


def test_a_short_batch_is_checked_and_recompressed_within_one_turn(rig, make_partition):
    partition = make_partition(LogConfig(compression_type="gzip"))
    data = large_batch(0, count=50)
    rig.check(partition, data)
    assert rig.run() == 1
    ((check, validated),) = rig.found
    assert partition.append_from_client(check, memoryview(data), validated).error is E.NONE
    assert read_header(partition.read(0, 1 << 20).records).compression == GZIP


@pytest.mark.plain
def test_recompression_for_changed_settings_runs_in_a_worker(rig, make_partition, monkeypatch):
    partition = make_partition(LogConfig(max_message_bytes=1 << 25))
    data = large_batch(0)
    rig.check(partition, data)
    rig.run()
    ((check, validated),) = rig.found
    rig.found.clear()
    partition.log.config = LogConfig(max_message_bytes=1 << 25, compression_type="zstd")
    write = Write("t", b"", 0, memoryview(data), partition, check, E.NONE, None, validated)
    monkeypatch.setattr(produce, "_verify", lambda parts, request, write: E.NONE)
    rig.start(produce._append_all(rig.parts, None, [write], {}))
    assert partition.log_end_offset == 0, "a worker is at it"
    partition.log.config = LogConfig(max_message_bytes=1 << 25, compression_type="gzip", compression_gzip_level="1")
    rig.run()
    assert rig.found[0][0].error is E.NONE
    assert read_header(partition.read(0, 1 << 25).records).compression == GZIP


# --- clients that hang up ---------------------------------------------------------------------------------------------

MIB = 1 << 20


def of_one_batch(topic, batch):
    rows = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": rows}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "record_bytes"), [(3, MIB), (16_000, 128)], ids=["few records", "many records"])
def test_a_disconnect_during_a_large_batch_frees_its_memory_and_gate(count, record_bytes):
    """After any number of events: while it waits for the gate, memory or a worker, and while it yields."""
    broker = MemoryBroker(queued_max_request_bytes=16 * MIB)
    for topic, compression in ("anew", "zstd"), ("kept", "producer"):
        broker.create_topic(topic, max_message_bytes=str(1 << 25), compression_type=compression)
    large = bytes(build_batch([(b"k", bytes(record_bytes))] * count, timestamp_ms=NOW, compression=GZIP))
    work, memory = broker.assembly.broker.long_work, broker.assembly.broker.memory
    events, met = 0, set()
    while True:
        clients = [broker.client() for _ in range(4)]
        for client, topic in zip(clients, ("kept", "anew", "anew", "anew"), strict=True):
            client.post(ApiKey.PRODUCE, 9, **of_one_batch(topic, large))
        for _ in range(events):
            broker.schedule.run_next()
        answered = [bool(client.replies) for client in clients]
        met.add(tuple(answered))
        gone = clients[events % 3]
        gone.hang_up()
        broker.advance(1_000)
        assert [bool(client.replies) for client in clients if client is not gone] == [True] * 3
        for client in clients:
            client.hang_up()
        assert work.is_idle and memory.requests.held_bytes + memory.medium.held_bytes == 0 and broker.bugs == []
        if all(answered):
            break
        events += 1 + events // 8
    assert len(met) > 2
