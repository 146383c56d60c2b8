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


def log(broker):
    return broker.path(LOG)


def kill_and_restart(broker, **settings):
    broker.kill()
    broker.start()
    return broker.partition(**settings)


def sizes(broker):
    return [batch.size_bytes for batch in scan_partition(broker.path()).batches]


def test_everything_survives_a_kill(broker, produce, transactor):
    partition = broker.partition(leader_epoch=1)
    produce(partition, 5)
    producer = transactor(partition, 1)
    producer.send(2)
    partition = kill_and_restart(broker, leader_epoch=1)
    assert not broker.manager.clean_start
    assert partition.log_end_offset == 7
    assert partition.last_stable_offset == 5
    assert partition.has_ongoing_transaction(1, 0)
    producer.partition = partition
    assert producer.send().base_offset == 7


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 62, 75])
def test_a_torn_batch_is_cut_off(broker, produce, caplog, cut):
    partition = broker.partition()
    for _ in range(3):
        produce(partition)
    size = sizes(broker)[0]
    broker.kill()
    data = log(broker).read_bytes()
    assert cut < size
    log(broker).write_bytes(data[: 2 * size + cut])
    broker.start()
    partition = broker.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 2
    assert log(broker).stat().st_size == 2 * size
    assert f"{cut} bytes dropped" in caplog.text
    assert produce(partition).base_offset == 2


def test_a_bad_last_batch_is_a_torn_write(broker, produce):
    partition = broker.partition()
    for _ in range(3):
        produce(partition)
    broker.kill()
    data = bytearray(log(broker).read_bytes())
    data[-3] ^= 0xFF
    log(broker).write_bytes(data)
    broker.start()
    assert broker.partition().log_end_offset == 2


@pytest.mark.parametrize("at", ["size", "magic", "crc", "payload"])
def test_a_bad_batch_with_good_ones_behind_it_is_damage(broker, produce, caplog, at):
    partition = broker.partition()
    for _ in range(3):
        produce(partition)
    size = sizes(broker)[0]
    broker.kill()
    data = bytearray(log(broker).read_bytes())
    data[size + {"size": 9, "magic": 16, "crc": 18, "payload": 70}[at]] ^= 0x55
    log(broker).write_bytes(data)
    broker.start()
    partition = broker.partition()
    assert partition.offline is not None
    for part in (str(log(broker)), f"position {size}", "--truncate-damaged t-0"):
        assert part in caplog.text
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.read(0, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.bytes_available(0, FetchIsolation.LOG_END, 1) == 0
    broker.stop()
    assert log(broker).read_bytes() == data
    # A restart does not repair it, not even after a stop that was clean for the other logs.
    broker.start()
    assert broker.partition().offline is not None
    # Unless the operator gives up what follows.
    broker.kill()
    broker.start(truncate_damaged=frozenset({"t-0"}))
    partition = broker.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 1
    assert "2" in caplog.records[-1].getMessage() and f"{2 * size} bytes dropped" in caplog.text


@pytest.mark.parametrize(("byte", "position"), [(4, 2), (7, 1), (2, 1)], ids=["higher", "lower", "too high"])
def test_an_offset_that_rotted_is_damage_although_no_crc_covers_it(broker, produce, caplog, byte, position):
    partition = broker.partition()
    for _ in range(3):
        produce(partition)
    size = sizes(broker)[0]
    broker.kill()
    data = bytearray(log(broker).read_bytes())
    data[size + byte] ^= 1
    log(broker).write_bytes(data)
    broker.start()
    assert broker.partition().offline is not None
    assert f"position {position * size}" in caplog.text
    assert log(broker).read_bytes() == data


def test_other_partitions_stay_online_beside_a_damaged_one(broker, produce):
    for topic in ("t", "other"):
        for _ in range(3):
            produce(broker.partition(topic))
    broker.kill()
    data = bytearray(log(broker).read_bytes())
    data[80] ^= 1
    log(broker).write_bytes(data)
    broker.start()
    assert broker.partition().offline is not None
    assert produce(broker.partition("other")).base_offset == 3


def test_a_bad_batch_below_the_recovery_point_is_damage(broker, produce, caplog):
    partition = broker.partition()
    for _ in range(2):
        produce(partition)
    broker.stop()
    data = log(broker).read_bytes()
    broker.start()
    broker.kill()
    log(broker).write_bytes(data[:-5])
    broker.start()
    assert broker.partition().offline is not None
    assert "below the recovery point 2" in caplog.text


def test_pages_that_never_reached_the_device_are_cut_off(broker, produce, caplog):
    partition = broker.partition()
    for _ in range(6):
        produce(partition, value=b"v" * 3000)
    size = sizes(broker)[0]
    broker.kill()
    data = bytearray(log(broker).read_bytes())
    data[8192:12288] = bytes(4096)
    log(broker).write_bytes(data)
    broker.start()
    partition = broker.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 8192 // size
    assert "power loss" in caplog.text


def test_a_file_that_grew_by_zeros_is_cut_off(broker, produce):
    partition = broker.partition()
    produce(partition)
    size = sizes(broker)[0]
    broker.kill()
    log(broker).write_bytes(log(broker).read_bytes() + bytes(10_000))
    broker.start()
    assert broker.partition().log_end_offset == 1
    assert log(broker).stat().st_size == size


def test_a_torn_segment_with_segments_behind_it_is_damage(broker, produce):
    partition = broker.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    broker.kill()
    log(broker).write_bytes(log(broker).read_bytes()[:-1])
    broker.start()
    assert broker.partition(segment_bytes=300).offline is not None
    broker.kill()
    broker.start(truncate_damaged=frozenset({"t-0"}))
    partition = broker.partition(segment_bytes=300)
    assert partition.log_end_offset == 2
    assert [path.name for path in sorted(broker.path().glob("*.log"))] == [LOG]
    assert produce(partition).base_offset == 2


def test_a_segment_that_lost_its_last_batches_is_damage(broker, produce, caplog):
    partition = broker.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    broker.kill()
    log(broker).write_bytes(log(broker).read_bytes()[: sizes(broker)[0]])
    broker.start()
    assert broker.partition(segment_bytes=300).offline is not None
    assert "offsets 1 to 2 are missing" in caplog.text
    broker.kill()
    broker.start(truncate_damaged=frozenset({"t-0"}))
    assert produce(broker.partition(segment_bytes=300)).base_offset == 1


def test_lost_index_files_of_old_segments_are_made_again(broker, produce):
    settings = {"segment_bytes": 2000, "index_interval_bytes": 200}
    partition = broker.partition(**settings)
    for _ in range(60):
        produce(partition)
    broker.stop()
    before = {path.name: path.read_bytes() for path in broker.path().glob("*index")}
    for path in broker.path().glob("*index"):
        path.unlink()
    broker.start()
    partition = broker.partition(**settings)
    position = 0
    while position < 60:
        for _, header in iter_batches(partition.read(position, 400).records):
            position = header.next_offset
    broker.stop()
    assert {path.name: path.read_bytes() for path in broker.path().glob("*index")} == before


@pytest.mark.parametrize("end", ["kill", "stop", "lost-index"])
def test_the_time_of_a_batch_that_compaction_emptied_is_not_found_again(broker, transactor, end):
    partition = broker.partition(segment_bytes=300)
    producer = transactor(partition, 7)
    for timestamp_ms in (1000, 5000, 2000, 1500):
        producer.send(transactional=False, timestamp_ms=timestamp_ms)
    assert [segment.base_offset for segment in partition.log.segments] == [0, 3]
    broker.kill()
    # The second batch becomes what compaction leaves of the last one of a producer.
    data = log(broker).read_bytes()
    _, (second, header), (third, _) = iter_batches(data)
    assert header.max_timestamp == 5000
    log(broker).write_bytes(data[:second] + empty_batch(header) + data[third:])
    if end != "kill":
        broker.start()
        assert broker.partition(segment_bytes=300).offline is None
        broker.stop()
    if end == "lost-index":
        for path in broker.path().glob("*index"):
            path.unlink()
    broker.start()
    partition = broker.partition(segment_bytes=300)
    found = to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END))
    assert (found.timestamp, found.offset) == (2000, 2)
    broker.stop()
    assert list(iter_time_entries(broker.path(f"{0:020d}.timeindex").read_bytes())) == [(2000, 2)]


def test_an_index_that_cannot_be_is_rebuilt(broker, produce):
    partition = broker.partition(index_interval_bytes=100)
    for _ in range(30):
        produce(partition)
    broker.stop()
    before = broker.path(f"{0:020d}.index").read_bytes()
    broker.path(f"{0:020d}.index").write_bytes(before[:-8] + b"\x00\x00\x00\x63\x00\x99\x99\x99")
    broker.start()
    partition = broker.partition(index_interval_bytes=100)
    assert partition.log_end_offset == 30
    broker.stop()
    assert broker.path(f"{0:020d}.index").read_bytes() == before


def test_preallocated_index_files_are_read_up_to_their_zeros(broker, produce):
    settings = {"segment_bytes": 3000, "index_interval_bytes": 100}
    partition = broker.partition(**settings)
    for _ in range(60):
        produce(partition)
    broker.stop()
    for path in [*broker.path().glob("*.index"), *broker.path().glob("*.timeindex")]:
        path.write_bytes(path.read_bytes() + bytes(1200))
    broker.start()
    partition = broker.partition(**settings)
    assert partition.log_end_offset == 60
    for offset in range(60):
        assert next(iter_batches(partition.read(offset, 1).records))[1].base_offset == offset
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END)).offset == 0


def test_a_corrupt_snapshot_is_passed_over(broker, transactor):
    settings = {"segment_bytes": 300}
    producer = transactor(broker.partition(**settings), 1)
    for _ in range(8):
        producer.send(transactional=False)
    broker.stop()
    newest = sorted(broker.path().glob("*.snapshot"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    broker.start()
    producer.partition = broker.partition(**settings)
    assert producer.send(transactional=False).base_offset == 8
    producer.sequence -= 1
    assert producer.send(transactional=False).duplicate


def test_stray_files_go(broker, produce):
    settings = {"segment_bytes": 300}
    for _ in range(8):
        produce(broker.partition(**settings))
    broker.stop()
    for name in (f"{1:020d}.snapshot", f"{99:020d}.snapshot", f"{2:020d}.index", "x.deleted", "leader.tmp"):
        broker.path(name).write_bytes(b"")
    broker.start()
    assert broker.partition(**settings).log_end_offset == 8
    names = {path.name for path in broker.path().iterdir()}
    assert names.isdisjoint({f"{1:020d}.snapshot", f"{99:020d}.snapshot", f"{2:020d}.index", "x.deleted", "leader.tmp"})
    assert {f"{n:020d}.snapshot" for n in (3, 6, 8)} <= names


def test_a_lost_epoch_checkpoint_is_read_from_the_batches(broker, produce):
    produce(broker.partition(leader_epoch=2), 3)
    broker.stop()
    broker.start()
    produce(broker.partition(leader_epoch=4), 3)
    broker.stop()
    broker.path("leader-epoch-checkpoint").unlink()
    broker.start()
    partition = broker.partition(leader_epoch=4)
    assert partition.end_offset_for_epoch(2) == (2, 3)
    assert partition.end_offset_for_epoch(4) == (4, 6)


def half_a_swap(broker, produce, suffix):
    """Leave three segments, and the first two merged with `suffix`, as a crash in the middle of compaction does."""
    partition = broker.partition(segment_bytes=150)
    for _ in range(3):
        produce(partition, value=b"v" * 60)
    broker.stop()
    logs = sorted(broker.path().glob("*.log"))
    assert len(logs) == 3
    broker.path(f"{0:020d}.log{suffix}").write_bytes(logs[0].read_bytes() + logs[1].read_bytes())
    for name in ("index", "timeindex"):
        broker.path(f"{0:020d}.{name}{suffix}").write_bytes(b"")
    return logs


def test_a_swap_that_a_crash_cut_short_is_finished(broker, produce):
    logs = half_a_swap(broker, produce, ".swap")
    both = logs[0].read_bytes() + logs[1].read_bytes()
    broker.start()
    partition = broker.partition()
    assert partition.offline is None
    assert partition.log_end_offset == 3
    assert sorted(broker.path().glob("*.log")) == [logs[0], logs[2]]
    assert logs[0].read_bytes() == both
    assert not list(broker.path().glob("*.swap"))


def test_a_compaction_that_was_not_decided_is_dropped(broker, produce):
    logs = half_a_swap(broker, produce, ".swap")
    broker.path(f"{0:020d}.timeindex.swap").rename(broker.path(f"{0:020d}.timeindex.cleaned"))
    first = logs[0].read_bytes()
    broker.start()
    assert broker.partition().log_end_offset == 3
    assert sorted(broker.path().glob("*.log")) == logs
    assert logs[0].read_bytes() == first
    assert not [path for path in broker.path().iterdir() if path.suffix in (".swap", ".cleaned")]


def test_a_damaged_swap_leaves_everything_as_it_is(broker, produce):
    logs = half_a_swap(broker, produce, ".swap")
    broker.path(f"{0:020d}.log.swap").write_bytes(b"x" * 100)
    before = [log.read_bytes() for log in logs]
    broker.start()
    assert broker.partition().offline is not None
    assert [log.read_bytes() for log in logs] == before


def test_a_log_that_ends_before_its_start_begins_anew(broker, produce):
    produce(broker.partition())
    broker.stop()
    checkpoint = broker.directory / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 9\n")
    broker.start()
    partition = broker.partition()
    assert (partition.log_start_offset, partition.log_end_offset) == (9, 9)
    assert produce(partition).base_offset == 9
    assert partition.read(0, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_log_start_is_kept(broker, produce):
    for _ in range(5):
        produce(broker.partition())
    broker.stop()
    (broker.directory / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    broker.start()
    partition = broker.partition()
    assert partition.log_start_offset == 3
    assert partition.read(2, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.read(3, 100).error is ErrorCode.NONE
    broker.stop()
    assert (broker.directory / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


def test_a_large_batch_is_recovered(broker, produce):
    partition = broker.partition(max_message_bytes=5 << 20)
    produce(partition, value=bytes(range(256)) * 12_000)
    produce(partition)
    assert kill_and_restart(broker).log_end_offset == 2


@pytest.mark.parametrize("stops", ["cleanly", "killed"])
def test_a_duplicate_of_the_first_record_of_a_log_is_known_after_a_start(broker, produce, stops):
    sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert produce(broker.partition(), **sent).base_offset == 0
    broker.stop() if stops == "cleanly" else broker.kill()
    broker.start()
    again = produce(broker.partition(), **sent)
    assert again.duplicate and again.base_offset == 0
