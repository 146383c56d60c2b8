"""Every view against the output of Kafka's own tools for the same directories."""

import json
import re
import subprocess
import sys
from collections import defaultdict

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import schemas
from tests.consumer_group_records import POSITIONS, write_consumer_offsets
from tests.segment_files import REFERENCE
from tests.spark.views import read_view
from tests.unit.cli.kafka_directory import kafka_dump

BOTH = pytest.mark.parametrize("name", ["clean", "unclean"])
# All but the metadata log, of which the dump has no batches.
EVERYTHING = {"topics": "[!_]*,__consumer_offsets,__transaction_state"}


def partition_of(file):
    topic, number = file.split("/")[0].rsplit("-", 1)
    return topic, int(number)


def segments_of(name):
    """Yield (topic, partition, base offset, lines) of each segment of the dump, without the metadata log."""
    for file, lines in kafka_dump(name).items():
        if file.endswith(".log") and not file.startswith("__cluster_metadata"):
            yield *partition_of(file), int(file.split("/")[1][:-4]), lines


def fields_of(line):
    """Return `a: 1 b: 2` as a dict; the first value of each name counts."""
    found = {}
    for key, value in re.findall(r"(\w+): (\S+)", line):
        found.setdefault(key, value)
    return found


def dumped_batches(name):
    """The batches that DumpLogSegments lists, as rows of the view; a marker's kind and epoch are with its record."""
    for topic, partition, segment, lines in segments_of(name):
        row = None
        for line in lines:
            found = fields_of(line)
            if line.startswith("baseOffset"):
                if row:
                    yield row
                kind = "LogAppendTime" if "LogAppendTime" in found else "CreateTime"
                horizon = re.search(r"deleteHorizonMs: OptionalLong\[(\d+)\]", line)
                row = {
                    "topic": topic,
                    "partition": partition,
                    "segment": segment,
                    "position": int(found["position"]),
                    "size": int(found["size"]),
                    "baseOffset": int(found["baseOffset"]),
                    "lastOffset": int(found["lastOffset"]),
                    "recordCount": int(found["count"]),
                    "leaderEpoch": int(found["partitionLeaderEpoch"]),
                    "crc": int(found["crc"]),
                    "codec": found["compresscodec"],
                    "timestampType": int(kind == "LogAppendTime"),
                    "isTransactional": found["isTransactional"] == "true",
                    "isControl": found["isControl"] == "true",
                    "maxTimestamp": int(found[kind]),
                    "deleteHorizon": int(horizon[1]) if horizon else None,
                    "producerId": int(found["producerId"]),
                    "producerEpoch": int(found["producerEpoch"]),
                    "baseSequence": int(found["baseSequence"]),
                    "lastSequence": int(found["lastSequence"]),
                    "controlType": "empty" if found["isControl"] == "true" else None,
                    "coordinatorEpoch": None,
                }
            elif "endTxnMarker" in found:
                row["controlType"] = found["endTxnMarker"].lower()
                row["coordinatorEpoch"] = int(found["coordinatorEpoch"])
        if row:
            yield row


def transactions_of(batches):
    """Return the ended and open transactions by partition and producer, from a naive model."""
    opened, found = {}, []
    for batch in batches:
        key = batch["topic"], batch["partition"], batch["producerId"]
        if batch["isControl"]:
            if batch["controlType"] in ("commit", "abort"):
                mine = opened.pop(key, [])
                found.append((*ends_of(key, mine), batch["baseOffset"], batch["position"], *marker_of(batch)))
        elif batch["isTransactional"]:
            opened.setdefault(key, []).append(batch)
    found += [(*ends_of(key, mine), None, None, "open", None, None, None) for key, mine in opened.items()]
    return found


def ends_of(key, batches):
    first = batches[0]["baseOffset"] if batches else None
    last = batches[-1]["lastOffset"] if batches else None
    size = sum(batch["size"] for batch in batches)
    return (*key, first, last, len(batches), sum(batch["recordCount"] for batch in batches), size)


def marker_of(batch):
    fate = {"commit": "committed", "abort": "aborted"}[batch["controlType"]]
    return fate, batch["producerEpoch"], batch["coordinatorEpoch"], batch["maxTimestamp"]


def as_transaction(row):
    names = ("topic", "partition", "producerId", "firstOffset", "lastOffset", "batches", "records", "size")
    more = ("markerOffset", "markerPosition", "fate", "markerEpoch", "coordinatorEpoch", "endTime")
    return tuple(row[name] for name in names + more)


def in_order(rows):
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


@BOTH
def test_batches_are_those_that_kafkas_dump_lists(reference, name):
    expected = list(dumped_batches(name))
    rows = read_view(reference(name), "batches", columns=tuple(expected[0]), **EVERYTHING)
    assert in_order(tuple(row.values()) for row in rows) == in_order(tuple(row.values()) for row in expected)
    assert len(rows) > 4000


@BOTH
def test_transactions_are_the_markers_of_kafkas_dump_and_what_has_none(reference, name):
    expected = transactions_of(dumped_batches(name))
    rows = read_view(reference(name), "transactions", **EVERYTHING)
    assert in_order(map(as_transaction, rows)) == in_order(expected)
    fates = [row["fate"] for row in rows if row["firstOffset"] is not None]
    assert (fates.count("aborted"), fates.count("open")) == (337, 2)
    assert fates.count("committed") > 1000
    for row in rows:
        assert row["durationMs"] == (row["endTime"] - row["startTime"] if row["startTime"] and row["endTime"] else None)


def told_by_kafka(header):
    """Return the live broker's rows of the table with this first column name in `transactions.txt`."""
    rows, columns = [], None
    for line in (REFERENCE / "transactions.txt").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if "ProducerId" in cells:
            columns = cells if cells[: len(header)] == header else None
        elif columns:
            rows.append(dict(zip(columns, cells, strict=False)))
    return rows


@BOTH
def test_producers_are_those_that_a_broker_described(reference, name):
    expected = told_by_kafka(["ProducerId", "ProducerEpoch"])
    rows = read_view(reference(name), "producers", topics="ledger", partitions="2")
    assert len(rows) == len(expected) == 5
    for row, told in zip(rows, sorted(expected, key=lambda row: int(row["ProducerId"])), strict=True):
        assert row["producerId"] == int(told["ProducerId"])
        assert row["producerEpoch"] == int(told["ProducerEpoch"])
        assert row["lastSequence"] == int(told["LastSequence"])
        assert row["lastTimestamp"] == int(told["LastTimestamp"])
        assert -1 if row["coordinatorEpoch"] is None else row["coordinatorEpoch"] == int(told["LatestCoordinatorEpoch"])
        first = told["CurrentTransactionStartOffset"]
        assert row["openFirstOffset"] == (None if first == "None" else int(first))


@BOTH
def test_open_transactions_are_those_that_a_broker_listed(reference, name):
    told = told_by_kafka(["TransactionalId", "Coordinator"])
    ongoing = {row["TransactionalId"]: int(row["ProducerId"]) for row in told if row["TransactionState"] == "Ongoing"}
    rows = read_view(reference(name), "transactions", **EVERYTHING)
    assert {row["transactionalId"]: row["producerId"] for row in rows if row["fate"] == "open"} == ongoing
    states = read_view(reference(name), "transaction_state")
    assert {(row["transactionalId"], row["producerId"], row["state"]) for row in states} == {
        (row["TransactionalId"], int(row["ProducerId"]), row["TransactionState"]) for row in told
    }


@BOTH
def test_partitions_end_where_kafkas_consumer_ended(reference, consume, name):
    rows = {f"{row['topic']}-{row['partition']}": row for row in read_view(reference(name), "partitions")}
    for isolation, column in (("read_committed", "lastStableOffset"), ("read_uncommitted", "logEnd")):
        ends, records = consume(isolation)
        assert {place: row[column] for place, row in rows.items()} == ends
        counted = defaultdict(int)
        for record in records:
            counted[f"{record['topic']}-{record['partition']}"] += 1
        if isolation == "read_uncommitted":
            parts = ("plainRecords", "committedRecords", "abortedRecords", "openRecords")
            assert {place: sum(row[part] for part in parts) for place, row in rows.items()} == {
                place: counted[place] for place in rows
            }
    assert sum(row["openTransactions"] for row in rows.values()) == 2
    assert all(row["highWatermark"] <= row["logEnd"] and row["logStart"] == 0 for row in rows.values())


def dumped_records(name, topic):
    """Return (partition, offset, key, value) of an internal topic's records, as decoded by DumpLogSegments."""
    for found, partition, _, lines in segments_of(name):
        for line in lines if found == topic else ():
            if record := re.match(r"\| offset: (\d+) .* key: (\{.*?\}) payload: (.*)$", line):
                value = None if record[3] == "<DELETE>" else record[3]
                yield partition, int(record[1]), record[2], value


@BOTH
def test_transaction_state_is_decoded_as_kafka_decodes_it(reference, name):
    rows = {
        (row["partition"], row["offset"]): row
        for row in read_view(reference(name), "transaction_state", history="true")
    }
    states = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    count = 0
    for partition, offset, key, value in dumped_records(name, "__transaction_state"):
        row, told = rows[partition, offset], json.loads(value)["data"]
        assert row["transactionalId"] == json.loads(key)["data"]["transactionalId"]
        assert row["producerId"] == told["producerId"]
        assert row["producerEpoch"] == told["producerEpoch"]
        assert row["previousProducerId"] == told.get("previousProducerId")
        assert row["timeoutMs"] == told["transactionTimeoutMs"]
        assert row["state"] == states[told["transactionStatus"]]
        assert row["partitions"] == [
            {"topic": each["topic"], "partitions": each["partitionIds"]} for each in told["transactionPartitions"] or ()
        ]
        assert row["updateTime"] == told["transactionLastUpdateTimestampMs"]
        start = told["transactionStartTimestampMs"]
        assert row["startTime"] == (None if start == -1 else start)
        assert row["clientVersion"] == told.get("clientTransactionVersion", 0)
        count += 1
    assert len(rows) == count > 1000
    last = {row["transactionalId"]: row for row in rows.values()}
    assert read_view(reference(name), "transaction_state") == [row for row in rows.values() if row in last.values()]


@BOTH
def test_group_offsets_are_decoded_as_kafka_decodes_them(reference, name):
    rows = read_view(reference(name), "group_offsets", history="true")
    told = [
        (partition, offset, json.loads(key)["data"], json.loads(value)["data"])
        for partition, offset, key, value in dumped_records(name, "__consumer_offsets")
        if json.loads(key)["type"] == "1"
    ]
    assert [(row["partition"], row["offset"], row["group"], row["committedTopic"]) for row in rows] == [
        (partition, offset, key["group"], key["topic"]) for partition, offset, key, _ in told
    ]
    assert [
        (row["committedPartition"], row["committedOffset"], row["commitTime"], row["metadata"]) for row in rows
    ] == [(key["partition"], value["offset"], value["commitTimestamp"], value["metadata"]) for _, _, key, value in told]
    assert [row["fate"] for row in rows].count("aborted") == 1
    (last,) = read_view(reference(name), "group_offsets")
    assert last == [row for row in rows if row["fate"] == "committed"][-1]


def test_group_offsets_are_the_positions_of_groups_of_the_consumer_protocol(write_log):
    root = write_consumer_offsets(write_log)
    rows = read_view(root, "group_offsets", on_damage="fail")
    assert {
        (row["group"], row["committedTopic"], row["committedPartition"]): row["committedOffset"] for row in rows
    } == POSITIONS
    assert {row["fate"] for row in rows} == {"none", "committed"}
    history = read_view(root, "group_offsets", history="true", on_damage="fail")
    assert len(history) == len(POSITIONS) + 2  # a position and its tombstone


@BOTH
def test_the_segments_view_agrees_with_kafkas_dump(reference, name):
    dump = kafka_dump(name)
    rows = read_view(reference(name), "segments", **EVERYTHING)
    logs = {(topic, number, base): lines for topic, number, base, lines in segments_of(name)}
    assert {(row["topic"], row["partition"], row["segment"]) for row in rows} >= set(logs)
    for row in rows:
        lines = logs.get((row["topic"], row["partition"], row["segment"]), [])
        heads = [fields_of(line) for line in lines if line.startswith("baseOffset")]
        assert row["batches"] == len(heads)
        assert row["records"] == sum(int(head["count"]) for head in heads)
        assert row["firstOffset"] == (int(heads[0]["baseOffset"]) if heads else None)
        assert row["lastOffset"] == (int(heads[-1]["lastOffset"]) if heads else None)
        index = dump.get(f"{row['topic']}-{row['partition']}/{row['segment']:020d}.txnindex")
        if index is not None:
            assert row["abortedTransactions"] == sum("producerId" in line for line in index)
        if heads:
            assert row["size"] == int(heads[-1]["position"]) + int(heads[-1]["size"])
            assert row["largestTimestamp"] is None or row["largestTimestamp"] <= row["maxTimestamp"]


# Hanging transactions are reported with the time of the query.
@pytest.mark.parametrize("view", [view for view in schemas.VIEWS if view != schemas.HANGING])
def test_one_column_of_a_view_is_that_of_the_whole(reference, view):
    whole = read_view(reference("clean"), view)
    for column in schemas.VIEWS[view]:
        one = read_view(reference("clean"), view, columns=(column,))
        assert one == [{column: row[column]} for row in whole], column


@pytest.mark.parametrize("view", ["transaction_state", "group_offsets"])
def test_internal_topics_are_records_of_bytes_too(reference, view):
    topic = {"transaction_state": "__transaction_state", "group_offsets": "__consumer_offsets"}[view]
    rows = read_view(reference("clean"), "records", topics=topic, isolation_level="read_uncommitted")
    places = {(row["partition"], row["offset"]) for row in rows}
    history = {(row["partition"], row["offset"]) for row in read_view(reference("clean"), view, history="true")}
    assert history <= places
    assert all(type(row["key"]) is bytes for row in rows)


def test_importing_the_data_source_loads_no_heavy_modules():
    code = (
        "import sys, ottla.spark_jobs; assert 'pyspark' not in sys.modules\n"
        "import pyspark_ottla\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'kafka', 'asyncio', 'ottla.broker'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
