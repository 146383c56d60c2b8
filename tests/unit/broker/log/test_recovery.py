"""Recovery after a crash: it truncates torn tails, but no damaged logs."""

import pytest

from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import max_timestamp_offset
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.indexes import iter_time_entries
from ottla.protocol.record_frames import empty_batch
from ottla.protocol.steps import to_the_end
from ottla.testkit.scanner import scan_partition

LOG = f"{0:020d}.log"


def log(logs):
    return logs.path(LOG)


def kill_and_restart(logs, **settings):
    logs.kill()
    logs.start()
    return logs.partition(**settings)


def sizes(logs):
    return [batch.size_bytes for batch in scan_partition(logs.path()).batches]


def test_everything_survives_a_kill(logs, produce, transactor):
    partition = logs.partition(leader_epoch=1)
    produce(partition, 5)
    producer = transactor(partition, 1)
    producer.send(2)
    partition = kill_and_restart(logs, leader_epoch=1)
    assert not logs.manager.clean_start
    assert partition.log_end_offset == 7
    assert partition.last_stable_offset == 5
    assert partition.producer_of(1).current_txn_first_offset >= 0
    producer.partition = partition
    assert producer.send().base_offset == 7


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 62, 75])
def test_a_torn_batch_is_cut_off(logs, produce, caplog, cut):
    partition = logs.partition()
    for _ in range(3):
        produce(partition)
    size = sizes(logs)[0]
    logs.kill()
    data = log(logs).read_bytes()
    assert cut < size
    log(logs).write_bytes(data[: 2 * size + cut])
    logs.start()
    partition = logs.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 2
    assert log(logs).stat().st_size == 2 * size
    assert f"{cut} bytes dropped" in caplog.text
    assert produce(partition).base_offset == 2


def test_a_bad_last_batch_is_a_torn_write(logs, produce):
    partition = logs.partition()
    for _ in range(3):
        produce(partition)
    logs.kill()
    data = bytearray(log(logs).read_bytes())
    data[-3] ^= 0xFF
    log(logs).write_bytes(data)
    logs.start()
    assert logs.partition().log_end_offset == 2


@pytest.mark.parametrize("at", ["size", "magic", "crc", "payload"])
def test_a_bad_batch_before_good_ones_takes_the_partition_offline(logs, produce, caplog, at):
    partition = logs.partition()
    for _ in range(3):
        produce(partition)
    size = sizes(logs)[0]
    logs.kill()
    data = bytearray(log(logs).read_bytes())
    data[size + {"size": 9, "magic": 16, "crc": 18, "payload": 70}[at]] ^= 0x55
    log(logs).write_bytes(data)
    logs.start()
    partition = logs.partition()
    assert partition.offline is not None
    for part in (str(log(logs)), f"position {size}", "--truncate-damaged t-0"):
        assert part in caplog.text
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.read(0, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.bytes_available(0, FetchIsolation.LOG_END, 1) == 0
    logs.stop()
    assert log(logs).read_bytes() == data
    # A restart does not repair it, not even after a stop that was clean for the other logs.
    logs.start()
    assert logs.partition().offline is not None
    # Unless the operator gives up what follows.
    logs.kill()
    logs.start(truncate_damaged=frozenset({"t-0"}))
    partition = logs.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 1
    assert "2" in caplog.records[-1].getMessage() and f"{2 * size} bytes dropped" in caplog.text


@pytest.mark.parametrize(("byte", "position"), [(4, 2), (7, 1), (2, 1)], ids=["higher", "lower", "too high"])
def test_an_offset_that_rotted_is_damage_although_no_crc_covers_it(logs, produce, caplog, byte, position):
    partition = logs.partition()
    for _ in range(3):
        produce(partition)
    size = sizes(logs)[0]
    logs.kill()
    data = bytearray(log(logs).read_bytes())
    data[size + byte] ^= 1
    log(logs).write_bytes(data)
    logs.start()
    assert logs.partition().offline is not None
    assert f"position {position * size}" in caplog.text
    assert log(logs).read_bytes() == data


def test_a_damaged_partition_leaves_other_partitions_online(logs, produce):
    for topic in ("t", "other"):
        for _ in range(3):
            produce(logs.partition(topic))
    logs.kill()
    data = bytearray(log(logs).read_bytes())
    data[80] ^= 1
    log(logs).write_bytes(data)
    logs.start()
    assert logs.partition().offline is not None
    assert produce(logs.partition("other")).base_offset == 3


def test_a_bad_batch_below_the_recovery_point_is_damage(logs, produce, caplog):
    partition = logs.partition()
    for _ in range(2):
        produce(partition)
    logs.stop()
    data = log(logs).read_bytes()
    logs.start()
    logs.kill()
    log(logs).write_bytes(data[:-5])
    logs.start()
    assert logs.partition().offline is not None
    assert "below the recovery point 2" in caplog.text


def test_pages_that_never_reached_the_device_are_cut_off(logs, produce, caplog):
    partition = logs.partition()
    for _ in range(6):
        produce(partition, value=b"v" * 3000)
    size = sizes(logs)[0]
    logs.kill()
    data = bytearray(log(logs).read_bytes())
    data[8192:12288] = bytes(4096)
    log(logs).write_bytes(data)
    logs.start()
    partition = logs.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 8192 // size
    assert "power loss" in caplog.text


def test_a_file_that_grew_by_zeros_is_cut_off(logs, produce):
    partition = logs.partition()
    produce(partition)
    size = sizes(logs)[0]
    logs.kill()
    log(logs).write_bytes(log(logs).read_bytes() + bytes(10_000))
    logs.start()
    assert logs.partition().log_end_offset == 1
    assert log(logs).stat().st_size == size


def test_a_torn_segment_before_other_segments_takes_the_partition_offline(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    logs.kill()
    log(logs).write_bytes(log(logs).read_bytes()[:-1])
    logs.start()
    assert logs.partition(segment_bytes=300).offline is not None
    logs.kill()
    logs.start(truncate_damaged=frozenset({"t-0"}))
    partition = logs.partition(segment_bytes=300)
    assert partition.log_end_offset == 2
    assert [path.name for path in sorted(logs.path().glob("*.log"))] == [LOG]
    assert produce(partition).base_offset == 2


def test_a_segment_that_lost_its_last_batches_is_damage(logs, produce, caplog):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    logs.kill()
    log(logs).write_bytes(log(logs).read_bytes()[: sizes(logs)[0]])
    logs.start()
    assert logs.partition(segment_bytes=300).offline is not None
    assert "offsets 1 to 2 are missing" in caplog.text
    logs.kill()
    logs.start(truncate_damaged=frozenset({"t-0"}))
    assert produce(logs.partition(segment_bytes=300)).base_offset == 1


def test_lost_index_files_of_old_segments_are_made_again(logs, produce):
    settings = {"segment_bytes": 2000, "index_interval_bytes": 200}
    partition = logs.partition(**settings)
    for _ in range(60):
        produce(partition)
    logs.stop()
    before = {path.name: path.read_bytes() for path in logs.path().glob("*index")}
    for path in logs.path().glob("*index"):
        path.unlink()
    logs.start()
    partition = logs.partition(**settings)
    position = 0
    while position < 60:
        for _, header in iter_batches(partition.read(position, 400).records):
            position = header.next_offset
    logs.stop()
    assert {path.name: path.read_bytes() for path in logs.path().glob("*index")} == before


@pytest.mark.parametrize("end", ["kill", "stop", "lost-index"])
def test_the_time_of_a_batch_that_compaction_emptied_is_not_found_again(logs, transactor, end):
    partition = logs.partition(segment_bytes=300)
    producer = transactor(partition, 7)
    for timestamp_ms in (1000, 5000, 2000, 1500):
        producer.send(transactional=False, timestamp_ms=timestamp_ms)
    assert [segment.base_offset for segment in partition.log.segments] == [0, 3]
    logs.kill()
    # The second batch becomes what compaction leaves of the last one of a producer.
    data = log(logs).read_bytes()
    _, (second, header), (third, _) = iter_batches(data)
    assert header.max_timestamp == 5000
    log(logs).write_bytes(data[:second] + empty_batch(header) + data[third:])
    if end != "kill":
        logs.start()
        assert logs.partition(segment_bytes=300).offline is None
        logs.stop()
    if end == "lost-index":
        for path in logs.path().glob("*index"):
            path.unlink()
    logs.start()
    partition = logs.partition(segment_bytes=300)
    found = to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END))
    assert (found.timestamp, found.offset) == (2000, 2)
    logs.stop()
    assert list(iter_time_entries(logs.path(f"{0:020d}.timeindex").read_bytes())) == [(2000, 2)]


def test_an_index_that_cannot_be_is_rebuilt(logs, produce):
    partition = logs.partition(index_interval_bytes=100)
    for _ in range(30):
        produce(partition)
    logs.stop()
    before = logs.path(f"{0:020d}.index").read_bytes()
    logs.path(f"{0:020d}.index").write_bytes(before[:-8] + b"\x00\x00\x00\x63\x00\x99\x99\x99")
    logs.start()
    partition = logs.partition(index_interval_bytes=100)
    assert partition.log_end_offset == 30
    logs.stop()
    assert logs.path(f"{0:020d}.index").read_bytes() == before


def test_preallocated_index_files_are_read_up_to_their_zeros(logs, produce):
    settings = {"segment_bytes": 3000, "index_interval_bytes": 100}
    partition = logs.partition(**settings)
    for _ in range(60):
        produce(partition)
    logs.stop()
    for path in [*logs.path().glob("*.index"), *logs.path().glob("*.timeindex")]:
        path.write_bytes(path.read_bytes() + bytes(1200))
    logs.start()
    partition = logs.partition(**settings)
    assert partition.log_end_offset == 60
    for offset in range(60):
        assert next(iter_batches(partition.read(offset, 1).records))[1].base_offset == offset
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END)).offset == 0


def test_a_corrupt_snapshot_is_passed_over(logs, transactor):
    settings = {"segment_bytes": 300}
    producer = transactor(logs.partition(**settings), 1)
    for _ in range(8):
        producer.send(transactional=False)
    logs.stop()
    newest = sorted(logs.path().glob("*.snapshot"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    logs.start()
    producer.partition = logs.partition(**settings)
    assert producer.send(transactional=False).base_offset == 8
    producer.sequence -= 1
    assert producer.send(transactional=False).duplicate


def test_stray_files_go(logs, produce):
    settings = {"segment_bytes": 300}
    for _ in range(8):
        produce(logs.partition(**settings))
    logs.stop()
    for name in (f"{1:020d}.snapshot", f"{99:020d}.snapshot", f"{2:020d}.index", "x.deleted", "leader.tmp"):
        logs.path(name).write_bytes(b"")
    logs.start()
    assert logs.partition(**settings).log_end_offset == 8
    names = {path.name for path in logs.path().iterdir()}
    assert names.isdisjoint({f"{1:020d}.snapshot", f"{99:020d}.snapshot", f"{2:020d}.index", "x.deleted", "leader.tmp"})
    assert {f"{n:020d}.snapshot" for n in (3, 6, 8)} <= names


def test_a_lost_epoch_checkpoint_is_read_from_the_batches(logs, produce):
    produce(logs.partition(leader_epoch=2), 3)
    logs.stop()
    logs.start()
    produce(logs.partition(leader_epoch=4), 3)
    logs.stop()
    logs.path("leader-epoch-checkpoint").unlink()
    logs.start()
    partition = logs.partition(leader_epoch=4)
    assert partition.end_offset_for_epoch(2) == (2, 3)
    assert partition.end_offset_for_epoch(4) == (4, 6)


def half_a_swap(logs, produce, suffix):
    """Leave three segments, and the first two merged with `suffix`, as a crash in the middle of compaction does."""
    partition = logs.partition(segment_bytes=150)
    for _ in range(3):
        produce(partition, value=b"v" * 60)
    logs.stop()
    log_files = sorted(logs.path().glob("*.log"))
    assert len(log_files) == 3
    logs.path(f"{0:020d}.log{suffix}").write_bytes(log_files[0].read_bytes() + log_files[1].read_bytes())
    for name in ("index", "timeindex"):
        logs.path(f"{0:020d}.{name}{suffix}").write_bytes(b"")
    return log_files


def test_a_swap_that_a_crash_cut_short_is_finished(logs, produce):
    log_files = half_a_swap(logs, produce, ".swap")
    both = log_files[0].read_bytes() + log_files[1].read_bytes()
    logs.start()
    partition = logs.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 3
    assert sorted(logs.path().glob("*.log")) == [log_files[0], log_files[2]]
    assert log_files[0].read_bytes() == both
    assert not list(logs.path().glob("*.swap"))


def test_a_compaction_that_was_not_decided_is_dropped(logs, produce):
    log_files = half_a_swap(logs, produce, ".swap")
    logs.path(f"{0:020d}.timeindex.swap").rename(logs.path(f"{0:020d}.timeindex.cleaned"))
    first = log_files[0].read_bytes()
    logs.start()
    assert logs.partition().log_end_offset == 3
    assert sorted(logs.path().glob("*.log")) == log_files
    assert log_files[0].read_bytes() == first
    assert not [path for path in logs.path().iterdir() if path.suffix in (".swap", ".cleaned")]


def test_a_damaged_swap_leaves_everything_as_it_is(logs, produce):
    log_files = half_a_swap(logs, produce, ".swap")
    logs.path(f"{0:020d}.log.swap").write_bytes(b"x" * 100)
    before = [log.read_bytes() for log in log_files]
    logs.start()
    assert logs.partition().offline is not None
    assert [log.read_bytes() for log in log_files] == before


def test_a_log_that_ends_before_its_start_offset_restarts_empty_there(logs, produce):
    produce(logs.partition())
    logs.stop()
    checkpoint = logs.directory / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 9\n")
    logs.start()
    partition = logs.partition()
    assert (partition.log_start_offset, partition.log_end_offset) == (9, 9)
    assert produce(partition).base_offset == 9
    assert partition.read(0, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_log_start_is_kept(logs, produce):
    for _ in range(5):
        produce(logs.partition())
    logs.stop()
    (logs.directory / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    logs.start()
    partition = logs.partition()
    assert partition.log_start_offset == 3
    assert partition.read(2, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.read(3, 100).error is ErrorCode.NONE
    logs.stop()
    assert (logs.directory / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


def test_a_large_batch_is_recovered(logs, produce):
    partition = logs.partition(max_message_bytes=5 << 20)
    produce(partition, value=bytes(range(256)) * 12_000)
    produce(partition)
    assert kill_and_restart(logs).log_end_offset == 2


@pytest.mark.parametrize("stops", ["cleanly", "killed"])
def test_a_duplicate_of_the_first_record_of_a_log_is_known_after_a_start(logs, produce, stops):
    sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert produce(logs.partition(), **sent).base_offset == 0
    logs.stop() if stops == "cleanly" else logs.kill()
    logs.start()
    again = produce(logs.partition(), **sent)
    assert again.duplicate and again.base_offset == 0
