"""Moves between the phases of a connection: those of the table occur, and the simulation makes no others."""

import re
from types import SimpleNamespace

import pytest

from lab.simulation.faults import PROFILES
from lab.simulation.outcome import run_seed
from ottla.broker import phases
from ottla.broker.api.request import Close, Encoded
from ottla.broker.connection import Connection
from ottla.broker.ports.slices import CutShort
from ottla.broker.turns import SHARE_US, Wait
from ottla.protocol.api_keys import ApiKey
from tests.unit.broker.peer import Peer, heartbeat

ROW = re.compile(r"^\| (\w+) +\| (.*?) +\|$", re.MULTILINE)
LEGAL = {
    name: {follower for follower in followers.split(", ") if follower}
    for name, followers in ROW.findall(phases.__doc__)
    if name != "phase"
}
NAMES = {getattr(phases, name): name for name in LEGAL}


class RecordedPhase:
    """The attribute `_phase` of connections. It records each change."""

    def __init__(self, slot):
        self.slot = slot
        self.moves = []

    def __get__(self, connection, owner):
        return self.slot.__get__(connection, owner)

    def __set__(self, connection, phase):
        before = getattr(connection, "_phase", None)
        if before is not None and before != phase:
            self.moves.append((NAMES[before], NAMES[phase]))
        self.slot.__set__(connection, phase)


@pytest.fixture
def moves(monkeypatch):
    recorded = RecordedPhase(Connection.__dict__["_phase"])
    monkeypatch.setattr(Connection, "_phase", recorded)
    return recorded.moves


class Guided(Peer):
    """A client whose requests wait if `waits` is set, and then get `reply`."""

    def __init__(self):
        super().__init__(self._handle)
        self.timers = []
        self.broker.clock.call_later = self._call_later
        self.waits = False
        self.throttle_ms = 0.0
        self.reply = Encoded([b"reply"])
        self.waiting = []

    async def _handle(self, broker, request):
        if self.waits:
            wait = Wait(self.turns)
            self.waiting.append(wait)
            await wait
        request.session.throttle_ms = self.throttle_ms
        return self.reply

    def _call_later(self, delay_ms, work):
        self.timers.append(work)
        return SimpleNamespace(cancel=lambda: None)

    def login(self):
        self.connection.session.authenticator = SimpleNamespace(
            takes_tokens=False, objection=lambda key: None, is_login=lambda key: False, on_login=None
        )

    def wake(self):
        self.turns.event(lambda: self.waiting.pop().wake(None))
        while self.next_turn():
            pass

    def fire(self):
        """Run the timers, and the work that they put off."""
        for work in self.timers:
            self.turns.event(work)
        while self.next_turn():
            pass


def produce():
    payload = bytes((0, ApiKey.PRODUCE, 0, 3)) + bytes(4) + b"\xff\xff" + b"\xff\xff\x00\x01" + bytes(8)
    return len(payload).to_bytes(4, "big") + payload


def keep_a_reply(peer):
    """Queue a reply in the turn of the next request, whose refusal it precedes."""
    peer.connection._outbox.add([b"earlier"])


def queue_reply_and_refuse(peer):
    peer.login()
    keep_a_reply(peer)
    peer.reply = Close("refused")


def make_a_request_wait(peer, request):
    peer.waits = True
    peer.receive(request)


def mute(peer):
    peer.throttle_ms = 1000.0
    peer.receive(heartbeat(1))


def put_off(peer):
    peer.turns.charge(SHARE_US)
    peer.receive(heartbeat(1))
    peer.next_turn()


def play_refusal(peer):
    queue_reply_and_refuse(peer)
    peer.receive(heartbeat(1))


def play_closing(peer):
    """End a connection whose socket takes nothing."""
    peer.transport.takes = 1
    peer.receive(heartbeat(1) + heartbeat(2))
    peer.connection._outbox.add([b"later"])
    peer.connection.drain()


def fail_while_serving(peer):
    """Send a reply that cannot be read, before a refusal, while its request is in progress."""

    def send():
        raise CutShort("1 bytes are missing")

    keep_a_reply(peer)
    peer.connection._outbox = SimpleNamespace(
        parts=[b"earlier"], sending=False, paused=False, slices=0, unsent_bytes=0, send=send, clear=lambda: None
    )
    peer.reply = Close("refused")
    peer.receive(heartbeat(1))


def wait_then(request, act):
    def play(peer):
        make_a_request_wait(peer, request)
        act(peer)

    return play


def refuse_woken(peer):
    queue_reply_and_refuse(peer)
    peer.wake()


def close_woken(peer):
    peer.reply = Close("refused")
    peer.wake()


def lose(peer):
    peer.connection.connection_lost(None)


def leave_while_spent(peer):
    peer.turns.charge(SHARE_US)
    peer.connection.eof_received()


def then(*acts):
    def play(peer):
        for act in acts:
            act(peer)

    return play


def answer(peer):
    peer.receive(heartbeat(1))


def refuse_after_reply(peer):
    """Refuse after a reply, as a failed login does."""
    peer.login()
    peer.reply = Encoded([b"no"], closes="refused")
    peer.receive(heartbeat(1))


def refuse_after_muting(peer):
    peer.throttle_ms = 1000.0
    refuse_after_reply(peer)


SCENARIOS = {
    ("NEW", "IDLE"): put_off,
    ("NEW", "SERVING"): answer,
    ("NEW", "CLOSING"): leave_while_spent,
    ("NEW", "CLOSED"): lose,
    ("IDLE", "MUTED"): mute,
    ("IDLE", "SERVING"): then(answer, answer),
    ("IDLE", "REFUSED"): refuse_after_reply,
    ("IDLE", "CLOSING"): then(answer, leave_while_spent),
    ("IDLE", "CLOSED"): then(answer, lose),
    ("MUTED", "IDLE"): then(mute, Guided.fire),
    ("MUTED", "REFUSED"): refuse_after_muting,
    ("MUTED", "CLOSING"): then(mute, lambda peer: peer.connection.drain()),
    ("MUTED", "CLOSED"): then(mute, lose),
    ("SERVING", "IDLE"): answer,
    ("SERVING", "PRODUCING"): lambda peer: make_a_request_wait(peer, produce()),
    ("SERVING", "WAITING"): lambda peer: make_a_request_wait(peer, heartbeat(1)),
    ("SERVING", "REFUSED"): play_refusal,
    ("SERVING", "CLOSING"): then(lambda peer: setattr(peer, "reply", Close("refused")), answer),
    ("SERVING", "CLOSED"): fail_while_serving,
    ("PRODUCING", "IDLE"): wait_then(produce(), Guided.wake),
    ("PRODUCING", "REFUSED"): wait_then(produce(), refuse_woken),
    ("PRODUCING", "CLOSING"): wait_then(produce(), close_woken),
    ("PRODUCING", "CLOSED"): wait_then(produce(), lose),
    ("WAITING", "IDLE"): wait_then(heartbeat(1), Guided.wake),
    ("WAITING", "REFUSED"): wait_then(heartbeat(1), refuse_woken),
    ("WAITING", "CLOSING"): wait_then(heartbeat(1), leave_while_spent),
    ("WAITING", "CLOSED"): wait_then(heartbeat(1), lose),
    ("REFUSED", "CLOSING"): then(play_refusal, Guided.fire),
    ("REFUSED", "CLOSED"): then(play_refusal, lose),
    ("CLOSING", "CLOSED"): then(play_closing, lose),
}


def test_each_move_of_the_phase_table_has_a_scenario():
    assert {(phase, follower) for phase in LEGAL for follower in LEGAL[phase]} == set(SCENARIOS)


@pytest.mark.parametrize("move", SCENARIOS, ids=lambda move: " to ".join(move))
def test_scenario_makes_its_move_of_the_phase_table(moves, move):
    SCENARIOS[move](Guided())
    assert move in moves
    assert [made for made in moves if made[1] not in LEGAL[made[0]]] == []


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_simulated_clients_make_only_moves_of_the_phase_table(moves, profile):
    assert run_seed(1, PROFILES[profile]).problems == []
    assert len(moves) > 100
    assert [made for made in moves if made[1] not in LEGAL[made[0]]] == []
