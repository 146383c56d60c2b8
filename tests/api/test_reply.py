"""Responses that are encoded in slices: bytes, turns, memory, and responses too large for a frame."""

import pytest

from ottla.broker.api.reply import PIECE_BYTES, UNCOUNTED_BYTES, ReplyBuilder, encode_reply
from ottla.broker.api.request import Request
from ottla.broker.memory import FREE_BYTES, Memory, TooLarge
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, Unwritable
from ottla.protocol.requests import codec
from ottla.protocol.requests.writer import Rows
from tests.broker_stub import broker_of
from tests.replies import message_of

OFFSETS, VERSION = ApiKey.OFFSET_FETCH, 7


class Rig:
    """Turns that are driven by hand, and a memory budget."""

    def __init__(self, memory_bytes=1 << 28):
        self.queue = []
        self.bugs = []
        self.turns = Turns(self.queue.append, self.bugs.append)
        self.memory = Memory(self.turns, memory_bytes)
        self.longest_us = 0.0

    def run(self, coroutine):
        """Run the work and return (result, number of turns)."""
        results, took = [], 0
        before_us = self.turns.charged_us
        self.turns.event(lambda: self.turns.start(coroutine, results.append, self.bugs.append))
        while True:
            took += 1
            self.longest_us = max(self.longest_us, self.turns.charged_us - before_us)
            before_us = self.turns.charged_us
            if results or self.bugs or not self.queue:
                return (results or [None])[0], took
            self.turns.event(self.queue.pop(0))

    async def reply(self, topics):
        """Return an OffsetFetch response of [(topic, [metadata])]."""
        reply = ReplyBuilder(
            broker_of(
                turns=self.turns,
                memory=self.memory,
            ),
            request(),
        )
        rows = reply.rows("topics")
        for name, partitions in topics:
            inner = reply.rows("topics", "partitions")
            for index, metadata in enumerate(partitions):
                await inner.add(index, 2 * index, -1, metadata, ErrorCode.NONE)
            await rows.add(name=name, partitions=inner)
        return reply.finish(throttle_time_ms=3, topics=rows)


def request():
    return Request(OFFSETS, VERSION, 9, "", Session(), None)


def encode_at_once(topics):
    """Return the same response, encoded at once."""
    rows = [(name, [(n, 2 * n, -1, text, 0) for n, text in enumerate(texts)]) for name, texts in topics]
    return b"".join(codec.response_encoder(OFFSETS, VERSION)(9, 3, rows))


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [("t", [])],
        [("t", ["m"])],
        [("t", ["m"] * 300), ("u", [""] * 3), ("v", ["x" * 5000] * 2)],
        [(f"topic-{number}", ["m" * number]) for number in range(2000)],
        [("t", ["x" * 32_767] * 5), ("u", ["y" * (PIECE_BYTES // 2 - 1)] * 3)],
    ],
)
def test_slices_make_the_bytes_of_one_piece(topics):
    rig = Rig()
    reply, _ = rig.run(rig.reply(topics))
    assert rig.bugs == []
    assert b"".join(reply.buffers) == encode_at_once(topics)


def test_a_long_reply_is_written_over_many_turns():
    rig = Rig()
    reply, took = rig.run(rig.reply([("t", ["m"] * 10_000)]))
    assert took >= 10_000 * 2 / SHARE_US
    assert rig.longest_us < SHARE_US + 200
    assert len(message_of(reply, OFFSETS, VERSION).topics[0].partitions) == 10_000


def test_a_reply_with_long_rows_is_in_pieces():
    rig = Rig()
    reply, _ = rig.run(rig.reply([("t", ["x" * 1000] * 1000)]))
    assert max(map(len, reply.buffers)) < PIECE_BYTES + UNCOUNTED_BYTES
    assert len(reply.buffers) > 15


def test_a_reply_holds_memory_for_its_bytes_once_until_it_is_sent():
    rig = Rig()
    topics = [(f"t{number}", ["x" * 1000] * 40) for number in range(50)]
    reply, _ = rig.run(rig.reply(topics))
    size_bytes = sum(map(len, reply.buffers))
    assert size_bytes - 3 * UNCOUNTED_BYTES < rig.memory.replies.held_bytes <= size_bytes
    assert reply.reservation is not None
    reply.reservation.built(0)
    assert rig.memory.replies.held_bytes == 0


def test_a_small_reply_reserves_no_memory():
    rig = Rig()
    reply, took = rig.run(rig.reply([("t", ["x" * 1000] * (FREE_BYTES // 1100))]))
    assert (reply.reservation, rig.memory.replies.held_bytes, took) == (None, 0, 1)


def test_a_reply_that_is_larger_than_the_budget_ends_while_it_is_built():
    rig = Rig(memory_bytes=1 << 20)
    seen = []

    def texts():
        for number in range(10_000):
            seen.append(number)
            yield "x" * 1000

    rig.run(rig.reply([("t", texts())]))
    assert isinstance(rig.bugs.pop(), TooLarge)
    assert len(seen) < 300
    assert rig.memory.replies.held_bytes == 0


@pytest.mark.plain
def test_a_reply_that_fits_no_frame_is_refused(monkeypatch):
    monkeypatch.setattr("ottla.protocol.requests.writer.MAX_RESPONSE_BYTES", 5_000)
    rig = Rig()
    rig.run(rig.reply([("t", ["x" * 1000] * 5)]))
    assert isinstance(rig.bugs[0], Unwritable)
    assert "5000" in str(rig.bugs[0])


@pytest.mark.parametrize("version", [5, 8])
def test_a_string_that_fits_no_int16_is_refused_in_every_version(version):
    groups = ("groups",) if version == 8 else ()
    with pytest.raises(Unwritable, match="32768"):
        codec.row_writer(OFFSETS, version, *groups, "topics", "partitions")(Rows(), 0, 0, -1, "x" * 32_768, 0)


@pytest.mark.parametrize("version", [1, 4])
def test_an_error_message_that_quotes_a_long_name_is_cut_short(version):
    rows = Rows()
    codec.row_writer(ApiKey.DESCRIBE_CONFIGS, version, "results")(rows, 17, "n" * 40_000, 2, "t", [])
    assert b"n" * 1_000 + b"... (40000 characters)" in rows.out
    assert len(rows.out) < 1_100


def test_an_encoded_reply_has_the_error_code_of_the_whole_request():
    reply = encode_reply(request(), error_code=ErrorCode.INVALID_REQUEST)
    assert reply.error_code is ErrorCode.INVALID_REQUEST
    assert message_of(reply, OFFSETS, VERSION).error_code == ErrorCode.INVALID_REQUEST
