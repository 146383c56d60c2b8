"""A dispatcher with faults before and after each request, and a journal of requests and replies. shell

A fault can hold, delay or answer a request before the broker handles it, and act on its reply afterwards. The handling
itself does not change. Requests of an API without planned faults are only recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.broker.api.context import Api, Broker
from ottla.broker.api.table import TABLE
from ottla.broker.dispatch import Dispatcher
from ottla.broker.memory import ReplyReservation, Reservation
from ottla.broker.outbox import Part
from ottla.broker.ports.clock import Clock
from ottla.broker.request_observer import Refuse, Send
from ottla.broker.security.session import Session
from ottla.broker.turns import Activity, Wait
from ottla.protocol.errors import ProtocolError
from ottla.protocol.subject import NameOf
from ottla.testkit.control import KIT_CLIENT_ID
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


class SteeredDispatcher(Dispatcher):
    """Dispatcher with faults. `real_clock` is the machine's: delays end even while the broker's clock is stopped."""

    __slots__ = ("_journal", "_name_of", "_of_the_kit", "_plan", "_real_clock", "_turns")

    def __init__(
        self,
        broker: Broker,
        plan: Plan,
        journal: Journal,
        real_clock: Clock,
        name_of: NameOf,
        table: Mapping[int, Api] = TABLE,
    ) -> None:
        super().__init__(broker, table, first_use=True)
        self._of_the_kit = Dispatcher(broker, TABLE, first_use=True)
        self._turns = broker.turns
        self._plan = plan
        self._journal = journal
        self._real_clock = real_clock
        self._name_of = name_of

    def start(
        self,
        frame: memoryview,
        session: Session,
        send: Send,
        refuse: Refuse,
        claim: Reservation | None = None,
    ) -> Activity[Any] | None:
        if session.sends_tokens:  # a bare SASL token without a request header (SaslHandshake 0)
            return super().start(frame, session, send, refuse, claim)
        try:
            exchange = Exchange(bytes(frame), self._name_of)
        except ProtocolError:
            return super().start(frame, session, send, refuse, claim)
        if exchange.client_id == KIT_CLIENT_ID:
            return self._of_the_kit.start(frame, session, send, refuse, claim)
        entry = self._journal.begin(kept_request(exchange), session.peer)

        def sent(parts: Sequence[Part], room: ReplyReservation | None) -> None:
            if has_secret_reply(exchange):
                self._journal.record_reply(entry, kept_parts(exchange, parts))
                send(parts, room)
            else:
                send(self._journal.record_reply(entry, parts), room)

        def on_refusal(reason: str) -> None:
            self._journal.record_refusal(entry, reason)
            refuse(reason)

        if not (self._plan.watches("request", exchange.api_key) or self._plan.watches("reply", exchange.api_key)):
            return super().start(frame, session, sent, on_refusal, claim)
        steered = self._steer(exchange, entry, session, sent, on_refusal, claim)
        return self._turns.start(steered, lambda _none: None, lambda error: on_refusal(f"a fault failed: {error!r}"))

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
        wait: Wait[None] = Wait(self._turns)
        if fault.do == "delay":
            leave = self._real_clock.call_later(fault.ms, lambda: wait.wake(None)).cancel
        elif fault.do == "hold" and not fault.released:
            leave = self._plan.hold(fault, lambda: wait.wake(None))
        else:
            return

        def give_up() -> None:
            leave()
            _release(claim)

        wait.on_discard = give_up
        await wait

    async def _serve(self, exchange: Exchange, session: Session, claim: Reservation | None) -> _Served:
        """Have the broker handle the request, and return the result."""
        wait: Wait[_Served] = Wait(self._turns)
        activity = super().start(
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
