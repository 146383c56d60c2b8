"""Faults before and after each request of a dispatcher, and a journal of requests and replies. shell

A fault can hold, delay or answer a request before the broker handles it, and act on its reply afterwards. The handling
itself does not change. Requests of an API without planned faults are only recorded.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.api.context import Broker
from ottla.broker.api.table import TABLE
from ottla.broker.dispatch import Dispatcher
from ottla.broker.memory import ReplyReservation, Reservation
from ottla.broker.outbox import Part
from ottla.broker.ports.clock import Clock
from ottla.broker.request_observer import Refuse, Send
from ottla.broker.security.session import Session
from ottla.broker.turns import Activity, Wait
from ottla.protocol.errors import ProtocolError
from ottla.testkit.control import KIT_CLIENT_ID
from ottla.testkit.control.cluster import ClusterControl
from ottla.testkit.control.crash import crash
from ottla.testkit.control.journal import Journal, JournalEntry
from ottla.testkit.control.secrets import has_secret_reply, kept_parts, kept_request
from ottla.testkit.faults.error_reply import error_reply
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.fault import Fault
from ottla.testkit.faults.plan import Plan


class _Served:
    """Result of a request: a reply to send, or the reason to close the connection."""

    __slots__ = ("parts", "reason", "room")

    def __init__(self, parts: Sequence[Part] = (), room: ReplyReservation | None = None, reason: str = "") -> None:
        self.parts = parts
        self.room = room
        self.reason = reason


class Steering:
    """The faults of a dispatcher. `real_clock` is the machine's: delays end while the broker's clock is stopped too."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        broker: Broker,
        brokers: ClusterControl,
        plan: Plan,
        journal: Journal,
        real_clock: Clock,
    ) -> None:
        """Steer this dispatcher of the broker from now on."""
        self._dispatcher = dispatcher
        dispatcher.steered_by = self.start
        self._broker = broker
        self._of_the_kit = Dispatcher(broker, TABLE, first_use=True)
        self._node_id = broker.cluster.node_id
        self._journal_id = self._node_id if broker.links is not None else None
        self._turns = broker.turns
        self._brokers = brokers
        self._plan = plan
        self._journal = journal
        self._real_clock = real_clock

    def start(
        self,
        frame: memoryview,
        session: Session,
        send: Send,
        refuse: Refuse,
        claim: Reservation | None = None,
    ) -> Activity[Any] | None:
        """Serve one frame as `Dispatcher.start` does, with the faults that fire on it."""
        if session.sends_tokens:  # a bare SASL token without a request header (SaslHandshake 0)
            return self._dispatcher.start(frame, session, send, refuse, claim)
        try:
            exchange = Exchange(
                bytes(frame), self._brokers.changes.name_of, self._node_id, self._broker.fetch_sessions.places
            )
        except ProtocolError:
            return self._dispatcher.start(frame, session, send, refuse, claim)
        if exchange.client_id == KIT_CLIENT_ID:
            return self._serve_kit(frame, session, send, refuse, claim)
        entry = self._journal.begin(kept_request(exchange), session.peer, self._journal_id)

        def sent(parts: Sequence[Part], room: ReplyReservation | None) -> None:
            if self._brokers.is_paused(self._node_id):
                self._brokers.hold(self._node_id, lambda: sent(parts, room))
            elif has_secret_reply(exchange):
                self._journal.record_reply(entry, kept_parts(exchange, parts))
                send(parts, room)
            else:
                parts = self._journal.record_reply(entry, parts)
                if not session.is_peer:
                    self._brokers.changes.count_reply(self._node_id, exchange, entry.reply or b"")
                send(parts, room)

        def on_refusal(reason: str) -> None:
            self._journal.record_refusal(entry, reason)
            refuse(reason)

        if not (
            self._brokers.is_paused(self._node_id)
            or self._plan.watches("request", exchange.api_key)
            or self._plan.watches("reply", exchange.api_key)
        ):
            return self._dispatcher.start(frame, session, sent, on_refusal, claim)
        steered = self._steer(exchange, entry, session, sent, on_refusal, claim)
        return self._turns.start(steered, lambda _none: None, lambda error: on_refusal(f"a fault failed: {error!r}"))

    def _serve_kit(
        self, frame: memoryview, session: Session, send: Send, refuse: Refuse, claim: Reservation | None
    ) -> Activity[Any] | None:
        """Serve a request of the test kit itself, which meets no fault and no change to the brokers."""
        self._brokers.note_kit(session.peer)
        broker = self._broker
        frozen, broker.metadata = broker.metadata, broker.cluster
        try:
            return self._of_the_kit.start(frame, session, send, refuse, claim)
        finally:
            broker.metadata = frozen

    async def _steer(
        self,
        exchange: Exchange,
        entry: JournalEntry,
        session: Session,
        send: Send,
        refuse: Refuse,
        claim: Reservation | None,
    ) -> None:
        """Handle a request, and apply the faults that fire on it and on its reply."""
        if self._brokers.is_paused(self._node_id):
            await self._wait(lambda go_on: self._brokers.hold(self._node_id, go_on), claim)
        twice = False
        for fault in self._plan.find_firing("request", exchange, exchange.api_key):
            entry.record_fault(fault)
            if fault.do == "reply":
                _release(claim)
                send([_refusal(exchange, fault)], None)
                return
            if fault.do == "drop":
                _release(claim)
                refuse(exchange.blame(fault))
                return
            twice |= fault.do == "duplicate"
            await self._pass(fault, claim)
        if twice:
            await self._serve(exchange, session, None)
        served = await self._serve(exchange, session, claim)
        if served.reason:
            refuse(served.reason)
            return
        for fault in self._plan.find_firing("reply", exchange, exchange.api_key):
            entry.record_fault(fault)
            if fault.do == "drop":
                _forget(served)
                refuse(exchange.blame(fault))
                return
            if fault.do == "lose":
                _forget(served)
                served = _Served()
            await self._pass(fault)
        send(served.parts, served.room)

    async def _pass(self, fault: Fault, claim: Reservation | None = None) -> None:
        """Wait for the fault's delay or release, or crash the process."""
        if fault.do == "crash":
            crash(fault)
        if fault.do == "delay":
            await self._wait(lambda go_on: self._real_clock.call_later(fault.ms, go_on).cancel, claim)
        elif fault.do == "hold" and not fault.released:
            await self._wait(lambda go_on: self._plan.hold(fault, go_on), claim)

    async def _wait(
        self, begin: Callable[[Callable[[], None]], Callable[[], object]], claim: Reservation | None
    ) -> None:
        """Wait until the function that `begin` gets is called. `begin` returns a function that cancels this."""
        wait: Wait[None] = Wait(self._turns)
        leave = begin(lambda: wait.wake(None))

        def give_up() -> None:
            leave()
            _release(claim)

        wait.on_discard = give_up
        await wait

    async def _serve(self, exchange: Exchange, session: Session, claim: Reservation | None) -> _Served:
        """Have the broker handle the request, and return the result."""
        wait: Wait[_Served] = Wait(self._turns)
        activity = self._dispatcher.start(
            memoryview(bytearray(exchange.frame)),  # the broker writes offsets into the batches of a Produce
            session,
            lambda parts, room: wait.wake(_Served(parts, room)),
            lambda reason: wait.wake(_Served(reason=reason)),
            claim,
        )
        if activity is not None:
            wait.on_discard = activity.discard
        return await wait


def _refusal(exchange: Exchange, fault: Fault) -> bytes:
    key, version = exchange.api_key, exchange.api_version
    return error_reply(key, version, exchange.correlation_id, exchange.decode(), fault.error)


def _release(claim: Reservation | None) -> None:
    if claim is not None:
        claim.release()


def _forget(served: _Served) -> None:
    if served.room is not None:
        served.room.built(0)
