"""Bounds on what is read: the rows are those of a filter over everything, and other files are not opened."""

import json
import os
import random
from datetime import UTC, datetime

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from pyspark.sql import datasource as ds

from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY, TimeEntry
from ottla.scan import schemas
from ottla.spark_jobs.options import DataLost, OptionError, read_options
from ottla.spark_jobs.views.bounds import UNBOUNDED, narrow
from tests.spark.views import read_all, read_view, reader_of

SEGMENTS, BATCHES, RECORDS_PER_BATCH = 5, 40, 3
PER_SEGMENT = BATCHES * RECORDS_PER_BATCH


@pytest.fixture
def logs(write_log):
    """Two partitions of five segments with indexes; record n of a partition has timestamp 1000 + n."""
    for partition in (0, 1):
        log = write_log(partition=partition)
        for number in range(SEGMENTS):
            if number:
                log.roll()
            base, index, last = log.next_offset, bytearray(), 0
            for batch in range(BATCHES):
                first = 1000 + log.next_offset
                records = [(b"k", b"v", (), first + each) for each in range(RECORDS_PER_BATCH)]
                position = append(log, records, producer_id=batch % 4)
                last = log.next_offset - 1
                if batch % 5 == 4:
                    index += OFFSET_ENTRY.pack(last - base, position)
            log.path.with_suffix(".index").write_bytes(index)
            entry = TimeEntry(1000 + last, last - base)
            log.path.with_suffix(".timeindex").write_bytes(TIME_ENTRY.pack(*entry))
    return write_log.root


def append(log, records, producer_id):
    from ottla.protocol.batch import build_batch

    return log.append(build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0))


@pytest.fixture
def reads(monkeypatch):
    """Return the names of the opened segment files, and the number of bytes read from them."""
    found = {"files": set(), "bytes": 0}
    really_open, really_read = os.open, os.preadv

    def watch_open(path, *more):
        if str(path).endswith(".log"):
            found["files"].add("/".join(str(path).split("/")[-2:]))
        return really_open(path, *more)

    def watch_read(*more):
        got = really_read(*more)
        found["bytes"] += got
        return got

    monkeypatch.setattr(os, "open", watch_open)
    monkeypatch.setattr(os, "preadv", watch_read)
    return found


def segment_name(partition, number):
    return f"ledger-{partition}/{number * PER_SEGMENT:020d}.log"


def offsets(rows):
    return [(row["partition"], row["offset"]) for row in rows]


UNCOMMITTED = {"isolation_level": "read_uncommitted"}


def push_filters(root, view, filters, **options):
    reader = reader_of(root, view, **options)
    reader.bounds = narrow(reader.bounds, view, filters)
    return read_all(reader)


def test_offsets_of_one_partition_open_its_segment_alone(logs, reads):
    first, end = 2 * PER_SEGMENT + 50, 2 * PER_SEGMENT + 70
    rows = read_view(
        logs,
        "records",
        partitions="1",
        startingOffsets=json.dumps({"ledger": {"1": first}}),
        endingOffsets=json.dumps({"ledger": {"1": end}}),
        **UNCOMMITTED,
    )
    assert offsets(rows) == [(1, offset) for offset in range(first, end)]
    assert reads["files"] == {segment_name(1, 2)}


def test_an_offset_index_limits_the_bytes_read_of_a_segment(logs, reads, monkeypatch):
    from ottla.scan import chunks

    size = (logs / segment_name(0, 0)).stat().st_size
    monkeypatch.setattr(chunks, "CHUNK_BYTES", size // BATCHES)
    only = ({"ledger": {"0": 61, "1": 10**6}}, {"ledger": {"0": 64}})
    rows = read_view(
        logs, "records", startingOffsets=json.dumps(only[0]), endingOffsets=json.dumps(only[1]), **UNCOMMITTED
    )
    assert offsets(rows) == [(0, 61), (0, 62), (0, 63)]
    assert 0 < reads["bytes"] < size / 2


def test_a_wrong_offset_index_loses_no_rows(logs):
    for path in logs.rglob("*.index"):
        content = bytearray(path.read_bytes())
        content[7::8] = bytes((byte + 13) % 256 for byte in content[7::8])
        path.write_bytes(content)
    rows = read_view(logs, "records", startingOffsets='{"ledger": {"0": 133, "1": 500}}', **UNCOMMITTED)
    assert offsets(rows) == [(0, offset) for offset in range(133, 600)] + [(1, offset) for offset in range(500, 600)]


def test_filter_on_time_leaves_rolled_segments_shut(logs, reads):
    late = datetime.fromtimestamp((1000 + 3 * PER_SEGMENT) / 1000, UTC)
    rows = push_filters(logs, "records", [ds.GreaterThanOrEqual(("timestamp",), late)], partitions="0", **UNCOMMITTED)
    assert offsets(rows) == [(0, offset) for offset in range(3 * PER_SEGMENT, 5 * PER_SEGMENT)]
    assert reads["files"] == {segment_name(0, 3), segment_name(0, 4)}


def test_times_are_offsets_as_list_offsets_finds_them(logs):
    for start, end in ((1100, 1111), (999, 1001), (1000, 1000), (1599, 1700), (1600, 2000)):
        rows = read_view(
            logs, "records", startingTimestamp=str(start), endingTimestamp=str(end), partitions="0", **UNCOMMITTED
        )
        expected = [(0, offset) for offset in range(600) if start <= 1000 + offset < end]
        assert offsets(rows) == expected, (start, end)


def test_partition_and_topic_filters_open_nothing_else(logs, write_log, reads):
    append(write_log("audit-log"), [(b"k", b"v")], producer_id=-1)
    rows = push_filters(logs, "records", [ds.EqualTo(("partition",), 1), ds.EqualTo(("topic",), "ledger")])
    assert len(rows) == 600
    assert {name.split("/")[0] for name in reads["files"]} == {"ledger-1"}
    assert len(push_filters(logs, "records", [ds.StringStartsWith(("topic",), "audit")])) == 1
    assert push_filters(logs, "records", [ds.In(("topic",), ("nothing", None))]) == []


def test_filters_on_columns_that_spare_nothing_are_left_to_spark(logs):
    filters = [
        ds.EqualTo(("timestampType",), 1),
        ds.Not(ds.EqualTo(("partition",), 0)),
        ds.IsNotNull(("offset",)),
        ds.StringContains(("topic",), "x"),
        ds.EqualNullSafe(("partition",), None),
        ds.EqualTo(("value", "partition"), 9),
    ]
    assert narrow(UNBOUNDED, "records", filters) == UNBOUNDED
    offset = [ds.EqualTo(("offset",), 1)]
    assert narrow(UNBOUNDED, "transaction_state", offset) == UNBOUNDED  # the last word of an id may stand elsewhere


COMPARISONS = {
    ds.EqualTo: lambda have, given: have == given,
    ds.EqualNullSafe: lambda have, given: have == given,
    ds.GreaterThan: lambda have, given: have > given,
    ds.GreaterThanOrEqual: lambda have, given: have >= given,
    ds.LessThan: lambda have, given: have < given,
    ds.LessThanOrEqual: lambda have, given: have <= given,
    ds.In: lambda have, given: have in given,
}
COLUMNS = {
    schemas.RECORDS: ("partition", "segment", "offset", "timestamp", "producerId"),
    schemas.BATCHES: ("partition", "segment", "baseOffset", "lastOffset", "maxTimestamp", "producerId"),
    schemas.SEGMENTS: ("partition", "segment", "firstOffset", "lastOffset"),
}


def random_filter(chance, column):
    values = {"partition": (-1, 3), "producerId": (-1, 5), "segment": (-1, 500)}.get(column, (-5, 620))
    comparison = chance.choice(list(COMPARISONS))
    picked = [chance.choice([chance.randrange(*values), PER_SEGMENT * chance.randrange(5)]) for _ in range(3)]
    if column in ("timestamp", "maxTimestamp"):
        picked = [datetime.fromtimestamp((1000 + each) / 1000, UTC) for each in picked]
    return comparison((column,), tuple(picked) if comparison is ds.In else picked[0])


def holds(row, one):
    have = row[one.attribute[0]]
    if one.attribute[0] in ("timestamp", "maxTimestamp"):
        have = datetime.fromtimestamp(have / 1000, UTC)
    return COMPARISONS[type(one)](have, one.value)


@pytest.mark.parametrize("view", COLUMNS)
def test_pushed_filters_never_lose_a_row(logs, view):
    chance = random.Random(7)
    everything = read_view(logs, view)
    spared = 0
    for _ in range(60):
        filters = [random_filter(chance, column) for column in chance.sample(COLUMNS[view], chance.choice([1, 2, 3]))]
        rows = push_filters(logs, view, filters)
        expected = [row for row in everything if all(holds(row, one) for one in filters)]
        assert [row for row in rows if all(holds(row, one) for one in filters)] == expected, filters
        spared += len(rows) < len(everything)
    assert spared > 30


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_filter_on_several_times_reads_from_the_earliest(logs, order):
    offsets = [3 * PER_SEGMENT + 7, 4 * PER_SEGMENT, 5 * PER_SEGMENT - 1]
    moments = [datetime.fromtimestamp((1000 + offsets[each]) / 1000, UTC) for each in order]
    one_of = ds.In(("timestamp",), tuple(moments))
    assert narrow(UNBOUNDED, schemas.RECORDS, [one_of]).time_ms == (1000 + offsets[0], 2**63 - 1, None)
    rows = [row for row in push_filters(logs, "records", [one_of], **UNCOMMITTED) if holds(row, one_of)]
    assert sorted(row["offset"] for row in rows) == sorted(2 * offsets)


def test_producers_are_bounded_by_an_option(logs):
    rows = read_view(logs, "batches", producerIds="1, 3")
    assert {row["producerId"] for row in rows} == {1, 3}
    assert len(rows) == 2 * SEGMENTS * BATCHES / 2
    assert {row["producerId"] for row in read_view(logs, "records", producerIds="2")} == {2}


@pytest.mark.parametrize("view", ["records", "batches", "segments"])
def test_offsets_below_the_log_start_fail_the_read_or_are_logged(logs, caplog, view):
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nledger 0 150\n")
    given = {"startingOffsets": '{"ledger": {"0": 149}}', "partitions": "0", **UNCOMMITTED}
    with pytest.raises(DataLost, match="ledger-0 begins at 150, startingOffsets names 149; option"):
        read_view(logs, view, **given)
    at_the_start = read_view(logs, view, **{**given, "startingOffsets": '{"ledger": {"0": 150}}'})
    assert read_view(logs, view, failOnDataLoss="False", **given) == at_the_start != []
    assert "ledger-0 begins at 150, startingOffsets names 149" in caplog.text


def test_min_partitions_makes_more_tasks_for_the_same_rows(logs):
    everything = reader_of(logs, "batches")
    assert len(everything.partitions()) == 1
    cut = reader_of(logs, "batches", minPartitions="10")
    assert 8 <= len(cut.partitions()) <= 12
    assert read_all(cut) == read_all(everything)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minPartitions": "0"}, "minPartitions must be a number above 0, not '0'"),
        ({"view": "producers", "minPartitions": "2"}, "minPartitions is for the views records and batches and damage"),
        ({"startingOffsets": "latest"}, "earliest or JSON"),
        ({"startingOffsets": '{"ledger": 3}'}, "earliest or JSON"),
        ({"startingOffsets": '{"ledger": {"0": -1}}'}, "earliest or JSON"),
        ({"endingOffsets": '{"ledger": {"0": "3"}}'}, "latest or JSON"),
        ({"startingTimestamp": "yesterday"}, "a time in ms"),
        ({"partitions": "0-3"}, "list of numbers"),
        ({"history": "true"}, "history is for the views transaction_state and group_offsets, not records"),
        ({"view": "transactions", "startingOffsets": '{"ledger": {"0": 1}}'}, "not transactions"),
        ({"startingOffsets": '{"ledger": {"0": -1}}'}, r"-2 is earliest"),
        (
            {"paths": '["a", "b"]'},
            r"load\(\) names log directories, and option path names somewhere: remove one of them",
        ),
        ({"pushdown": "yes"}, "pushdown must be one of false, true"),
    ],
)
def test_invalid_options_are_refused_with_a_message(options, message):
    with pytest.raises(OptionError, match=message):
        read_options({"path": "somewhere", **options})


def test_options_are_named_as_in_sparks_kafka_source():
    given = {
        "path": "somewhere",
        "startingoffsets": '{"a": {"0": -2, "1": 5}}',
        "endingoffsets": '{"a": {"0": 7, "1": -1}}',
        "startingtimestamp": "12",
    }
    options = read_options(given)
    assert options.starting_offsets == {("a", 1): 5}
    assert options.ending_offsets == {("a", 0): 7}
    assert (options.starting_ms, options.ending_ms) == (12, None)
