"""Damage that a check of single batches does not find."""

import pytest

from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.testkit.scanner import scan_partition

LOG = f"{0:020d}.log"


@pytest.fixture
def three_batches(broker, produce):
    """Return the batches of a log that was stopped cleanly, then killed. Its recovery point is 3."""
    for _ in range(3):
        produce(broker.partition())
    broker.stop()
    broker.start()
    broker.kill()
    return scan_partition(broker.path()).batches


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_whole_batches_that_are_missing_below_the_recovery_point_are_damage(
    broker, produce, caplog, three_batches, kept
):
    log = broker.path(LOG)
    log.write_bytes(log.read_bytes()[: sum(batch.size_bytes for batch in three_batches[:kept])])
    broker.start()
    assert broker.partition().offline is not None
    assert f"ends at {kept}, below the recovery point 3" in caplog.text
    assert produce(broker.partition()).error is ErrorCode.KAFKA_STORAGE_ERROR
    broker.kill()
    broker.start(truncate_damaged=frozenset({"t-0"}))
    assert produce(broker.partition()).base_offset == kept


def test_the_last_offset_of_a_log_that_rotted_is_damage(broker, produce, caplog, three_batches):
    (broker.directory / "recovery-point-offset-checkpoint").unlink()
    log = broker.path(LOG)
    data = bytearray(log.read_bytes())
    data[three_batches[2].position + 6] ^= 1
    log.write_bytes(data)
    broker.start()
    assert broker.partition().offline is not None
    assert "256 offsets are missing before the last batch" in caplog.text
    broker.kill()
    # Compaction leaves such gaps.
    broker.start()
    assert broker.partition(cleanup_compact=True).log_end_offset == 259


def test_an_offset_that_reaches_into_the_next_segment_is_damage(broker, produce):
    settings = {"segment_bytes": 300}
    for _ in range(7):
        produce(broker.partition(**settings))
    broker.kill()
    log = broker.path(LOG)
    data = bytearray(log.read_bytes())
    data[scan_partition(broker.path()).batches[2].position + 7] ^= 4
    log.write_bytes(data)
    broker.start()
    assert broker.partition(**settings).offline is not None


def test_a_topic_made_again_has_not_the_recovery_point_of_the_deleted_one(broker, produce):
    """After a crash soon afterwards, the checkpoint on disk is that of the deleted topic."""
    for _ in range(5):
        produce(broker.partition())
    broker.stop()
    broker.start()
    broker.partition()
    broker.manager.delete_later(broker.manager.rename_for_deletion("t", 0))
    produce(broker.partition())
    broker.kill()
    broker.start()
    assert broker.partition().offline is None
    assert broker.partition().log_end_offset == 1


def test_a_failed_background_sync_takes_the_directory_offline_at_once(broker, produce):
    """Not when the next checkpoint looks at it: until then what is appended would be acknowledged."""
    settings = {"segment_bytes": 300}
    for _ in range(7):
        produce(broker.partition(**settings))
    broker.disk.held = []
    broker.manager.checkpoint()
    broker.disk.fail_sync = True
    broker.disk.held[0].end()
    assert broker.manager.offline is not None
    assert produce(broker.partition(**settings)).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_cannot_be_scanned_is_offline(broker, produce, caplog):
    produce(broker.partition())
    partition = broker.partition()
    log = broker.path(LOG)
    log.write_bytes(log.read_bytes()[:-5])
    with pytest.raises(ProtocolError):
        list(partition.scan(0))
    assert partition.offline is not None
    assert "--truncate-damaged t-0" in caplog.text
