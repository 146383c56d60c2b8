"""Views of random logs against the slow scanner, which shares no code with them, and naive models over its batches."""

import json
import random

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.testkit.scanner import scan_partition
from tests.scan.test_against_scanner import write_random_log
from tests.segment_files import LogWriter
from tests.spark.views import read_view
from tests.spark.wild_logs import write_wild_log

SEEDS = range(40)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Write forty random logs as partitions of one directory."""
    root = tmp_path_factory.mktemp("random") / "log"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\n")
    for seed in SEEDS:
        chance = random.Random(1000 + seed)
        if seed % 2:
            write_random_log(LogWriter(root, "log", seed), chance, steps=chance.choice([5, 40, 120]))
        else:
            write_wild_log(LogWriter(root, "log", seed), chance)
    return root


@pytest.fixture(scope="module")
def scans(logs):
    return {seed: scan_partition(logs / f"log-{seed}") for seed in SEEDS}


def of_partition(rows, number):
    return [row for row in rows if row["partition"] == number]


def test_batches_and_their_fates_are_those_of_the_scanner(logs, scans):
    rows = read_view(logs, "batches")
    fates = set()
    for seed, partition in scans.items():
        expected = [
            (
                batch.position,
                batch.size_bytes,
                batch.base_offset,
                batch.last_offset,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.record_count,
                batch.marker,
                batch.coordinator_epoch,
                fate if batch.is_transactional and not batch.is_control else "none",
            )
            for batch, fate in zip(partition.batches, partition.fates, strict=True)
        ]
        names = ("position", "size", "baseOffset", "lastOffset", "producerId", "producerEpoch", "baseSequence")
        more = ("recordCount", "controlType", "coordinatorEpoch", "fate")
        assert [tuple(row[name] for name in names + more) for row in of_partition(rows, seed)] == expected
        fates |= {row[-1] for row in expected}
    assert fates == {"none", "committed", "aborted", "open"}


def test_transactions_are_those_of_the_scanner(logs, scans):
    rows = read_view(logs, "transactions")
    for seed, partition in scans.items():
        found = [row for row in of_partition(rows, seed) if row["firstOffset"] is not None]
        names = ("producerId", "firstOffset", "fate", "markerOffset", "markerEpoch")
        expected = [
            (one.producer_id, one.first_offset, one.fate, one.marker_offset, one.marker_epoch)
            for one in partition.transactions
        ]
        assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected, key=lambda one: one[:2])
        aborted = [
            (row["producerId"], row["firstOffset"], row["markerOffset"], row["lastStableOffset"])
            for row in found
            if row["fate"] == "aborted"
        ]
        assert aborted == partition.aborted_index
        markers = [batch.base_offset for batch in partition.batches if batch.marker]
        assert [row["markerOffset"] for row in of_partition(rows, seed) if row["markerOffset"] is not None] == markers


def producers_of(partition):
    """Return the `ProducerStateEntry` of each producer after replaying the batches, as in a broker."""
    held = {}
    for batch in partition.batches:
        if batch.producer_id < 0 or (batch.is_control and batch.marker is None):
            continue
        state = held.setdefault(batch.producer_id, {"coordinatorEpoch": None, "openFirstOffset": None})
        if batch.is_control:
            if state.get("producerEpoch", batch.producer_epoch) != batch.producer_epoch or "lastOffset" not in state:
                state |= {"lastSequence": None, "lastOffset": None}
            state |= {"coordinatorEpoch": batch.coordinator_epoch, "openFirstOffset": None}
        else:
            last = (batch.base_sequence + batch.last_offset - batch.base_offset) % 2**31
            state |= {"lastSequence": None if batch.base_sequence < 0 else last, "lastOffset": batch.last_offset}
            if batch.is_transactional and state["openFirstOffset"] is None:
                state["openFirstOffset"] = batch.base_offset
        state |= {"producerEpoch": batch.producer_epoch, "lastTimestamp": batch.max_timestamp}
    return held


def test_producers_are_what_a_replay_of_the_log_gives(logs, scans):
    rows = read_view(logs, "producers")
    for seed, partition in scans.items():
        names = ("producerEpoch", "lastSequence", "lastOffset", "lastTimestamp", "coordinatorEpoch", "openFirstOffset")
        found = {row["producerId"]: {name: row[name] for name in names} for row in of_partition(rows, seed)}
        assert found == producers_of(partition)


def test_partitions_end_where_the_scanner_ends(logs, scans):
    rows = {row["partition"]: row for row in read_view(logs, "partitions")}
    for seed, partition in scans.items():
        row = rows[seed]
        assert (row["logEnd"], row["lastStableOffset"]) == (partition.log_end_offset, partition.last_stable_offset)
        assert row["batches"] == len(partition.batches)
        for fate in ("committed", "aborted", "open"):
            assert row[f"{fate}Transactions"] == sum(one.fate == fate for one in partition.transactions)
            records = [record for record in partition.records() if record.fate == fate]
            assert row[f"{fate}Records"] == len(records)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_between_any_offsets_are_those_of_the_scanner(logs, scans, isolation):
    chance = random.Random(3)
    first = {str(seed): chance.randrange(max(scans[seed].log_end_offset, 1)) for seed in SEEDS}
    end = {number: low + chance.choice([0, 1, 10, 10**6]) for number, low in first.items()}
    rows = read_view(
        logs,
        "records",
        columns=("partition", "offset", "segment"),
        isolation_level=isolation,
        startingOffsets=json.dumps({"log": first}),
        endingOffsets=json.dumps({"log": end}),
    )
    bases = {seed: sorted(int(path.stem) for path in (logs / f"log-{seed}").glob("*.log")) for seed in SEEDS}
    for seed, partition in scans.items():
        expected = [
            record.offset
            for record in partition.records(isolation)
            if first[str(seed)] <= record.offset < end[str(seed)]
        ]
        found = of_partition(rows, seed)
        assert [row["offset"] for row in found] == expected
        assert all(row["segment"] == max(b for b in bases[seed] if b <= row["offset"]) for row in found)
