"""A Produce request of many partitions: its response takes several turns, and is the same as one encoded at once."""

from types import SimpleNamespace

import pytest

from lab.simulation.charged import ChargeMeter
from ottla.broker.api import produce
from ottla.broker.api.request import NO_REPLY, Close, Request
from ottla.broker.costs import REPLY_ROW_US, ROW_US
from ottla.broker.memory import Memory
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests.produce_wire import PartitionResponse, ProduceBody, encode_produce_response
from ottla.protocol.values import ZERO_UUID
from tests.broker_stub import broker_of

MANY = 8_192


@pytest.fixture
def serve():
    """Serve a request for topics that do not exist; return (response, turns)."""

    def serve(version, acks, topics):
        later, bugs, replies = [], [], []
        turns = Turns(later.append, bugs.append)
        ChargeMeter(turns, lambda *excess: bugs.append(excess))
        broker = broker_of(
            turns=turns,
            cluster=SimpleNamespace(
                partition=lambda topic, index: None,
                absence=lambda topic, index: E.UNKNOWN_TOPIC_OR_PARTITION,
                is_unopened=lambda topic, index: False,
                topics_by_id={},
            ),
            memory=Memory(turns, 1 << 28),
        )
        ids = [ZERO_UUID] * len(topics) if version >= 13 else []
        request = Request(ApiKey.PRODUCE, version, 7, "", Session(), ProduceBody(None, acks, 1, topics, ids, 0))
        turns.event(lambda: turns.start(produce.handle(broker, request), replies.append, bugs.append))
        while later:
            turns.event(later.pop(0))
        assert bugs == []
        return replies[0], turns

    return serve


def rows(topics, version, error):
    name = "" if version >= 13 else None
    return [
        PartitionResponse(topic if name is None else name, index, error) for topic, some in topics for index, _ in some
    ]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("count", [produce.ROWS_AT_ONCE - 1, produce.ROWS_AT_ONCE, 1_000])
def test_reply_of_many_rows_is_what_it_would_be_in_one_go(serve, version, count):
    half = [(index, None) for index in range(count // 2)]
    topics = [("a" if version < 13 else "", half), ("b" if version < 13 else "", [(9, None)] * (count - len(half)))]
    reply, _ = serve(version, 7, topics)
    told = b"".join(map(bytes, reply.buffers))
    assert told == encode_produce_response(rows(topics, version, E.INVALID_REQUIRED_ACKS), version, 7)


@pytest.mark.parametrize(
    "topics", [[("a", [(n, None) for n in range(MANY)])], [(f"t{n}", [(0, None)]) for n in range(MANY)]]
)
def test_reply_of_many_rows_is_written_in_shares(serve, topics):
    reply, turns = serve(9, -1, topics)
    told = b"".join(map(bytes, reply.buffers))
    assert told == encode_produce_response(rows(topics, 9, E.UNKNOWN_TOPIC_OR_PARTITION), 9, 7)
    assert turns.charged_us >= MANY * (2 * ROW_US + REPLY_ROW_US)
    assert turns.meter.most_us < 2 * SHARE_US


def test_acks_0_is_not_answered_however_many_rows_fail(serve):
    reply, turns = serve(9, 0, [("a", [(n, None) for n in range(MANY)])])
    assert isinstance(reply, Close) and f"and {MANY - 1} more" in reply.reason
    assert turns.meter.most_us < 2 * SHARE_US
    assert serve(9, 0, [])[0] is NO_REPLY
