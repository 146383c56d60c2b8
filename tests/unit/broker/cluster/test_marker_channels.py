"""Channels of markers between brokers: one request for each turn, lost connections, late answers, resigned shards."""

from types import SimpleNamespace

import pytest

from ottla.broker.cluster.links import Links
from ottla.broker.cluster.marker_channels import ANSWER_MS, MOST_MARKERS, MarkerChannels
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import parse_request_header
from ottla.protocol.values import TransactionMarker
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock

KEY, VERSION = ApiKey.WRITE_TXN_MARKERS, 2


class Wire:
    """The other broker: a port and a transport that keep what they get."""

    def __init__(self):
        self.ends, self.requests, self.is_aborted = [], [], False

    def connect(self, node_id, end):
        self.ends.append((node_id, end))

    def write(self, frame):
        header, body = parse_request_header(memoryview(frame)[4:])
        self.requests.append((header, codec.decode_request(KEY, VERSION, body)))

    def abort(self):
        self.is_aborted = True


class Rig:
    """The channels of broker 1 of three."""

    def __init__(self):
        self.bugs, self.schedule, self.wire, self.links = [], Schedule(), Wire(), Links(range(1, 4))
        clock = VirtualClock(self.schedule, PortCalls(), 0.0, lambda work: work())
        self.turns = Turns(clock.next_turn, self.bugs.append)
        clock.enter = self.turns.event
        self.channels = MarkerChannels(1, self.turns, clock, self.links, self.wire)
        self.answers = []

    def send(self, *indexes, producer_id=7, shard=None, leader=2):
        """Send markers in one turn and keep their answers."""
        shard = shard or SimpleNamespace(resigned=False)

        def send():
            for index in indexes:
                marker = TransactionMarker(producer_id, 3, 5, True, 2)
                answer = self.channels.send(leader, "ledger", index, marker)
                answer.follow(shard, lambda error, index=index: self.answers.append((index, error)))

        self.turns.event(send)

    def open(self):
        """Complete the connection."""
        self.wire.ends[-1][1].connection_made(self.wire)
        return self

    def lose(self):
        """Lose the connection."""
        self.wire.ends[-1][1].connection_lost(None)

    def reply(self, errors, correlation_id=None, producer_id=7):
        """Answer the last request: {partition: error}."""
        header, _ = self.wire.requests[-1]
        given = header.correlation_id if correlation_id is None else correlation_id
        rows = [("ledger", [*errors.items()])]
        frames = codec.response_encoder(KEY, VERSION)(given, [(producer_id, rows)])
        data = b"".join(frames) if isinstance(frames, list) else bytes(frames)
        end = self.wire.ends[-1][1]
        end.data_received(data[:5])  # in two pieces
        end.data_received(data[5:])

    def advance(self, for_ms):
        done = []
        self.schedule.after(for_ms, lambda: done.append(True))
        while not done:
            self.schedule.run_next()

    @property
    def sent(self):
        """Partitions of each request."""
        return [
            [index for row in message.markers for topic in row.topics for index in topic.partition_indexes]
            for _, message in self.wire.requests
        ]


@pytest.fixture
def rig():
    made = Rig()
    yield made
    assert made.bugs == []


def test_markers_of_a_turn_are_one_request_and_the_next_wait_for_its_reply(rig):
    rig.send(0, 1)
    rig.open()
    rig.send(2)
    rig.send(3)
    assert [node_id for node_id, _ in rig.wire.ends] == [2] and rig.sent == [[0, 1]]
    header, message = rig.wire.requests[0]
    assert (header.api_key, header.api_version, header.client_id) == (KEY, VERSION, "broker-1-txn-marker-sender")
    (row,) = message.markers
    assert (row.producer_id, row.producer_epoch, row.coordinator_epoch) == (7, 3, 5)
    assert (row.transaction_result, row.transaction_version) == (True, 2)
    rig.reply({0: E.NONE, 1: E.TRANSACTION_COORDINATOR_FENCED})
    assert rig.answers == [(0, E.NONE), (1, E.TRANSACTION_COORDINATOR_FENCED)] and rig.sent == [[0, 1], [2, 3]]


def test_each_broker_has_a_channel_of_its_own(rig):
    rig.send(0)
    rig.send(1, leader=3)
    assert [node_id for node_id, _ in rig.wire.ends] == [2, 3]


def test_a_lost_connection_answers_all_markers_and_the_next_one_connects_again(rig):
    rig.send(0)
    rig.open().send(1)
    rig.lose()
    assert rig.answers == [(0, E.REQUEST_TIMED_OUT), (1, E.REQUEST_TIMED_OUT)]
    rig.send(2)
    rig.open().reply({2: E.NONE})
    assert rig.answers[2:] == [(2, E.NONE)] and len(rig.wire.ends) == 2


def test_a_refused_connection_answers_what_waits(rig):
    rig.send(0)
    rig.lose()
    assert rig.answers == [(0, E.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("is_connected", [True, False])
def test_an_answer_that_does_not_arrive_in_time_is_given_up(rig, is_connected):
    rig.send(0)
    if is_connected:
        rig.open()
    rig.advance(ANSWER_MS - 1)
    assert rig.answers == []
    rig.advance(2)
    assert rig.answers == [(0, E.REQUEST_TIMED_OUT)] and rig.wire.is_aborted is is_connected
    rig.lose()  # the end of the former connection changes nothing
    former = rig.wire.ends[0][1]
    rig.wire.is_aborted = False
    former.data_received(b"\0\0\0\4\0\0\0\0")
    former.connection_made(rig.wire)
    assert rig.wire.is_aborted
    rig.send(1)
    rig.open().reply({1: E.NONE})
    rig.advance(2 * ANSWER_MS)
    assert rig.answers[1:] == [(1, E.NONE)]


def test_markers_of_a_resigned_shard_are_not_sent(rig):
    shard = SimpleNamespace(resigned=False)
    rig.send(0)
    rig.open().send(1, shard=shard)
    rig.send(2)
    shard.resigned = True
    rig.reply({0: E.NONE})
    assert rig.sent == [[0], [2]]


def test_answers_do_not_arrive_on_a_cut_link(rig):
    rig.send(0)
    rig.open()
    rig.links.disconnect(1, 2)
    rig.reply({0: E.NONE})
    assert rig.answers == [(0, E.REQUEST_TIMED_OUT)]
    marker = TransactionMarker(7, 3, 5, True, 2)
    assert rig.channels.send(2, "ledger", 1, marker) is E.REQUEST_TIMED_OUT
    assert rig.sent == [[0]]


def test_two_markers_of_one_place_are_two_requests(rig):
    """Their answers have the same place in a reply."""
    rig.send(0, 0)
    rig.open()
    assert rig.sent == [[0]]
    rig.reply({0: E.NONE})
    assert rig.sent == [[0], [0]]


def test_a_request_has_a_limited_number_of_markers(rig):
    rig.send(*range(MOST_MARKERS + 1))
    rig.open()
    assert [len(each) for each in rig.sent] == [MOST_MARKERS]
    rig.reply(dict.fromkeys(range(MOST_MARKERS), E.NONE))
    assert rig.sent[1] == [MOST_MARKERS]


@pytest.mark.parametrize(
    ("answer", "error"),
    [({0: 12_345}, E.UNKNOWN_SERVER_ERROR), ({1: E.NONE}, E.REQUEST_TIMED_OUT)],
    ids=["unknown code", "missing row"],
)
def test_strange_answers_are_retried(rig, answer, error):
    rig.send(0)
    rig.open().reply(answer)
    assert rig.answers == [(0, error)]


@pytest.mark.parametrize("data", [b"\x7f\xff\xff\xff", b"\0\0\0\4\0\0\0\0", b"\0\0\0\7\0\0\0\1\0\xff\xff"])
def test_a_bad_reply_ends_the_connection(rig, data, caplog):
    rig.send(0)
    rig.open()
    rig.wire.ends[-1][1].data_received(data)
    assert rig.answers == [(0, E.REQUEST_TIMED_OUT)] and rig.wire.is_aborted
    assert "a reply to markers is bad" in caplog.text


def test_a_stopped_broker_forgets_its_markers(rig):
    rig.send(0)
    rig.open().send(1)
    rig.channels.close()
    rig.lose()
    assert rig.answers == [] and rig.wire.is_aborted
