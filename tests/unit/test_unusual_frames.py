"""Odd compressed frames in every reader of Ottla: each reader answers as Apache Kafka 4.3.1 did.

A row is a batch; an answer is the size and CRC of each value, or None where the reader refuses the batch.
"""

import json
import struct
import zlib

import pytest

from ottla.cli.dump.job import PrintJob
from ottla.cli.dump.printing import print_log
from ottla.protocol import record_walk, walked
from ottla.protocol.batch_header import assemble, read_header
from ottla.protocol.compression import READ_LIMIT_BYTES
from ottla.protocol.contents import differ
from ottla.protocol.errors import NO_ERROR, ProtocolError
from ottla.protocol.record_frames import iter_frames, raw_records, raw_steps
from ottla.protocol.records import decode_record, iter_records
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.steps import to_the_end
from ottla.testkit.reading import readable
from ottla.testkit.scanner import scan_content
from tests.unusual_frames import read_recording

TABLE = [answer for answer in read_recording() if answer.row.count]
EMPTY = [answer for answer in read_recording() if not answer.row.count]
# A LZ4 block of no content: Kafka's broker appends the batch, and its dump-log and its consumer then fail on it.
KAFKA_APPENDS_WHAT_IT_CANNOT_READ = {"lz4: a block of no content before", "lz4: a block of no content between"}


def kafka_says(answer):
    return None if answer.dumped is None else answer.values


def values_of(values):
    return tuple(f"{len(value)} {zlib.crc32(value)}" for value in values)


def shows(read):
    """(row, Kafka's answer, ours) of each row that `read`, a reader of one batch, answers in another way."""
    found = []
    for answer in TABLE:
        try:
            ours = values_of(read(answer.row.batch))
        except (ProtocolError, ValueError, IndexError):
            ours = None
        if ours != kafka_says(answer):
            found.append((answer.row.name, kafka_says(answer), ours))
    return found


def test_the_answers_of_kafkas_three_readers_are_one():
    assert len(TABLE) > 300
    assert {answer.row.name for answer in TABLE if answer.dumped != answer.consumed} == set()
    differ = {answer.row.name for answer in TABLE if (answer.produced == "NONE") != (answer.dumped is not None)}
    assert differ == KAFKA_APPENDS_WHAT_IT_CANNOT_READ
    assert {len(answer.values) for answer in TABLE if answer.dumped is not None} == {1, 3, 40}


@pytest.mark.parametrize("walk", ["python", "compiled"])
def test_the_broker_appends_what_can_be_read(walk, monkeypatch):
    if walk == "compiled":
        compiled = pytest.importorskip("ottla.protocol.record_walk_compiled", reason="no C compiler").walk
    monkeypatch.setattr(walked, "walk_compiled", record_walk.walk if walk == "python" else compiled)
    differ = {
        answer.row.name
        for answer in TABLE
        if (check_produced_batch(memoryview(answer.row.batch)).error is NO_ERROR) != (answer.dumped is not None)
    }
    assert differ == set()


def iterate(batch):
    return [record.value for record in iter_records(batch, read_header(batch))]


def clean(batch):
    """Read as the cleaner and the codec of a topic do."""
    header = read_header(batch)
    raw = bytes(to_the_end(raw_steps(batch, header)))
    assert raw == raw_records(batch, header)
    frames = [frame for some in iter_frames(raw, header.record_count) for frame in some]
    values, at = [], 0
    for frame in frames:
        record, at = decode_record(raw, at, header)
        assert at == frame[5]
        values.append(record.value)
    return values


def compare(batch):
    """Compare as the broker compares a retry with what it has, which is the same here in another codec."""
    values = iterate(batch)
    header = read_header(batch)
    plain = assemble(header._replace(attributes=0), raw_records(batch, header))
    assert not to_the_end(differ(batch, header, plain, read_header(plain), READ_LIMIT_BYTES))
    return values


def scan_records(batch):
    (found,), damage = scan_content("file", batch)
    assert damage is None
    return [record.value for record in found.records()]


def fetch(batch):
    return [record.value for record in readable("t", 0, batch, None, 0)[0]]


@pytest.mark.parametrize("read", [iterate, clean, compare, scan_records, fetch], ids=lambda read: read.__name__)
def test_a_reader_of_one_batch(read):
    assert shows(read) == []


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_dump(tmp_path, as_json):
    differ = []
    path = tmp_path / f"{0:020d}.log"
    for answer in read_recording():
        path.write_bytes(answer.row.batch)
        written = []
        found = print_log(PrintJob(str(path), True, as_json, None), 0, written.append)
        lines = b"".join(written).splitlines()[1:]
        sizes = [json.loads(line)["value"] for line in lines] if as_json else lines
        expected = answer.dumped is not None
        if (found.damage is None) != expected or (expected and len(sizes) != answer.dumped):
            differ.append((answer.row.name, answer.dumped, len(sizes), found.damage))
    assert differ == []


def test_a_batch_with_record_count_0_reads_as_empty():
    """Kafka's dump-log does the same. Its consumer fails on batches without bytes."""
    assert EMPTY
    for answer in EMPTY:
        assert answer.dumped == 0
        assert [read(answer.row.batch) for read in (iterate, clean, scan_records, fetch)] == [[]] * 4


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Write a partition with a batch for each row, a hundred offsets apart."""
    folder = tmp_path_factory.mktemp("odd") / "log" / "frames-0"
    folder.mkdir(parents=True)
    batches = [struct.pack(">q", 100 * at) + answer.row.batch[8:] for at, answer in enumerate(TABLE)]
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return folder.parent


def log_shows(rows):
    """As `shows`, of (offset, value) of all records that can be read."""
    by_row = {}
    for offset, value in rows:
        by_row.setdefault(offset // 100, []).append(value)
    ours = [values_of(by_row[at]) if at in by_row else None for at in range(len(TABLE))]
    pairs = zip(TABLE, ours, strict=True)
    return [(answer.row.name, kafka_says(answer), found) for answer, found in pairs if found != kafka_says(answer)]


def test_scan(log):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    from ottla.scan import schemas
    from ottla.scan.damage_log import REPORT, DamageLog
    from ottla.scan.listing import list_partitions
    from ottla.scan.ranges import cut_partition
    from ottla.scan.records import RecordScan, uncommitted_visibility

    (partition,) = list_partitions(str(log))
    damage = DamageLog(REPORT)
    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [("offset", True), ("value", True)]), damage)
    rows = [
        row.values()
        for part in cut_partition(0, partition, 1 << 40)
        for batch in scan.read(part, uncommitted_visibility(0))
        for row in batch.to_pylist()
    ]
    assert log_shows(rows) == []
    refused = sum(len(answer.row.batch) for answer in TABLE if kafka_says(answer) is None)
    assert sum(one.end_position - one.position for one in damage.found) == refused


def test_spark_task(log):
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    from tests.spark.views import read_view

    rows = read_view(log, "records", ["offset", "value"], isolation_level="read_uncommitted", on_damage="report")
    assert log_shows(row.values() for row in rows) == []


def test_export(log, tmp_path):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    from pyarrow import parquet

    from ottla.spark_jobs.export import main

    options = ["--isolation-level", "read_uncommitted", "--on-damage", "report", "--columns", "offset,value"]
    assert main([str(log), str(tmp_path / "out"), *options]) == 0
    tables = [parquet.read_table(path) for path in sorted((tmp_path / "out").rglob("*.parquet"))]
    assert log_shows(row.values() for table in tables for row in table.select(["offset", "value"]).to_pylist()) == []
