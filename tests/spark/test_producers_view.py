"""The view `producers` from snapshots and tails against a walk over all of the log."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.snapshot import decode_snapshot, encode_snapshot
from tests.scan.broker_logs import write_directory
from tests.spark.test_snapshot_ranges import write_snapshots
from tests.spark.views import read_view


def by_producer(rows):
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["producerId"]))


@pytest.mark.parametrize("directory", range(3))
def test_producers_of_the_brokers_logs_are_those_of_a_walk(tmp_path, directory):
    root = tmp_path / "log"
    write_directory(root, 4_000 + directory, 60)[1].stop()
    walked = by_producer(read_view(root, "producers", verify="true"))
    assert by_producer(read_view(root, "producers")) == walked
    assert len(walked) > 60


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_producers_of_kafkas_logs_are_those_of_a_walk(reference, name):
    given = {"topics": "*"}
    walked = by_producer(read_view(reference(name), "producers", verify="true", **given))
    assert by_producer(read_view(reference(name), "producers", **given)) == walked


@pytest.fixture
def two_segments(write_log):
    log = write_log()
    log.data(2, producer_id=7)
    log.data(3, producer_id=8)
    log.roll()
    log.data(1, producer_id=8, base_sequence=3)
    write_snapshots(write_log.root)
    return log


def test_the_segments_below_the_newest_snapshot_are_not_read(two_segments):
    (two_segments.folder / f"{0:020d}.log").write_bytes(b"nothing that could be read")
    rows = by_producer(read_view(two_segments.folder.parent, "producers"))
    assert [(row["producerId"], row["lastOffset"], row["lastSequence"]) for row in rows] == [(7, 1, 1), (8, 5, 3)]


def test_a_producer_missing_from_the_snapshot_is_found_by_a_full_walk(two_segments):
    path = two_segments.folder / f"{5:020d}.snapshot"
    kept = [entry for entry in decode_snapshot(path.read_bytes()) if entry.producer_id != 7]
    path.write_bytes(encode_snapshot(kept))
    root = two_segments.folder.parent
    assert [row["producerId"] for row in read_view(root, "producers")] == [8]
    assert [row["producerId"] for row in by_producer(read_view(root, "producers", verify="true"))] == [7, 8]
    assert [row["producerId"] for row in by_producer(read_view(root, "producers", on_damage="report"))] == [7, 8]
