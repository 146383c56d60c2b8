"""The copy of one partition from a broker whose answers are scripted."""

import errno

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.broker.ports.disk import RealDisk, RealFile
from ottla.cli.pull.partition import Calls, PartitionCopy, make_directory
from ottla.cli.pull.segment_writer import Refused
from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import seal
from ottla.protocol.errors import ErrorCode
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.wire import partition_stream
from ottla.wire.address import KafkaAddress
from tests.audit.test_pull import logs_of, recover
from tests.scan.fetch_stub import TOPIC, TOPIC_ID, FetchStub
from tests.scan.test_windows import END, RECORDS_OF_A_BATCH, batches_of, serve


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(partition_stream, "RETRY_S", 0.001)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / f"{TOPIC}-0"
    make_directory(RealDisk(), str(path), TOPIC_ID.bytes)
    return path


def never():
    raise AssertionError("the log start was asked for")


def copy(
    stub,
    folder,
    *,
    start=0,
    end=END,
    known_end=None,
    find_start=never,
    epoch_end=END,
    disk=None,
    segment_bytes=4000,
    has_new_leader=False,
    on_start=None,
):
    """Copy a window. Return the result, and the log starts that moved and the damage that was passed."""
    address = KafkaAddress((("127.0.0.1", stub.port),), timeout_s=2.0)
    moved = []
    calls = Calls(
        find_start=find_start,
        find_epoch_end=lambda epoch: epoch_end,
        on_start=on_start or moved.append,
        on_damage=moved.extend,
        on_bytes=lambda size_bytes: None,
    )
    one = PartitionCopy(disk or RealDisk(), str(folder), 0, calls, segment_bytes)
    window = OffsetWindow(address, TOPIC, TOPIC_ID.bytes, 0, start, end)
    return one.run(window, start, known_end, has_new_leader=has_new_leader), moved


def content_of(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def test_segments_are_named_by_their_first_batch_and_end_below_their_limit(folder):
    rows = batches_of()
    with FetchStub(serve(rows)) as stub:
        copied, _ = copy(stub, folder)
    content = b"".join(rows.values())
    assert (copied.start, copied.end, copied.batches, copied.size_bytes) == (0, END, len(rows), len(content))
    assert content_of(folder) == content
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 2
    for path in segments:
        assert int.from_bytes(path.read_bytes()[:8], "big") == int(path.stem)
        assert path.stat().st_size <= 4000


def test_a_run_with_nothing_new_sends_no_request(folder):
    with FetchStub(serve(batches_of())) as stub:
        copy(stub, folder)
        asked = len(stub.asked)
        copied, _ = copy(stub, folder, known_end=END)
        assert (copied.batches, len(stub.asked)) == (0, asked)


def test_a_batch_that_begins_below_the_log_start_names_the_segment(folder):
    with FetchStub(serve(batches_of())) as stub:
        copied, _ = copy(stub, folder, start=7)
    assert (copied.start, copied.end) == (7, END)
    assert min(int(path.stem) for path in folder.glob("*.log")) == 6


def test_records_that_are_deleted_while_they_are_read_move_the_log_start(folder):
    rows = batches_of()
    answer = serve(rows)

    def deleting(offset):
        return {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE)} if 30 < offset < 90 else answer(offset)

    with FetchStub(deleting) as stub:
        copied, moved = copy(stub, folder, find_start=lambda: 90)
    assert (copied.start, copied.end, moved) == (90, END, [90])
    assert content_of(folder).endswith(b"".join(batch for base, batch in rows.items() if base >= 90))


class Killed(BaseException):
    """The process died."""


def test_older_segments_stay_if_a_run_dies_between_a_moved_log_start_and_its_segment(folder):
    rows = batches_of()
    answer = serve(rows)

    def deleting(offset):
        return {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE)} if 30 < offset < 90 else answer(offset)

    def die(start):
        raise Killed

    with FetchStub(deleting) as stub:
        with pytest.raises(Killed):
            copy(stub, folder, find_start=lambda: 90, on_start=die)
        old = {path.name: path.read_bytes() for path in folder.glob("*.log")}
        copied, _ = copy(stub, folder, start=90)
    assert (copied.start, copied.end) == (90, END)
    assert b"".join(old.values()) and {name: (folder / name).read_bytes() for name in old} == old
    assert content_of(folder) == b"".join(batch for base, batch in rows.items() if base < 36 or base >= 90)


def test_a_log_start_that_does_not_move_is_no_loop(folder):
    with FetchStub(lambda offset: {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE)}) as stub:
        copied, _ = copy(stub, folder, find_start=lambda: 0)
        assert len(stub.asked) == 1
    assert "were deleted while they were read" in copied.failure
    assert (copied.start, copied.end) == (0, 0)


def test_a_batch_that_begins_below_the_start_is_copied_after_a_failure(folder):
    with FetchStub(lambda offset: {"error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}) as stub:
        copied, _ = copy(stub, folder, start=7)
    assert (copied.end, copied.failure) == (7, f"{TOPIC}-0: TOPIC_AUTHORIZATION_FAILED")
    with FetchStub(serve(batches_of())) as stub:
        copied, _ = copy(stub, folder, start=7, known_end=7)
    assert (copied.start, copied.end, copied.failure) == (7, END, "")
    assert min(int(path.stem) for path in folder.glob("*.log")) == 6


def test_a_source_that_ends_below_the_copy_is_refused(folder):
    with FetchStub(serve(batches_of())) as stub:
        copy(stub, folder)
        with pytest.raises(Refused, match="the copy ends at offset 180, the source at 90: its log was cut"):
            copy(stub, folder, end=90, known_end=END)


@pytest.mark.parametrize(("epoch_end", "is_cut"), [(-1, False), (89, True), (90, False), (120, False)])
def test_a_source_that_was_cut_and_has_grown_again_is_refused(epoch_end, is_cut, folder):
    rows = {base: with_epoch(batch, 4) for base, batch in batches_of().items()}
    with FetchStub(serve(rows)) as stub:
        copy(stub, folder, end=90)
        if not is_cut:
            copied, _ = copy(stub, folder, known_end=90, epoch_end=epoch_end)
            assert copied.end == END
            return
        with pytest.raises(Refused, match="in leader epoch 4, which ends at 89 at the source: its log was cut"):
            copy(stub, folder, known_end=90, epoch_end=epoch_end)


def test_a_log_of_the_same_length_is_another_one_after_a_cut(folder):
    rows = {base: with_epoch(batch, 4) for base, batch in batches_of().items()}
    with FetchStub(serve(rows)) as stub:
        copy(stub, folder)
        copied, _ = copy(stub, folder, known_end=END, has_new_leader=True)
        assert (copied.end, copied.batches) == (END, 0)
        with pytest.raises(Refused, match="in leader epoch 4, which ends at 89 at the source: its log was cut"):
            copy(stub, folder, known_end=END, epoch_end=89, has_new_leader=True)


def with_epoch(batch, leader_epoch):
    """Return the batch with another leader epoch, which its CRC does not cover."""
    return batch[:12] + leader_epoch.to_bytes(4, "big", signed=True) + batch[16:]


def test_a_batch_over_the_end_of_the_copy_is_refused_and_not_written(folder):
    rows = batches_of()
    with FetchStub(serve(rows)) as stub:
        copy(stub, folder, end=90)
    before = content_of(folder)
    wide = bytearray(rows[87])
    wide[:8] = (88).to_bytes(8, "big")
    with FetchStub(lambda offset: {"records": bytes(wide)}) as stub:
        copied, _ = copy(stub, folder, known_end=90)
    assert copied.failure == "the copy ends at offset 90, and a batch of the source begins at 88"
    assert content_of(folder) == before


def test_damage_at_the_source_is_left_out_and_listed(folder):
    rows = batches_of()
    rows[30] = rows[30][:-1] + b"x"
    with FetchStub(serve(rows)) as stub:
        copied, found = copy(stub, folder)
    del rows[30]
    assert content_of(folder) == b"".join(rows.values())
    assert [text.partition(":")[0] for text in found] == ["offsets 30 to 32"]
    assert (copied.end, copied.batches, copied.damage) == (END, len(rows), ())


@pytest.mark.parametrize("noise", [b"\0" * 200, b"\xff" * 200, b"no batch" * 50, b"x"])
def test_bytes_that_are_no_batches_are_never_written(folder, noise):
    with FetchStub(lambda offset: {"records": noise}) as stub:
        copied, _ = copy(stub, folder)
    assert content_of(folder) == b""
    assert copied.damage


@pytest.mark.slow
def test_a_broker_that_is_gone_leaves_whole_batches_and_the_next_run_continues(folder):
    rows = batches_of()
    answer = serve(rows)

    def going(offset):
        if offset < 60:
            return answer(offset)
        raise ConnectionError

    with FetchStub(going) as stub:
        copied, _ = copy(stub, folder)
    assert copied.end == 60
    assert copied.failure
    content = b"".join(rows.values())
    assert content.startswith(content_of(folder)) and content_of(folder)
    with FetchStub(answer) as stub:
        copied, _ = copy(stub, folder)
        assert min(stub.asked) == 60
    assert content_of(folder) == content
    assert copied.batches == len(rows) - 60 // RECORDS_OF_A_BATCH


class FullDisk(RealDisk):
    """A disk that takes `room` bytes of appends."""

    __slots__ = ("room",)

    def open(self, path, create=False):
        return FullFile(path, create, self)


class FullFile(RealFile):
    def append(self, buffers):
        self._disk.room -= sum(map(len, buffers))
        if self._disk.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device", self._path)
        super().append(buffers)


def test_a_full_disk_ends_the_copy_with_sound_files(folder):
    rows = batches_of()
    disk = FullDisk()
    disk.room = 5000
    with FetchStub(serve(rows)) as stub:
        with pytest.raises(OSError, match="No space left on device"):
            copy(stub, folder, disk=disk)
        content = b"".join(rows.values())
        assert content.startswith(content_of(folder)) and content_of(folder)
        copy(stub, folder)
    assert content_of(folder) == content


def transactions_of(count):
    """Return {base offset: bytes} of `count` transactions of two batches and a marker, with gaps as of compaction."""
    rows = {}
    for number in range(count):
        base, producer_id = number * 12, number % 3
        for at, sequence in ((base, 0), (base + 3, 3)):
            fields = {"producer_id": producer_id, "producer_epoch": number // 3, "base_sequence": sequence}
            records = [(b"k", b"v" * 40)] * RECORDS_OF_A_BATCH
            rows[at] = place_at(build_batch(records, timestamp_ms=1000 + at, transactional=True, **fields), at)
        rows[base + 8] = place_at(build_marker(producer_id, number // 3, 7, number % 2 == 0, 2000 + base), base + 8)
    return {base: with_epoch(batch, base // 100) for base, batch in rows.items()}


def place_at(batch, base):
    return base.to_bytes(8, "big") + bytes(batch)[8:]


@pytest.mark.parametrize("ends", [(477,), (84, 90, 300, 477)])
def test_files_that_follow_the_batches_are_those_of_a_recovery(ends, folder):
    rows, known_end = transactions_of(40), None
    with FetchStub(serve(rows)) as stub:
        for end in ends:
            copied, _ = copy(stub, folder, end=end, known_end=known_end, epoch_end=-1, segment_bytes=1500)
            known_end = copied.end
    assert content_of(folder) == b"".join(rows.values())
    assert any(path.stat().st_size for path in folder.glob("*.txnindex"))
    assert len([*folder.glob("*.log")]) > 5
    assert recover(folder.parent) == logs_of(folder.parent)


def changed_marker(rows, at, name, value):
    """Return the batches with another version of the key or value of the marker at an offset, and a right CRC."""
    batch = bytearray(rows[at])
    batch[{"key": -12, "value": -7}[name]] = value
    seal(batch)
    return rows | {at: bytes(batch)}


def test_a_control_batch_that_is_no_marker_is_left_out_and_listed(folder):
    rows = changed_marker(transactions_of(10), 56, "key", 0xFF)
    with FetchStub(serve(rows)) as stub:
        copied, found = copy(stub, folder, end=117)
    assert found == ["offsets 54 to 59: the control record cannot be parsed"]
    del rows[56]
    assert (content_of(folder), copied.failure) == (b"".join(rows.values()), "")


def test_a_marker_that_cannot_be_replayed_refuses_the_partition(folder):
    rows = changed_marker(transactions_of(10), 56, "value", 0xFF)
    with FetchStub(serve(rows)) as stub:
        for _ in range(2):
            with pytest.raises(Refused, match="marker at offset 56 has value version -256; pull into a new directory"):
                copy(stub, folder, end=117)
