"""A frozen broker (`ottla serve --as-pulled`): nothing ends, expires, is deleted or compacted before it thaws."""

from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from ottla.broker.config import Config
from ottla.broker.group.log import group_batch
from ottla.broker.log.log_config import LogConfig
from ottla.protocol.batch_header import LOG_OVERHEAD, PLACE, iter_batches
from ottla.protocol.internal_topics.offsets_records import GroupMember, GroupValue
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from ottla.testkit.corpus.positions import GROUP
from ottla.testkit.in_memory.broker import BrokerInMemory
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule

HERE = {case.name: case for case in CASES}
DIRECTORY = "/data"
DAY_MS = 86_400_000
LONG_MS = 3_000 * DAY_MS
"""From the clock's start to long after the cases were written."""


def make_prepared_files():
    """Return the files of a transaction whose coordinator has only decided: its last record is gone."""
    files = files_of(HERE["torn-transaction"])
    path = "data/__transaction_state-0/00000000000000000000.log"
    *_, (position, _) = iter_batches(memoryview(files[path]))
    return files | {path: files[path][:position]}


def start(files, **config):
    """Start a frozen broker on the files of a case, years after they were written."""
    schedule = Schedule()
    schedule.now_ms = float(LONG_MS)
    disk = MemoryDisk(PortCalls(), Random(1), lambda end: schedule.after(0.0, end))
    for path, content in files.items():
        if path.startswith("data/"):
            disk.make_dirs(f"/{path.rpartition('/')[0]}")
            disk.write(f"/{path}", content)
    broker = BrokerInMemory(disk, PortCalls(), schedule, Config(log_dirs=DIRECTORY, **config), frozen=True)
    broker.run_in_turn(broker.assembly.start_housekeeping)
    broker.advance(60_000)
    return broker


def ends_of(broker):
    return {one.name: (one.log_start_offset, one.log_end_offset, one.log.size_bytes) for one in broker.partitions()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "changed"),
    [
        (files_of(HERE["open-transaction-at-the-end"]), "open-transaction-at-the-end-0"),
        (make_prepared_files(), "torn-transaction-1"),
    ],
    ids=["open", "prepared"],
)
def test_transactions_end_only_after_a_thaw(files, changed):
    broker = start(files)
    before = ends_of(broker)
    broker.advance(2 * DAY_MS)
    assert ends_of(broker) == before
    broker.run_in_turn(broker.assembly.thaw)
    broker.advance(60_000)
    assert broker.bugs == []
    assert ends_of(broker)[changed] > before[changed]


def make_files_of_a_member():
    """Return the files of a group whose last record has a member of the classic protocol."""
    files = files_of(HERE["group-offsets-in-transactions-v1"])
    path = "data/__consumer_offsets-0/00000000000000000000.log"
    *_, (_, last) = iter_batches(memoryview(files[path]))
    member = GroupMember("member-1", None, "client", "/127.0.0.1", 300_000, 45_000, b"", b"")
    batch = group_batch(GROUP, GroupValue("consumer", 1, "range", "member-1", 0, (member,)), 0)
    PLACE.pack_into(batch, 0, last.next_offset, len(batch) - LOG_OVERHEAD, 0)
    return files | {path: files[path] + batch}


def test_the_members_of_a_loaded_group_expire_only_after_a_thaw():
    broker = start(make_files_of_a_member())
    before = ends_of(broker)
    broker.advance(3_600_000)
    groups = broker.assembly.broker.groups
    assert [*groups.describe(GROUP)[0].group.members] == ["member-1"]
    assert ends_of(broker) == before
    broker.run_in_turn(broker.assembly.thaw)
    broker.advance(3_600_000)
    assert broker.bugs == []
    assert not groups.describe(GROUP)[0].group.members
    assert ends_of(broker)["__consumer_offsets-0"] > before["__consumer_offsets-0"]


@pytest.mark.slow
def test_segments_are_deleted_only_after_a_thaw():
    broker = start(files_of(HERE["transactions-across-segments"]))
    partition = broker.assembly.broker.cluster.partition("transactions-across-segments", 0)
    partition.log.config = LogConfig(retention_ms=DAY_MS)
    before = ends_of(broker)
    broker.advance(2 * DAY_MS)
    assert ends_of(broker) == before
    broker.run_in_turn(broker.assembly.thaw)
    broker.advance(DAY_MS)
    assert partition.log_start_offset > before[partition.name][0]


def test_a_broker_thaws_once():
    broker = start(files_of(HERE["one-committed-transaction"]))
    assert broker.assembly.thaw()
    assert not broker.assembly.thaw()
