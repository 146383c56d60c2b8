from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import assign_offsets, read_header
from ottla.testkit import scanner

TS = 1700000000000


def write(folder, *batches, base_offset=0):
    """Write the batches to a segment at consecutive offsets. Return the next offset."""
    folder.mkdir(exist_ok=True)
    offset = base_offset
    with (folder / f"{base_offset:020d}.log").open("wb") as segment:
        for batch in batches:
            assign_offsets(batch, offset, 0)
            segment.write(batch)
            offset = read_header(batch).next_offset
    return offset


def data(producer_id=-1, count=2, **options):
    records = [(b"k", b"%d" % number) for number in range(count)]
    options = {"producer_epoch": 0, "base_sequence": 0, "transactional": producer_id >= 0} | options
    if producer_id < 0:
        options |= {"producer_epoch": -1, "base_sequence": -1}
    return build_batch(records, timestamp_ms=TS, producer_id=producer_id, **options)


def end(producer_id, commit):
    return build_marker(producer_id, 0, 5, commit, TS)


def test_interleaved_transactions_get_their_fates_and_index_entries(tmp_path):
    # offsets: 0-1 pid 1, 2-3 pid 2, 4 abort 1, 5-6 plain, 7 abort 2, 8-9 pid 1, 10 commit 1, 11-12 pid 3 (open)
    batches = [data(1), data(2), end(1, False), data(), end(2, False), data(1), end(1, True), data(3)]
    write(tmp_path / "t-0", *batches)
    partition = scanner.scan_partition(tmp_path / "t-0")
    assert partition.fates == [
        *(scanner.ABORTED, scanner.ABORTED, scanner.ABORTED, scanner.PLAIN),
        *(scanner.ABORTED, scanner.COMMITTED, scanner.COMMITTED, scanner.OPEN),
    ]
    assert partition.aborted_index == [(1, 0, 4, 2), (2, 2, 7, 8)]
    assert (partition.last_stable_offset, partition.log_end_offset) == (11, 13)
    assert [record.offset for record in partition.records("read_committed")] == [5, 6, 8, 9]
    assert [record.offset for record in partition.records()] == [0, 1, 2, 3, 5, 6, 8, 9, 11, 12]
    assert partition.batches[2].coordinator_epoch == 5


def test_transaction_spans_segments(tmp_path):
    next_offset = write(tmp_path / "t-0", data(1), data(1, base_sequence=2))
    write(tmp_path / "t-0", end(1, True), base_offset=next_offset)
    (tmp_path / "t-0" / "00000000000000000000.log.deleted").write_bytes(b"not a segment")
    partition = scanner.scan_partition(tmp_path / "t-0")
    assert [(t.first_offset, t.marker_offset, t.fate) for t in partition.transactions] == [(0, 4, scanner.COMMITTED)]
    assert [record.sequence for record in partition.records()] == [0, 1, 2, 3]


def test_marker_without_transaction_and_emptied_marker_decide_nothing(tmp_path):
    emptied = build_batch([], producer_id=1, producer_epoch=0, transactional=True, control=True)
    write(tmp_path / "t-0", end(1, False), data(1), emptied, end(1, True), end(1, False))
    partition = scanner.scan_partition(tmp_path / "t-0")
    assert [(t.first_offset, t.fate) for t in partition.transactions] == [(1, scanner.COMMITTED)]
    assert partition.aborted_index == []


def test_damage_is_reported_with_position_size_and_reason(tmp_path):
    write(tmp_path / "t-0", data(), data())
    segment = next((tmp_path / "t-0").iterdir())
    whole = segment.read_bytes()
    half = len(whole) // 2
    for content, reason in [
        (whole[:-1], "cut batch"),
        (whole[: half + 60], "cut header"),
        (whole[:-1] + b"\xff", "wrong CRC"),
        (whole[:half] + bytes(100), "size 0"),
        (whole[: half + 16] + b"\1" + whole[half + 17 :], "wrong CRC"),
        (whole[: half + 16] + b"\3" + whole[half + 17 :], "magic 3"),
        (whole[:half] * 2, "offset 0 after 1"),
    ]:
        segment.write_bytes(content)
        partition = scanner.scan_partition(tmp_path / "t-0")
        assert len(partition.batches) == 1
        assert partition.damages == [scanner.Damage(segment, half, len(content) - half, reason)]


def test_every_codec_is_read(tmp_path):
    write(tmp_path / "t-0", *[data(compression=codec, count=40) for codec in range(5)])
    partition = scanner.scan_partition(tmp_path / "t-0")
    assert [record.value for record in partition.records()] == [b"%d" % number for number in range(40)] * 5
