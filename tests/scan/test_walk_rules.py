"""Rules of a partition leader that are easy to get wrong, each on the bytes of a small log."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import DELETE_HORIZON, assemble, read_header
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from ottla.scan import events, states
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.partitions import entering
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import Walk
from tests.spark.views import read_view

T0 = 1_700_000_000_000


def walk(root):
    """Return (rows of ended, rows of anomalies, states at the log's end by producer id, totals)."""
    (log,) = list_partitions(str(root))
    (part,) = cut_partition(0, log, log.size_bytes + 1)
    walked = Walk(part, entering(log), DamageLog("fail"), check_crc=True)
    ended, anomalies = [], []
    for step in walked:
        ended += step.ended.tolist()
        anomalies += step.anomalies.tolist()
    return ended, anomalies, {row[0]: row for row in walked.leaving.rows.tolist()}, walked.totals


def control_batch(kind, producer_id=-1, version=0):
    key = version.to_bytes(2, "big", signed=True) + kind.to_bytes(2, "big", signed=True)
    ids = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
    return build_batch([(key, b"\0\0\0\0\0\1")], timestamp_ms=T0, control=True, **ids)


def with_header(batch, **fields):
    header = read_header(batch)
    return assemble(header._replace(**fields), bytes(batch[61:]))


def empty(batch):
    """Return the batch that the cleaner keeps of a producer's last batch when it removes all of its records."""
    header = read_header(batch)
    return assemble(header._replace(base_timestamp=-1, record_count=0), b"")


def transactional(producer_id=7, sequence=0, records=1, epoch=0):
    ids = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True}
    return build_batch([(b"k", b"v")] * records, timestamp_ms=T0, **ids)


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 7, 300, 32_767, -1, -2, -3, -32_768])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_control_record_of_another_type_ends_nothing_and_changes_no_state(write_log, kind, producer_id):
    log = write_log()
    log.append(transactional())
    log.append(control_batch(kind, producer_id))
    log.append(transactional(sequence=1))
    ended, anomalies, found, totals = walk(write_log.root)
    assert (ended, anomalies) == ([], [])
    assert found[7][states.FIRST_OFFSET] == 0
    assert found[7][states.OPEN_BATCHES] == 2
    assert (totals[events.CONTROL_BATCHES], totals[events.DATA_RECORDS]) == (1, 2)
    kinds = [row["controlType"] for row in read_view(write_log.root, "batches")]
    names = {2: "leader_change", 3: "snapshot_header", 4: "snapshot_footer", 5: "kraft_version", 6: "kraft_voters"}
    assert kinds == [None, names.get(kind, "unknown"), None]


def test_control_key_of_a_later_version_is_read_as_the_first(write_log):
    log = write_log()
    log.append(transactional())
    log.append(control_batch(1, producer_id=7, version=3))
    (row,), _, _, _ = walk(write_log.root)
    assert row[events.ENDED_FIRST_OFFSET] == 0


def test_marker_that_waits_for_its_horizon_has_its_own_time(write_log):
    """The cleaner puts the horizon where the base timestamp was, and the record's delta becomes long and negative."""
    log = write_log()
    log.append(transactional())
    marker = build_batch(
        [(b"\0\0\0\1", b"\0\0\0\0\0\5", (), T0 + 9)],
        timestamp_ms=T0 + 9,
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    horizon = T0 + 86_400_000
    body = bytearray(marker[61:])
    delta = (T0 + 9 - horizon) * -2 - 1  # zig-zag
    encoded = bytearray()
    while delta > 0x7F:
        encoded.append(delta & 0x7F | 0x80)
        delta >>= 7
    encoded.append(delta)
    body[2:3] = encoded
    body[0] = 2 * (len(body) - 1)
    header = read_header(marker)
    log.append(
        assemble(header._replace(base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON), bytes(body))
    )
    (row,), _, found, _ = walk(write_log.root)
    assert (row[events.ENDED_END_MS], row[events.ENDED_COORDINATOR_EPOCH]) == (T0 + 9, 5)
    assert found[7][states.LAST_TIMESTAMP] == T0 + 9


def test_empty_batch_that_the_cleaner_kept_is_a_batch_of_its_transaction(write_log):
    """`ProducerAppendInfo` opens a transaction for it; its marker is kept as long as the batch is."""
    log = write_log()
    log.append(empty(transactional(records=5)))
    log.append(build_marker(7, 0, 3, False, T0 + 1))
    (row,), anomalies, found, _ = walk(write_log.root)
    assert anomalies == []
    told = row[events.ENDED_FIRST_OFFSET], row[events.ENDED_LAST_OFFSET], row[events.ENDED_RECORDS]
    assert told == (0, 4, 0)
    assert row[events.ENDED_START_MS] == T0
    assert found[7][states.LAST_SEQUENCE] == 4


def test_empty_control_batch_ends_nothing(write_log):
    """Its marker was removed with its whole transaction; an open transaction is a later one."""
    log = write_log()
    log.append(transactional())
    log.append(empty(build_marker(7, 0, 3, True, T0)))
    log.append(transactional(sequence=1))
    ended, anomalies, found, _ = walk(write_log.root)
    assert (ended, anomalies) == ([], [])
    assert (found[7][states.FIRST_OFFSET], found[7][states.COORDINATOR_EPOCH]) == (0, -1)


def test_a_marker_of_an_older_epoch_ends_the_transaction_as_an_anomaly(write_log):
    """A replica appends its leader's batches: the entry takes the older epoch and loses its batch."""
    log = write_log()
    log.append(transactional(epoch=3))
    log.append(build_marker(7, 2, 0, True, T0))
    (row,), anomalies, found, _ = walk(write_log.root)
    assert (row[events.ENDED_FIRST_OFFSET], row[events.ENDED_EPOCH], row[events.ENDED_MARKER_EPOCH]) == (0, 3, 2)
    assert [one[events.ANOMALY_KIND] for one in anomalies] == [events.ZOMBIE_MARKER]
    assert found[7][states.EPOCH : states.OFFSET_DELTA] == [2, 0, -1, -1]


def test_epoch_of_version_two_is_shared_by_a_marker_and_the_next_transaction(write_log):
    log = write_log()
    for epoch in range(3):
        log.append(transactional(epoch=epoch, records=2))
        log.append(build_marker(7, epoch + 1, 0, epoch != 1, T0))
    log.append(build_marker(7, 3, 0, False, T0))  # a retry: nothing is open
    ended, anomalies, found, totals = walk(write_log.root)
    assert anomalies == []
    told = [(row[events.ENDED_FIRST_OFFSET], row[events.ENDED_EPOCH], row[events.ENDED_MARKER_EPOCH]) for row in ended]
    assert told == [(0, 0, 1), (3, 1, 2), (6, 2, 3), (-1, 3, 3)]
    assert (totals[events.COMMITTED], totals[events.ABORTED]) == (2, 1)
    assert found[7][states.EPOCH : states.OFFSET_DELTA] == [3, 0, -1, -1]


def test_sequences_wrap_inside_a_batch_and_the_state_is_that_of_a_broker(write_log):
    log = write_log()
    log.append(transactional(sequence=2**31 - 3, records=5))
    log.append(transactional(sequence=2, records=1))
    _, anomalies, found, _ = walk(write_log.root)
    assert anomalies == []
    assert found[7][states.LAST_SEQUENCE] == 2
    rows = read_view(write_log.root, "batches", ("baseSequence", "lastSequence"))
    assert [tuple(row.values()) for row in rows] == [(2**31 - 3, 1), (2, 2)]


def test_log_start_inside_a_transaction_holds_the_stable_offset_until_its_marker(write_log):
    log = write_log()
    for sequence in range(3):
        log.append(transactional(sequence=sequence))
    log.append(build_batch([(b"k", b"v")], timestamp_ms=T0))
    (write_log.root / "log-start-offset-checkpoint").write_text("0\n1\nledger 0 2\n")
    (row,) = read_view(write_log.root, "partitions", ("logStart", "logEnd", "lastStableOffset", "openRecords"))
    assert tuple(row.values()) == (2, 4, 2, 1)
    log.append(build_marker(7, 0, 0, False, T0))
    (row,) = read_view(write_log.root, "partitions", ("logStart", "lastStableOffset", "abortedRecords"))
    assert tuple(row.values()) == (2, 5, 1)
    (row,) = read_view(write_log.root, "transactions", ("firstOffset", "records", "batches", "lastStableOffset"))
    assert (row["firstOffset"], row["records"], row["lastStableOffset"]) == (0, 1, 5)


def test_stable_offset_of_an_abort_is_that_of_the_earliest_transaction_of_others(write_log):
    """The snapshot has one of them, after one that its marker has ended."""
    log = write_log(base_offset=100)
    entries = [ProducerEntry(pid, 0, 0, first, 0, T0, -1, first) for pid, first in ((1, 40), (2, 60), (3, 50))]
    (log.folder / f"{100:020d}.snapshot").write_bytes(encode_snapshot(entries))
    log.append(transactional(producer_id=4))
    for producer_id in (1, 4, 3, 2):
        log.append(build_marker(producer_id, 0, 0, False, T0))
    ended, _, _, _ = walk(write_log.root)
    told = [(row[events.ENDED_FIRST_OFFSET], row[events.ENDED_LAST_STABLE_OFFSET]) for row in ended]
    assert told == [(40, 50), (100, 50), (50, 60), (60, 105)]
