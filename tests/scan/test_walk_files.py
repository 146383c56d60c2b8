"""The walk over segment files: a real Kafka's directories, random logs, and points where it may stop."""

import random
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.indexes import iter_aborted_txns
from ottla.protocol.snapshot import decode_snapshot
from ottla.scan import events, states
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.partitions import entering
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import Walk
from ottla.testkit.scanner import scan_partition


def walk_whole(log, *, limit=None, start=None):
    """Return (ended, anomalies, gaps, the finished walk) of a partition in one range."""
    found, last = ([], [], []), None
    for part in cut_partition(0, log, 1 << 40):
        last = Walk(part, entering(log) if start is None else start, DamageLog("fail"), check_crc=True, limit=limit)
        for step in last:
            for out, rows in zip(found, (step.ended, step.anomalies, step.gaps), strict=True):
                out += rows.tolist()
    return *found, last


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_real_kafka_leaves_no_anomalies_and_ends_what_the_scanner_ends(reference, name):
    root = reference(name)
    ended_in_all = 0
    for log in list_partitions(str(root)):
        ended, anomalies, gaps, _ = walk_whole(log)
        scanned = scan_partition(root / log.name)
        assert anomalies == [], log.name
        assert bool(gaps) == (log.topic == "compacted"), log.name
        closed = [row for row in ended if row[events.ENDED_FIRST_OFFSET] >= 0]
        assert [
            (
                row[events.ENDED_PRODUCER_ID],
                row[events.ENDED_FIRST_OFFSET],
                row[events.ENDED_MARKER_OFFSET],
                row[events.ENDED_MARKER_EPOCH],
                row[events.ENDED_LAST_STABLE_OFFSET],
                ("aborted", "committed")[row[events.ENDED_FATE]],
            )
            for row in closed
        ] == [
            (one.producer_id, one.first_offset, one.marker_offset, one.marker_epoch, one.last_stable_offset, one.fate)
            for one in sorted(
                (one for one in scanned.transactions if one.marker_offset is not None), key=lambda it: it.marker_offset
            )
        ], log.name
        markers = [(one, Path(one.path).stem) for one in scanned.batches if one.marker]
        assert [
            (row[events.ENDED_POSITION], row[events.ENDED_SEGMENT], row[events.ENDED_COORDINATOR_EPOCH])
            for row in ended
        ] == [(one.position, int(base), one.coordinator_epoch) for one, base in markers]
        ended_in_all += len(closed)
    assert ended_in_all > 1_400


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_aborted_transactions_are_those_of_kafkas_indexes_with_their_stable_offsets(reference, name):
    for log in list_partitions(str(reference(name))):
        ended, _, _, _ = walk_whole(log)
        for segment in log.segments:
            aborted = [
                (
                    row[events.ENDED_PRODUCER_ID],
                    row[events.ENDED_FIRST_OFFSET],
                    row[events.ENDED_MARKER_OFFSET],
                    row[events.ENDED_LAST_STABLE_OFFSET],
                )
                for row in ended
                if row[events.ENDED_FATE] == 0
                and row[events.ENDED_FIRST_OFFSET] >= 0
                and row[events.ENDED_SEGMENT] == segment.base_offset
            ]
            path = Path(segment.path).with_suffix(".txnindex")
            assert aborted == ([*map(tuple, iter_aborted_txns(path.read_bytes()))] if path.exists() else []), segment


def test_states_at_every_snapshot_are_what_a_real_kafka_wrote_there(reference):
    snapshots = entries = 0
    for log in list_partitions(str(reference("clean"))):
        for path in map(Path, log.snapshots):
            _, _, _, walked = walk_whole(log, limit=int(path.stem))
            expected = decode_snapshot(path.read_bytes())
            rows = walked.leaving.rows.tolist() if walked else []
            found = {row[states.PRODUCER_ID]: row for row in rows}
            for entry in expected:
                row = found[entry.producer_id]
                told = entry.producer_epoch, entry.coordinator_epoch, entry.last_sequence, entry.last_offset
                assert tuple(row[states.EPOCH : states.OFFSET_DELTA]) == told, path
                assert row[states.OFFSET_DELTA : states.FIRST_OFFSET] == [entry.offset_delta, entry.timestamp], path
                assert row[states.FIRST_OFFSET] == entry.current_txn_first_offset, path
            snapshots += 1
            entries += len(expected)
    assert snapshots >= 10
    assert entries >= 30


@pytest.mark.parametrize("seed", range(10))
def test_limit_stops_the_walk_at_every_offset(write_log, seed):
    chance, log = random.Random(seed), write_log()
    for _ in range(30):
        if chance.random() < 0.1:
            log.roll()
        if chance.random() < 0.3:
            log.marker(chance.randrange(3), commit=chance.random() < 0.5)
        else:
            log.data(chance.randrange(1, 4), producer_id=chance.randrange(3))
    (listed,) = list_partitions(str(write_log.root))
    whole = walk_whole(listed)[0]
    batches = scan_partition(log.folder).batches
    for limit in range(log.next_offset + 1):
        ended, _, _, walked = walk_whole(listed, limit=limit)
        assert ended == [row for row in whole if row[events.ENDED_MARKER_OFFSET] < limit]
        below = [batch for batch in batches if batch.base_offset < limit]
        assert walked.leaving.next_offset == (below[-1].last_offset + 1 if below else 0)
        assert walked.totals[events.BATCHES] == len(below)


def test_transaction_that_began_below_the_log_is_known_from_the_snapshot_at_its_start(write_log):
    from ottla.protocol.snapshot import ProducerEntry, encode_snapshot

    log = write_log(base_offset=100)
    log.data(2, producer_id=7, base_sequence=40, timestamp_ms=5_000)
    log.marker(8, commit=False)
    entries = [ProducerEntry(7, 0, 39, 90, 0, 1, -1, 60), ProducerEntry(8, 0, 3, 80, 0, 1, -1, 70)]
    (log.folder / f"{100:020d}.snapshot").write_bytes(encode_snapshot(entries))
    (listed,) = list_partitions(str(write_log.root))
    ended, anomalies, gaps, walked = walk_whole(listed)
    assert (anomalies, gaps) == ([], [])
    (row,) = ended
    assert row[: events.ENDED_FATE + 1] == [8, 0, 70, -1, 102, 0]
    assert (row[events.ENDED_LAST_STABLE_OFFSET], row[events.ENDED_BATCHES], row[events.ENDED_START_MS]) == (60, 0, -1)
    (opened,) = walked.leaving.open_rows.tolist()
    assert (opened[states.FIRST_OFFSET], opened[states.OPEN_RECORDS], opened[states.OPEN_START_MS]) == (60, 2, 5_000)
