"""Damage that a check of single batches does not find."""

import pytest

from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.testkit.scanner import scan_partition

LOG = f"{0:020d}.log"


@pytest.fixture
def three_batches(logs, produce):
    """Return the batches of a log that was stopped cleanly, then killed. Its recovery point is 3."""
    for _ in range(3):
        produce(logs.partition())
    logs.stop()
    logs.start()
    logs.kill()
    return scan_partition(logs.path()).batches


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_whole_batches_that_are_missing_below_the_recovery_point_are_damage(logs, produce, caplog, three_batches, kept):
    log = logs.path(LOG)
    log.write_bytes(log.read_bytes()[: sum(batch.size_bytes for batch in three_batches[:kept])])
    logs.start()
    assert logs.partition().offline is not None
    assert f"ends at {kept}, below the recovery point 3" in caplog.text
    assert produce(logs.partition()).error is ErrorCode.KAFKA_STORAGE_ERROR
    logs.kill()
    logs.start(truncate_damaged=frozenset({"t-0"}))
    assert produce(logs.partition()).base_offset == kept


def test_the_last_offset_of_a_log_that_rotted_is_damage(logs, produce, caplog, three_batches):
    (logs.directory / "recovery-point-offset-checkpoint").unlink()
    log = logs.path(LOG)
    data = bytearray(log.read_bytes())
    data[three_batches[2].position + 6] ^= 1
    log.write_bytes(data)
    logs.start()
    assert logs.partition().offline is not None
    assert "256 offsets are missing before the last batch" in caplog.text
    logs.kill()
    # Compaction leaves such gaps.
    logs.start()
    assert logs.partition(cleanup_policy="compact,delete").log_end_offset == 259


def test_an_offset_that_reaches_into_the_next_segment_is_damage(logs, produce):
    settings = {"segment_bytes": 300}
    for _ in range(7):
        produce(logs.partition(**settings))
    logs.kill()
    log = logs.path(LOG)
    data = bytearray(log.read_bytes())
    data[scan_partition(logs.path()).batches[2].position + 7] ^= 4
    log.write_bytes(data)
    logs.start()
    assert logs.partition(**settings).offline is not None


def test_a_topic_made_again_has_not_the_recovery_point_of_the_deleted_one(logs, produce):
    """After a crash soon afterwards, the checkpoint on disk is that of the deleted topic."""
    for _ in range(5):
        produce(logs.partition())
    logs.stop()
    logs.start()
    logs.partition()
    logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))
    produce(logs.partition())
    logs.kill()
    logs.start()
    assert logs.partition().offline is None
    assert logs.partition().log_end_offset == 1


def test_a_failed_background_sync_takes_the_directory_offline_at_once(logs, produce):
    """Not when the next checkpoint looks at it: until then what is appended would be acknowledged."""
    settings = {"segment_bytes": 300}
    for _ in range(7):
        produce(logs.partition(**settings))
    logs.disk.held = []
    logs.manager.checkpoint()
    logs.disk.fail_sync = True
    logs.disk.held[0].end()
    assert logs.manager.offline is not None
    assert produce(logs.partition(**settings)).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_cannot_be_scanned_is_offline(logs, produce, caplog):
    produce(logs.partition())
    partition = logs.partition()
    log = logs.path(LOG)
    log.write_bytes(log.read_bytes()[:-5])
    with pytest.raises(ProtocolError):
        list(partition.scan(0))
    assert partition.offline is not None
    assert "--truncate-damaged t-0" in caplog.text
