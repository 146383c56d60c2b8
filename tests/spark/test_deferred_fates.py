"""Fates that the tasks compute are the same as those of the driver's plan."""

import pickle

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import partitions
from ottla.scan.damage_log import DamagedSegment
from ottla.scan.listing import list_again, list_partitions
from ottla.spark_jobs.options import Options, read_options
from ottla.spark_jobs.views import deferred_fates, planning
from ottla.spark_jobs.views.bounds import UNBOUNDED
from ottla.spark_jobs.views.planning import plan_ranges
from tests.spark.views import read_all, read_view, reader_of

MODES = [{}, {"verify": "true"}, {"on_damage": "report"}]


@pytest.fixture
def by_tasks(monkeypatch):
    """Let the driver walk no partition."""
    monkeypatch.setattr(deferred_fates, "DRIVER_BYTES", -1)
    monkeypatch.setattr(planning, "fates_of", None)


@pytest.mark.parametrize("name", ["clean", "unclean"])
@pytest.mark.parametrize(("view", "column"), [("records", "offset"), ("batches", "fate")])
@pytest.mark.parametrize("options", MODES, ids=["indexes", "verify", "report"])
def test_tasks_decide_as_the_driver_does(reference, name, view, column, options, request):
    columns = ["topic", "partition", column]
    planned = sorted(map(repr, read_view(reference(name), view, columns, **options)))
    request.getfixturevalue("by_tasks")
    assert planned
    assert sorted(map(repr, read_view(reference(name), view, columns, **options))) == planned


def test_each_task_of_a_cut_partition_decides_alike(write_log, by_tasks, monkeypatch):
    log = write_log()
    expected = []
    for segment in range(6):
        if segment == 4:
            log.data(1, producer_id=9)
        for producer_id in range(4):
            first = log.next_offset
            log.data(5, producer_id=producer_id)
            expected += range(first, first + 5) if producer_id % 2 and segment < 4 else []
        for producer_id in range(4):
            log.marker(producer_id, commit=producer_id % 2 == 1)
        log.roll()
    monkeypatch.setattr(planning, "LARGEST_TASK_BYTES", 1)
    reader = reader_of(write_log.root, "records", ["offset"])
    tasks = reader.partitions()
    assert 1 < len(tasks) <= 2 * deferred_fates.TASKS_OF_A_WALK
    assert [row["offset"] for row in read_all(reader)] == expected


def test_a_worker_walks_a_partition_once(write_log, by_tasks, monkeypatch):
    log = write_log()
    for _ in range(4):
        log.data(5, producer_id=1)
        log.marker(1, commit=True)
        log.roll()
    walked = []
    scan = partitions.scan_partition
    monkeypatch.setattr(partitions, "scan_partition", lambda log, **how: walked.append(log.name) or scan(log, **how))
    monkeypatch.setattr(planning, "LARGEST_TASK_BYTES", 1)
    assert len(read_view(write_log.root, "records", ["offset"])) == 20
    assert walked == ["ledger-0"]


def test_tasks_see_the_log_as_it_was_planned(write_log, by_tasks):
    log = write_log()
    log.data(2, producer_id=1)
    log.marker(1, commit=True)
    log.roll().data(2, producer_id=2)
    reader = reader_of(write_log.root, "records", ["offset"])
    tasks = reader.partitions()
    log.marker(2, commit=True)
    log.roll().data(2)
    assert [row for task in tasks for batch in reader.read(task) for row in batch["offset"].to_pylist()] == [0, 1]


def test_a_worker_does_not_reuse_fates_of_an_earlier_query(write_log, by_tasks):
    log = write_log()
    log.data(2, producer_id=1)
    log.marker(1, commit=True)
    assert [row["offset"] for row in read_view(write_log.root, "records", ["offset"])] == [0, 1]
    size = log.path.stat().st_size
    log.path.write_bytes(b"")
    log.next_offset = 0
    log.data(2, producer_id=1)
    log.marker(1, commit=False)
    assert log.path.stat().st_size == size
    assert read_view(write_log.root, "records", ["offset"]) == []


def test_a_partition_listed_again_is_the_one_that_was_planned(reference):
    for log in list_partitions(str(reference("clean"))):
        if log.segments:
            known = log._replace(segments=log.segments[-1:], snapshots=log.snapshots[-1:])
            assert list_again(known) == log


def test_a_task_is_small_however_many_segments_its_partition_has(write_log, by_tasks):
    log = write_log()
    for _ in range(300):
        log.data(1, producer_id=1)
        log.roll()
    (task,) = plan_ranges(Options((str(write_log.root),)), UNBOUNDED, with_fates=True)
    (deferred,) = task._deferred.values()
    assert len(pickle.dumps(deferred)) < 1_000


def test_damage_that_a_deciding_task_meets_names_the_file(write_log, by_tasks):
    log = write_log()
    log.data(2)
    position = log.data(2, producer_id=1)
    log.data(2)
    data = bytearray(log.path.read_bytes())
    data[position + 16] = 1
    log.path.write_bytes(data)
    reader = reader_of(write_log.root, "records", ["offset"])
    (task,) = reader.partitions()
    with pytest.raises(DamagedSegment, match=f"{log.path}: position {position} "):
        list(reader.read(task))


def test_little_is_left_to_the_driver(reference):
    options = read_options({"path": str(reference("clean"))})
    logs = [log for log in list_partitions(*options.paths) if log.segments]
    assert not deferred_fates.are_for_tasks(logs, options)
    big = [log._replace(segments=tuple(one._replace(size_bytes=2**31) for one in log.segments)) for log in logs]
    assert deferred_fates.are_for_tasks(big, options)
