"""Random transactional logs: fates and records must be those of the slow scanner, which shares no code with us."""

import random

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import schemas
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.partitions import merge_partition
from ottla.scan.ranges import cut_partition
from ottla.scan.records import RecordScan, visibility, visible_in
from ottla.scan.walk import range_fates
from ottla.testkit.scanner import scan_partition
from tests.kernel_kinds import PLAIN
from tests.scan.entering import entering_ranges

COLUMNS = [(name, True) for name in schemas.VIEWS[schemas.RECORDS]]


def random_records(chance):
    def content(largest):
        return chance.choice([None, b"", chance.randbytes(chance.randrange(1, largest))])

    return [
        (
            content(20),
            content(chance.choice([30, 200, 3_000])),
            [(f"h{chance.randrange(300)}", content(10)) for _ in range(chance.choice([0, 0, 0, 1, 3, 70]))],
            1_700_000_000_000 + chance.randrange(-(10**6), 10**6),
        )
        for _ in range(chance.choice([1, 2, 5, 40]))
    ]


def write_random_log(log, chance, steps):
    """Producers that write, commit, abort, bump their epoch; compacted batches, append time, every codec, rolls."""
    from ottla.protocol.batch import build_batch
    from ottla.protocol.batch_header import set_append_time

    epochs = dict.fromkeys(range(chance.randrange(1, 6)), 0)
    for _ in range(steps):
        producer = chance.choice(list(epochs))
        dice = chance.random()
        if dice < 0.25:
            epochs[producer] += chance.random() < 0.2
            log.marker(producer, commit=chance.random() < 0.6, epoch=epochs[producer])
            continue
        if dice < 0.3:
            log.roll()
        transactional = chance.random() < 0.8
        records = random_records(chance)
        shape = {}
        if chance.random() < 0.2:
            deltas = sorted(chance.sample(range(3 * len(records)), len(records)))
            shape = {"offset_deltas": deltas, "last_offset_delta": deltas[-1] + chance.randrange(3)}
        batch = build_batch(
            records,
            producer_id=producer if transactional else chance.choice([-1, producer + 100]),
            producer_epoch=epochs[producer] if transactional else 0,
            base_sequence=chance.choice([0, 17, 2**31 - 3]),
            transactional=transactional,
            compression=chance.choice([0, 0, 1, 2, 3, 4]),
            **shape,
        )
        if chance.random() < 0.1:
            set_append_time(batch, 1_700_000_123_456)
        log.append(batch)


def fates_of(log, ranges):
    starts = entering_ranges(log, ranges, on_damage="fail")
    scanned = [
        range_fates(part, start, on_damage="fail", check_crc=True) for part, start in zip(ranges, starts, strict=True)
    ]
    return merge_partition(log, scanned)


def rows_of(ranges, log, fates, isolation):
    visible = visibility(fates, committed_only=isolation == "read_committed")
    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, COLUMNS), DamageLog("fail"))
    for part in ranges:
        for batch in scan.read(part, visible_in(visible, part, log)):
            batch.validate(full=True)
            yield from batch.to_pylist()


def plain_row(row):
    return (
        row["offset"],
        round(row["timestamp"].timestamp() * 1000),
        row["key"],
        row["value"],
        [(pair["key"], pair["value"]) for pair in row["headers"] or []],
        row["producerId"],
        row["producerEpoch"],
        row["sequence"],
    )


def expected_rows(scanned, isolation):
    return [
        (
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers,
            record.producer_id,
            record.producer_epoch,
            record.sequence,
        )
        for record in scanned.records(isolation)
    ]


@pytest.mark.parametrize("seed", range(25))
def test_random_log_is_read_as_the_scanner_reads_it(write_log, kind_of_kernels, seed):
    chance = random.Random(seed)
    writer = write_log()
    write_random_log(writer, chance, steps=chance.choice([5, 40] if kind_of_kernels == PLAIN else [5, 40, 200]))
    scanned = scan_partition(writer.folder)
    (log,) = list_partitions(str(write_log.root))
    ranges = cut_partition(0, log, chance.choice([1, 5_000, 1 << 40]))
    fates = fates_of(log, ranges)

    assert fates.log_end == scanned.log_end_offset
    assert fates.last_stable_offset == scanned.last_stable_offset
    assert sorted(map(tuple, fates.aborted_ranges.tolist())) == sorted(entry[:3] for entry in scanned.aborted_index)
    by_fate = {fate: [one for one in scanned.transactions if one.fate == fate] for fate in ("committed", "aborted")}
    assert fates.committed.transactions == len(by_fate["committed"])
    assert fates.aborted.transactions == len(by_fate["aborted"])
    assert [one.first_offset for one in fates.open_transactions] == sorted(
        one.first_offset for one in scanned.transactions if one.fate == "open"
    )
    for isolation in ("read_uncommitted", "read_committed"):
        rows = [plain_row(row) for row in rows_of(ranges, log, fates, isolation)]
        assert rows == expected_rows(scanned, isolation), isolation


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_kafkas_directories_are_read_as_the_scanner_reads_them(reference, name):
    root = reference(name)
    logs = list_partitions(str(root))
    assert len(logs) == 23
    for index, log in enumerate(logs):
        scanned = scan_partition(root / log.name)
        ranges = cut_partition(index, log, 1 << 40)
        fates = fates_of(log, ranges)
        assert fates.last_stable_offset == scanned.last_stable_offset, log.name
        for isolation in ("read_uncommitted", "read_committed"):
            rows = [plain_row(row) for row in rows_of(ranges, log, fates, isolation)]
            assert rows == expected_rows(scanned, isolation), (log.name, isolation)
