"""Windows of offsets, read from a broker whose answers are scripted, against the batches that it has."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import HEADER_SIZE, read_header, seal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.scan import headers, windows
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.windows import WindowReader
from ottla.wire import Unanswered, partition_stream
from ottla.wire.address import KafkaAddress
from ottla.wire.partition_stream import RecordsGone
from tests.scan.fetch_stub import TOPIC, TOPIC_ID, FetchStub

COUNT = 60
RECORDS_OF_A_BATCH = 3
END = COUNT * RECORDS_OF_A_BATCH


def batches_of(count=COUNT):
    """Return {base offset: bytes} of batches of three records each."""
    rows = {}
    for number in range(count):
        base = number * RECORDS_OF_A_BATCH
        records = [(b"k%d" % number, b"v" * 50)] * RECORDS_OF_A_BATCH
        batch = bytearray(build_batch(records, timestamp_ms=1_700_000_000_000 + number))
        batch[:8] = base.to_bytes(8, "big")
        rows[base] = bytes(batch)
    return rows


def serve(rows, at_once=4):
    """Return the answers of a broker: some batches, from the one that has the offset on, and the start of another."""

    def answer(offset):
        found = [batch for base, batch in rows.items() if base + read_header(batch).last_offset_delta >= offset]
        content = b"".join(found[:at_once])
        return {"records": content + b"".join(found[at_once : at_once + 1])[:HEADER_SIZE]}

    return answer


def read(stub, first=0, end=END, check_crc=True, timeout_s=20.0, properties=""):
    """Return the (base offset, last offset) of each batch read, their bytes, and the damage."""
    address = KafkaAddress((("127.0.0.1", stub.port),), str(properties), timeout_s)
    window = OffsetWindow(address, TOPIC, TOPIC_ID.bytes, 0, first, end)
    log = DamageLog(REPORT)
    found, content = [], b""
    for chunk in WindowReader(log, check_crc=check_crc).chunks(window):
        for row in chunk.rows:
            start, size = int(row[headers.POSITION]), int(row[headers.SIZE])
            content += bytes(chunk.buffer[start : start + size])
            found.append((int(row[headers.BASE_OFFSET]), int(row[headers.LAST_OFFSET])))
    return found, content, [(one.position, one.end_position, one.reason) for one in log.found]


def offsets_of(rows):
    return [(base, base + RECORDS_OF_A_BATCH - 1) for base in rows]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(partition_stream, "RETRY_S", 0.001)


def test_all_batches_are_read_as_they_are_stored():
    rows = batches_of()
    with FetchStub(serve(rows)) as stub:
        assert read(stub) == (offsets_of(rows), b"".join(rows.values()), [])
        assert stub.asked == [*range(0, END, 4 * RECORDS_OF_A_BATCH)]


def test_batches_are_read_that_the_broker_names_aborted_without_being_asked():
    """As Redpanda before 24.1.8: consumers that drop what is named show nothing of them in uncommitted reads."""
    aborted_type = codec.response_class(ApiKey.FETCH).FetchableTopicResponse.PartitionData.AbortedTransaction
    rows = batches_of()
    answer, named = serve(rows), [aborted_type(producer_id=-1, first_offset=0)]
    with FetchStub(lambda offset: answer(offset) | {"aborted_transactions": named}) as stub:
        assert read(stub) == (offsets_of(rows), b"".join(rows.values()), [])


def test_a_window_may_begin_and_end_inside_of_batches():
    rows = batches_of()
    with FetchStub(serve(rows)) as stub:
        found, _, damage = read(stub, first=7, end=31)
    assert (found, damage) == ([(base, base + 2) for base in range(6, 31, 3)], [])


def test_a_broker_over_its_quota_ends_nothing():
    rows = batches_of()
    answer, asked = serve(rows), []

    def over_quota(offset):
        asked.append(offset)
        return answer(offset) if len(asked) % 3 == 0 else None

    with FetchStub(over_quota) as stub:
        assert read(stub) == (offsets_of(rows), b"".join(rows.values()), [])


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_a_leader_that_moved_is_asked_again(error):
    rows = batches_of()
    answer, asked = serve(rows), []

    def answer_or_move(offset):
        asked.append(offset)
        return answer(offset) if len(asked) % 2 == 0 else {"error_code": error}

    with FetchStub(answer_or_move) as stub:
        assert read(stub) == (offsets_of(rows), b"".join(rows.values()), [])


def test_records_that_retention_deleted_are_gone():
    with (
        FetchStub(lambda offset: {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}) as stub,
        pytest.raises(RecordsGone, match="ledger-0: the records from offset 0 on were deleted while they were read"),
    ):
        read(stub)


def test_a_topic_that_was_created_again_is_noticed():
    def answer(offset):
        stub.topic_id = type(TOPIC_ID)(int=78)
        return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID}

    with FetchStub(answer) as stub, pytest.raises(RecordsGone, match="deleted, or created again"):
        read(stub)


@pytest.mark.parametrize("error", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_an_error_that_stays_is_not_asked_for_again(error):
    with FetchStub(lambda offset: {"error_code": error}) as stub:
        with pytest.raises(Unanswered, match=f"ledger-0: {error.name}"):
            read(stub)
        assert stub.asked == [0]


def test_a_broker_that_never_has_records_is_given_up():
    with (
        FetchStub(lambda offset: {}) as stub,
        pytest.raises(Unanswered, match="ledger-0: no answer has the records from offset 0 on"),
    ):
        read(stub, timeout_s=0.2)


def test_a_partition_without_a_leader_is_given_up():
    with FetchStub(serve(batches_of())) as stub:
        stub.has_leader = False
        with pytest.raises(Unanswered, match="ledger-0 has no leader"):
            read(stub, timeout_s=0.2)


def test_a_batch_whose_crc_is_wrong_is_damage_and_the_next_are_read():
    rows = batches_of()
    rows[9] = rows[9][:-1] + b"x"
    with FetchStub(serve(rows)) as stub:
        found, _, damage = read(stub)
        assert damage == [(9, 12, "CRC mismatch in the batch at offset 9")]
        assert found == offsets_of(base for base in rows if base != 9)
        assert read(stub, check_crc=False)[2] == []


def test_a_length_that_is_wrong_is_damage_up_to_the_next_sound_batch():
    rows = batches_of()
    rows[9] = rows[9][:8] + (2**30).to_bytes(4, "big") + rows[9][12:]
    with FetchStub(serve(rows)) as stub:
        found, _, damage = read(stub)
    assert [(start, end) for start, end, _ in damage] == [(9, 12)]
    assert found == offsets_of(base for base in rows if base != 9)


def test_offsets_that_go_back_are_damage():
    rows = batches_of()
    again = dict(rows)
    again[30] = rows[3]
    with FetchStub(serve(again)) as stub:
        found, _, damage = read(stub)
    assert [(start, end) for start, end, _ in damage] == [(30, 33)]
    assert found == offsets_of(base for base in rows if base != 30)


def test_records_that_the_broker_cannot_read_are_skipped_to_the_first_that_it_can():
    rows = batches_of()
    answer = serve({base: batch for base, batch in rows.items() if not 21 <= base < 120})

    def broken(offset):
        return {"error_code": ErrorCode.CORRUPT_MESSAGE} if 21 <= offset < 120 else answer(offset)

    before = serve({base: batch for base, batch in rows.items() if base < 21})

    def answer_or_fail(offset):
        return before(offset) if offset < 21 else broken(offset)

    with FetchStub(answer_or_fail) as stub:
        found, _, damage = read(stub)
    assert [(start, end) for start, end, _ in damage] == [(21, 120)]
    assert found == offsets_of(base for base in rows if not 21 <= base < 120)


def test_an_answer_that_has_only_earlier_batches_ends_in_damage():
    rows = batches_of()
    with FetchStub(lambda offset: {"records": rows[0]}) as stub:
        found, _, damage = read(stub)
    assert found == [(0, 2)]
    assert [(start, end) for start, end, _ in damage] == [(3, END)]


def test_bytes_that_are_no_batch_at_all_are_damage_to_the_end():
    with FetchStub(lambda offset: {"records": b"\x7f" * 5_000}) as stub:
        found, _, damage = read(stub)
    assert found == []
    assert [(start, end) for start, end, _ in damage] == [(0, END)]


def test_a_batch_without_records_advances_the_reader():
    rows = batches_of(4)
    empty = bytearray(rows[3][:HEADER_SIZE])
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    empty[57:61] = (0).to_bytes(4, "big")
    seal(empty, 0)
    rows[3] = bytes(empty)
    with FetchStub(serve(rows, at_once=1)) as stub:
        found, _, damage = read(stub, end=12)
    assert (found, damage) == (offsets_of(rows), [])


@pytest.fixture
def in_rack(tmp_path):
    """Return the properties of a client in a rack."""
    path = tmp_path / "client.properties"
    path.write_text("client.rack=rack-b\n")
    return path


def naming(replica, *, without_rack):
    """Return the answers of a leader that names a replica. Without a rack it answers as `without_rack`."""

    def answer(offset):
        return {"preferred_read_replica": replica} if stub_of_leader[-1].racks[-1] else without_rack(offset)

    stub_of_leader = []
    return answer, stub_of_leader


def read_with_replica(answer_of_replica, properties, answer_of_leader=None):
    """Return what was read, the stub of the leader, and that of the replica, which is broker 2."""
    rows = batches_of()
    answer, stubs = naming(2, without_rack=serve(rows))
    with FetchStub(answer_of_leader or answer) as leader, FetchStub(answer_of_replica) as replica:
        stubs.append(leader)
        leader.others = {2: replica.port}
        found = read(leader, properties=properties)
    return found, leader, replica


def test_the_replica_that_the_leader_names_is_read(in_rack):
    rows = batches_of()
    found, leader, replica = read_with_replica(serve(rows), in_rack)
    assert found == (offsets_of(rows), b"".join(rows.values()), [])
    assert (leader.asked, leader.racks) == ([0], ["rack-b"])
    assert replica.asked == [*range(0, END, 4 * RECORDS_OF_A_BATCH)]


def test_without_a_rack_the_leader_is_read():
    rows = batches_of()
    found, leader, replica = read_with_replica(serve(rows), "")
    assert found == (offsets_of(rows), b"".join(rows.values()), [])
    assert replica.asked == []
    assert {*leader.racks} == {""}


@pytest.mark.parametrize(
    "failure",
    [
        {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE},
        {"error_code": ErrorCode.OFFSET_NOT_AVAILABLE},
        {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"error_code": ErrorCode.UNKNOWN_TOPIC_ID},
        ConnectionError("gone"),
    ],
    ids=["out of range", "not available", "no replica", "unknown topic", "closed"],
)
def test_after_a_replica_that_fails_the_leader_is_read(in_rack, failure):
    rows = batches_of()
    answer = serve(rows)

    def fail_later(offset):
        if offset < END // 2:
            return answer(offset)
        if isinstance(failure, Exception):
            raise failure
        return failure

    found, leader, replica = read_with_replica(fail_later, in_rack)
    assert found == (offsets_of(rows), b"".join(rows.values()), [])
    assert leader.racks == ["rack-b"] + [""] * (len(leader.racks) - 1)
    assert leader.asked[1] == replica.asked[-1] == END // 2 + 6


def test_the_leader_is_asked_again_for_a_replica_after_a_time(in_rack, monkeypatch):
    now_s = [1_000.0]
    monkeypatch.setattr(partition_stream.time, "monotonic", lambda: now_s[0])
    rows = batches_of()
    answer = serve(rows)

    def answer_slowly(offset):
        now_s[0] += partition_stream.REPLICA_S / 2
        return answer(offset)

    found, leader, replica = read_with_replica(answer_slowly, in_rack)
    assert found == (offsets_of(rows), b"".join(rows.values()), [])
    assert len(leader.asked) > 1
    assert {*leader.racks} == {"rack-b"}
    assert replica.asked == [*range(0, END, 4 * RECORDS_OF_A_BATCH)]


@pytest.mark.parametrize("replica", [3, 2**31 - 1, -7])
def test_a_replica_that_does_not_exist_is_not_read(in_rack, replica):
    rows = batches_of()
    answer, stubs = naming(replica, without_rack=serve(rows))
    if replica < 0:
        answer = serve(rows)
    with FetchStub(lambda offset: answer(offset) | {"preferred_read_replica": replica}) as leader:
        stubs.append(leader)
        assert read(leader, properties=in_rack) == (offsets_of(rows), b"".join(rows.values()), [])


def test_a_leader_that_never_answers_with_records_is_left(in_rack):
    with (
        FetchStub(lambda offset: {"preferred_read_replica": 3}) as leader,
        pytest.raises(Unanswered, match="no answer has the records from offset 0 on"),
    ):
        read(leader, properties=in_rack, timeout_s=0.05)


def chunks_of(stub, window):
    """Return copies of the rows and of the aborted transactions of each chunk."""
    reader = WindowReader(DamageLog(REPORT), check_crc=True)
    return [(chunk.rows.copy(), chunk.aborted) for chunk in reader.chunks(window)]


def window_of(stub, end=END, **fields):
    address = KafkaAddress((("127.0.0.1", stub.port),), timeout_s=20.0)
    return OffsetWindow(address, TOPIC, TOPIC_ID.bytes, 0, 0, end, **fields)


@pytest.mark.parametrize("target_bytes", [1, 7, 999])
def test_parts_of_a_window_have_each_batch_once(target_bytes):
    rows = batches_of()
    with FetchStub(serve(rows)) as stub:
        parts = window_of(stub, size_bytes=2 * END).cut(target_bytes)
        found = [(int(row[headers.BASE_OFFSET])) for part in parts for some, _ in chunks_of(stub, part) for row in some]
    assert len(parts) == min(max(round(2 * END / target_bytes), 1), END)
    assert sum(part.end_offset - part.first_offset for part in parts) == END
    assert found == list(rows)


def test_an_empty_window_has_no_parts():
    window = OffsetWindow(KafkaAddress((("127.0.0.1", 1),)), TOPIC, TOPIC_ID.bytes, 0, 5, 9, 1000)
    assert window.narrow(9, 20).cut(1) == []
    assert window.narrow(7, 20).size_bytes == 500


def transactions_of(count, producer_id=9):
    """Return {base offset: bytes}: transactions of one producer, a batch and a marker each; the odd ones aborted."""
    rows = {}
    for number in range(count):
        data = build_batch(
            [(b"k", b"v")], timestamp_ms=1, producer_id=producer_id, producer_epoch=0, transactional=True
        )
        marker = build_marker(producer_id, 0, 0, number % 2 == 0, 1)
        for offset, content in ((2 * number, data), (2 * number + 1, marker)):
            batch = bytearray(content)
            batch[:8] = offset.to_bytes(8, "big")
            rows[offset] = bytes(batch)
    return rows


def serve_transactions(rows, aborted, end):
    listed = codec.response_class(ApiKey.FETCH).FetchableTopicResponse.PartitionData.AbortedTransaction

    def answer(offset):
        content = b"".join(batch for base, batch in rows.items() if base >= offset)
        named = [listed(producer_id=producer_id, first_offset=first) for producer_id, first in aborted]
        return {"records": content, "aborted_transactions": named, "last_stable_offset": end}

    return answer


def test_aborted_transactions_of_one_producer_end_at_their_own_markers(monkeypatch):
    monkeypatch.setattr(windows, "ROWS_PER_CHUNK", 3)
    rows = transactions_of(6)
    aborted = [(9, first) for first in (10, 2, 6)]
    with FetchStub(serve_transactions(rows, aborted, 12)) as stub:
        found = chunks_of(stub, window_of(stub, end=12, is_committed=True))
    assert [len(some) for some, _ in found] == [3, 3, 3, 3]
    hidden = {
        int(row[headers.BASE_OFFSET])
        for some, ranges in found
        for row in some
        for producer_id, first, marker in ranges
        if producer_id == row[headers.PRODUCER_ID] and first <= row[headers.BASE_OFFSET] < marker
    }
    assert hidden == {2, 6, 10}


def test_a_window_ends_where_compaction_left_no_batch_below_the_stable_offset():
    rows = transactions_of(2)
    with FetchStub(serve_transactions(rows, [], 50)) as stub:
        found = chunks_of(stub, window_of(stub, end=50, is_committed=True))
        assert [int(row[headers.BASE_OFFSET]) for some, _ in found for row in some] == [0, 1, 2, 3]
        assert stub.asked[-1] == 4


def test_an_empty_answer_that_names_another_replica_is_not_the_end():
    rows = transactions_of(2)
    whole = serve_transactions(rows, [], 4)
    answers = []

    def answer(offset):
        answers.append(offset)
        nothing = {"records": b"", "preferred_read_replica": 2, "last_stable_offset": 4}
        return nothing if len(answers) == 1 else whole(offset)

    with FetchStub(answer) as stub:
        found = chunks_of(stub, window_of(stub, end=4, is_committed=True))
    assert sum(len(some) for some, _ in found) == 4


def test_a_window_of_one_replica_is_read_from_it_up_to_its_high_watermark():
    """The replica has not fetched the last batches of the leader yet."""
    rows, behind = batches_of(), batches_of(50)

    def answer(offset):
        return serve(behind)(offset) | {"high_watermark": 150} if offset < 150 else {"high_watermark": 150}

    with FetchStub(serve(rows)) as leader, FetchStub(answer) as replica:
        leader.others = {2: replica.port}
        window = OffsetWindow(KafkaAddress((("127.0.0.1", leader.port),)), TOPIC, TOPIC_ID.bytes, 0, 0, END, replica=2)
        chunks = WindowReader(DamageLog(REPORT), check_crc=True).chunks(window)
        found = [int(row[headers.BASE_OFFSET]) for chunk in chunks for row in chunk.rows]
    assert (found, leader.asked) == ([*behind], [])


def test_a_replica_that_is_not_running_is_given_up():
    with FetchStub(serve(batches_of())) as leader:
        address = KafkaAddress((("127.0.0.1", leader.port),), timeout_s=0.01)
        window = OffsetWindow(address, TOPIC, TOPIC_ID.bytes, 0, 0, END, replica=2)
        with pytest.raises(Unanswered, match="ledger-0: broker 2 is not running"):
            list(WindowReader(DamageLog(REPORT), check_crc=True).chunks(window))
