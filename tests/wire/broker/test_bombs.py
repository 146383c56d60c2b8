"""Small requests that need much memory or time: the broker limits both and serves other clients meanwhile."""

import struct
import threading
from pathlib import Path

import pytest
from hostile import Case, batch, cases, compress_batch, count, produce, record, request, sound
from rig import CLOSED, CREATE_TOPICS, LIST_OFFSETS, METADATA, PRODUCE

from ottla.protocol.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD, compress
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import MAX_ENTRIES

MEMORY_LIMIT_BYTES = 300 * 1024 * 1024
CAP_BYTES = 100 * 1024 * 1024
CODECS = [pytest.param(compression, id=NAMES[compression]) for compression in (GZIP, SNAPPY, LZ4, ZSTD)]

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the peak from /proc")


@pytest.fixture(scope="module")
def zeros():
    """Return a section that decompresses to more than the cap, by codec."""
    made = {}
    return lambda compression: made.setdefault(compression, compress(bytes(CAP_BYTES + 1), compression))


@pytest.fixture
def memory(rig):
    rig.reset_peak()
    yield
    assert rig.peak_bytes() < MEMORY_LIMIT_BYTES


on_both = cases(Case("", b""))


class Beside:
    """The bystander produces and fetches while a bomb is processed."""

    def __init__(self, rig):
        self._rig = rig
        self._stopping = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self._stopping.wait(0.002):
                self._rig.bystander_round()
        except BaseException as failure:
            self._failure = failure

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def error_of(reply):
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def send_at_once(rig, data, peers):
    """Send the same request on many connections and return the error of each reply."""
    connections = [rig.connect() for _ in range(peers)]
    try:
        for peer in connections:
            peer.send(data)
        return [error_of(peer.reply(PRODUCE, 9)) for peer in connections]
    finally:
        for peer in connections:
            peer.socket.close()


@pytest.mark.slow
@needs_proc
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("compression", CODECS)
def test_batch_that_decompresses_above_the_cap_is_too_large(rig, zeros, compression):
    topic = rig.new_topic(max_message_bytes="8000000")
    data = produce((topic, [(0, batch(zeros(compression), compression=compression))]))
    with Beside(rig):
        assert send_at_once(rig, data, 2) == [ErrorCode.MESSAGE_TOO_LARGE] * 2
    assert rig.end_offset(topic) == 0


@pytest.mark.slow
@needs_proc
@pytest.mark.usefixtures("memory")
def test_large_batches_are_held_one_at_a_time(rig):
    """Batches of a few KB decompress to 90 MiB each; their frames are wrong in the last slice only."""
    records = 10_000
    payload = b"".join(record(index, value=bytes(9_400)) for index in range(records)) + b"\0"
    data = produce((rig.topic, [(0, compress_batch(ZSTD, payload, records=records))]))
    with Beside(rig):
        assert send_at_once(rig, data, 7) == [ErrorCode.INVALID_RECORD] * 7


@needs_proc
def test_large_batches_of_closed_connections_do_not_block_the_next_one(rig):
    payload = b"".join(record(index, value=bytes(400)) for index in range(30_000)) + b"\0"
    data = produce((rig.topic, [(0, compress_batch(ZSTD, payload, records=30_000))]))
    for _ in range(5):
        peers = [rig.connect() for _ in range(3)]
        for peer in peers:
            peer.send(data)
        rig.bystander_round()
        for peer in peers:
            peer.socket.close()
    assert send_at_once(rig, data, 1) == [ErrorCode.INVALID_RECORD]


def metadata_about(names):
    asked = codec.request_class(METADATA).MetadataRequestTopic
    topics = [asked(name=name, topic_id=None) for name in names]
    return sound(METADATA, 9, topics=topics, allow_auto_topic_creation=False)


@needs_proc
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(METADATA, 9, count(520_000, True) + b"\x01\x00" * 520_000 + bytes(4)), id="metadata"),
        pytest.param(
            request(LIST_OFFSETS, 1, struct.pack(">iii", -1, MAX_ENTRIES + 1, 0) + bytes(6 * MAX_ENTRIES + 2)),
            id="list-offsets",
        ),
        pytest.param(produce(*[("", [])] * (MAX_ENTRIES + 1)), id="produce-topics"),
        pytest.param(produce(("t", [(0, None)] * (MAX_ENTRIES + 1))), id="produce-partitions"),
        pytest.param(produce(*[("t", [(0, None)] * 129)] * 128, version=3), id="produce-in-all"),
    ],
)
def test_request_with_too_many_entries_closes(rig, data):
    with Beside(rig), rig.connect() as peer:
        peer.send(data)
        assert peer.frame() is CLOSED
        (line,) = rig.lines_about(peer)
        assert str(MAX_ENTRIES) in line


def test_as_many_entries_as_are_allowed_are_served(rig):
    with Beside(rig), rig.connect() as peer:
        peer.send(metadata_about(f"{number:x}" for number in range(MAX_ENTRIES)))
        assert len(peer.reply(METADATA, 9).topics) == MAX_ENTRIES
        peer.send(produce(("nowhere", [(index, None) for index in range(MAX_ENTRIES - 1)])))
        assert len(peer.reply(PRODUCE, 9).responses[0].partition_responses) == MAX_ENTRIES - 1


@on_both
def test_topic_named_often_is_described_once(rig, case):
    with rig.connect() as peer:
        peer.send(metadata_about([rig.topic] * 10_000))
        assert [topic.name for topic in peer.reply(METADATA, 9).topics] == [rig.topic]


@on_both
def test_too_many_partitions_in_one_request_create_nothing(rig, case):
    topic = codec.request_class(CREATE_TOPICS).CreatableTopic
    names = [f"excess-{number}" for number in range(2)]
    rows = [topic(name=n, num_partitions=5001, replication_factor=1, assignments=[], configs=[]) for n in names]
    with rig.connect() as peer:
        peer.send(sound(CREATE_TOPICS, 7, topics=rows, timeout_ms=1000, validate_only=False))
        errors = [row.error_code for row in peer.reply(CREATE_TOPICS, 7).topics]
        assert errors == [ErrorCode.POLICY_VIOLATION] * 2
        peer.send(metadata_about(names))
        assert {t.error_code for t in peer.reply(METADATA, 9).topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@needs_proc
@pytest.mark.usefixtures("memory")
def test_a_thousand_half_frames_do_not_delay_other_clients(rig):
    peers = [rig.connect() for _ in range(1000)]
    for data in (struct.pack(">ihh", 104_857_600, PRODUCE, 9) + bytes(1000), b"more", b"and more"):
        for peer in peers:
            peer.send(data)
        rig.bystander_round()
    for peer in peers:
        peer.socket.close()


@pytest.mark.slow
@needs_proc
@pytest.mark.usefixtures("memory")
def test_frame_at_the_limit_is_served(rig):
    rows = [(index, bytes(6_250)) for index in range(MAX_ENTRIES - 1)]
    with Beside(rig), rig.connect() as peer:
        peer.send(produce((rig.topic, rows)))
        (topic,) = peer.reply(PRODUCE, 9).responses
        assert topic.partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert {row.error_code for row in topic.partition_responses[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
