"""The world of the model: its state, and every event that may be next. pure

A state has five numbers and the messages that no producer or coordinator waits for:

    (coordinator, partition 0, partition 1, producer A, producer B, messages)

Two values belong to a state but are stored next to it: the rest of the bounds, and the late messages that hit V1.

These rules make the model small, and lose no behaviour:

1. A reply reaches its producer at once. Only the producer sees it, and its next request may arrive at any time. A lost
   reply is a copy of the request that arrives first.
2. A copy is made when its message is sent. It may arrive at any later time, or never.
3. A late copy that changes nothing is not delivered: the state that still has it has all successors of the one without.
4. A write of V2 that waits for its addition arrives again when the addition is durable: adding is idempotent, and the
   write is verified again in any case.
5. The reply to a marker reaches the coordinator at once. A reply on its way is like a Complete record that is not
   durable yet, which a crash may lose as well.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from lab.model.clients import Clients, Phase, Turn
from lab.model.coordinator import Coordinators
from lab.model.partition import Partition, PartitionSteps
from lab.model.values import V2, Bounds, Interned, Kind, Marker, Message, Reply, Request, Violation
from ottla.broker.api import verification
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.protocol.errors import ErrorCode

State = tuple[int, int, int, int, int, tuple[int, ...]]

LATE_END: Final = 1
LATE_WRITE: Final = 2
LATE_MARKER: Final = 4
LATE_ADD: Final = 8
CAUSES: Final = {
    LATE_END: "late EndTxn",
    LATE_WRITE: "late Produce",
    LATE_MARKER: "late marker",
    LATE_ADD: "late AddPartitionsToTxn",
}


class Left(NamedTuple):
    """The rest of the bounds in a state."""

    copies: int
    give_ups: int
    crashes: int
    timeouts: int


class Event(NamedTuple):
    """An event. `message` is the one that arrives; `detail` distinguishes choices."""

    name: str
    who: int = -1
    message: Message | None = None
    detail: tuple[int, ...] = ()


class Next(NamedTuple):
    """An event and the state after it. `helps`: the event needs no fault and no late copy."""

    event: Event
    state: State
    left: Left
    hits: int = 0
    helps: bool = True


class Written(NamedTuple):
    """The result of a write: coordinator and partition after it, the reply (None: it waits for its addition).

    `changed`: the write changed any state. `effect`: LATE_ADD or LATE_WRITE, the hit if the write is late, or 0.
    """

    coordinator: int
    partition: int
    reply: Reply | None
    changed: bool
    effect: int


class World:
    """The states and events within one set of bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.coordinators = Coordinators(bounds)
        self.partitions = PartitionSteps()
        self.clients = Clients(bounds)
        self.messages: Interned[Message] = Interned()
        self.trying = Event("begins")
        """The event being computed, for the report of a Violation in it."""
        self._written: dict[tuple[int, int, Request], Written] = {}

    def first(self) -> Iterator[Next]:
        """Return every first state: both producers have sent InitProducerId, perhaps more than once."""
        left = Left(self.bounds.copies, self.bounds.give_ups, self.bounds.crashes, self.bounds.timeouts)
        empty = self.partitions.number(Partition((), ProducerStateManager()))
        base: State = (self.coordinators.first(), empty, empty, -1, -1, ())
        for a in self.clients.first(0):
            for b in self.clients.first(1):
                if a.copies + b.copies <= left.copies:
                    first = self._turned(Event("begins"), base, left, 0, a)
                    yield self._turned(first.event, first.state, first.left, 1, b)

    # --- next events

    def successors(self, state: State, left: Left) -> Iterator[Next]:
        """Return every event and the state after it, without refusals that change nothing."""
        coordinator = state[0]
        clients = self.clients
        for who in (0, 1):
            for slot, request in clients.requests(client_of(state, who)):
                yield from self._arrives(state, left, who, slot, request)
            if left.give_ups:
                for turn in clients.gives_up(client_of(state, who)):
                    if turn.copies <= left.copies:
                        event = Event("gives up", who, detail=(turn.copies,))
                        after = self._turned(event, state, left._replace(give_ups=left.give_ups - 1), who, turn)
                        yield after._replace(helps=False)
        if self.coordinators.known[coordinator].appending:
            yield from self._durable(state, left)
        for marker in self.coordinators.markers(coordinator):
            yield self._mark(state, left, marker, late=False)
        previous = -1
        for message in state[5]:
            if message != previous:
                yield from self._late(state, left, message)
            previous = message
        yield from self._fails(state, left)

    def at_rest(self, state: State) -> bool:
        """Return whether both producers are done and only late copies are on their way."""
        coordinator = self.coordinators.known[state[0]]
        done = all(self.clients.known[each].phase is Phase.DONE for each in state[3:5])
        return done and not coordinator.appending and not self.coordinators.markers(state[0])

    # --- events

    def _arrives(self, state: State, left: Left, who: int, slot: int, request: Request) -> Iterator[Next]:
        event = self.trying = Event("arrives", who, request)
        if request.kind is Kind.PRODUCE:
            written = self.write(state, request)
            after = _replaced(state, written.coordinator, request.place, written.partition)
            reply = written.reply
        else:
            asked = self.coordinators.ask(state[0], request)
            after, reply = _replaced(state, asked.coordinator), asked.reply
            if reply is None:
                held = self.clients.held(client_of(state, who), slot)
                yield Next(event, _with_client(after, who, held), left, self._stray_end(request, asked.stray))
                return
        if reply is None or reply.error in _SENT_AGAIN:
            if after != state:
                yield Next(event, after, left)
            return
        for turn in self.clients.answered(client_of(state, who), slot, reply):
            if turn.copies <= left.copies:
                detail = (reply.error, turn.client, turn.copies)
                yield self._turned(event._replace(detail=detail), after, left, who, turn)

    def _late(self, state: State, left: Left, number: int) -> Iterator[Next]:
        message = self.messages[number]
        if isinstance(message, Marker):
            marked = self._mark(state, left, message, late=True)
            if marked.state != state:
                yield marked._replace(state=_without(marked.state, number), helps=False)
            return
        self.trying = Event("arrives late", message.client, message)
        past = self.clients.known[client_of(state, message.client)].txn > message.txn
        if message.kind is Kind.PRODUCE:
            yield from self._late_write(state, left, number, message, past)
            return
        asked = self.coordinators.ask(state[0], message)
        if not asked.wrote:
            return
        hits = self._stray_end(message, asked.stray)
        if past and message.kind is not Kind.INIT and not hits:
            hits = self._late_effect(message, LATE_ADD if message.kind is Kind.ADD else 0)
        # No producer waits for the answer.
        after = _replaced(_without(state, number), self._unwaited(asked.coordinator))
        yield Next(self.trying, after, left, hits, helps=False)

    def _late_write(self, state: State, left: Left, number: int, request: Request, past: bool) -> Iterator[Next]:
        written = self.write(state, request)
        if not written.changed:
            return
        hits = self._late_effect(request, written.effect) if past and written.effect else 0
        rest = _without(state, number) if written.effect == LATE_WRITE else state
        after = _replaced(rest, written.coordinator, request.place, written.partition)
        yield Next(Event("arrives late", request.client, request), after, left, hits, helps=False)

    def _durable(self, state: State, left: Left) -> Iterator[Next]:
        self.trying = Event("durable")
        after_number, waiter, reply = self.coordinators.durable(state[0])
        after = _replaced(state, after_number)
        sent = self._fanned_out(state[0], after, left)
        for pool, spent in sent:
            base: State = (*after[:5], pool)
            remaining = left._replace(copies=left.copies - spent)
            event = Event("durable", waiter, detail=(spent,))
            if waiter < 0:
                yield Next(event._replace(detail=(spent, *pool)), base, remaining)
                continue
            for turn in self.clients.answered(client_of(state, waiter), 0, reply):
                if turn.copies <= remaining.copies:
                    detail = (reply.error, turn.client, turn.copies, *pool)
                    yield self._turned(event._replace(detail=detail), base, remaining, waiter, turn)

    def _fails(self, state: State, left: Left) -> Iterator[Next]:
        if left.timeouts or self.at_rest(state):
            self.trying = Event("times out")
            timed_out = self.coordinators.time_out(state[0])
            if timed_out is not None:
                helps = self.at_rest(state)
                remaining = left if helps else left._replace(timeouts=left.timeouts - 1)
                yield Next(Event("times out"), _replaced(state, timed_out), remaining, helps=helps)
        if left.crashes:
            self.trying = Event("crashes")
            under_way = len(self.coordinators.known[state[0]].appending)
            a, b = (self.clients.disconnected(each) for each in state[3:5])
            for kept in range(under_way + 1):
                number = self.coordinators.crash(state[0], kept)
                after: State = (number, state[1], state[2], a, b, state[5])
                remaining = left._replace(crashes=left.crashes - 1)
                for pool, spent in self._fanned_out(-1, after, remaining):
                    event = Event("crashes", detail=(kept, under_way, *pool))
                    spending = remaining._replace(copies=remaining.copies - spent)
                    yield Next(event, (*after[:5], pool), spending, helps=False)

    # --- parts

    def write(self, state: State, request: Request) -> Written:
        """Handle a write that arrives at its partition."""
        coordinator, partition = state[0], partition_of(state, request.place)
        key = (coordinator, partition, request)
        known = self._written.get(key)
        if known is None:
            known = self._written[key] = self._written_by(coordinator, partition, request)
        return known

    def _written_by(self, coordinator: int, partition: int, request: Request) -> Written:
        """Handle Produce as `api/produce.py` does: ask the log, then the coordinator, then append."""
        before = (coordinator, partition)
        v2 = self.bounds.generations[request.client] == V2

        def refused(error: ErrorCode) -> Written:
            return Written(coordinator, partition, Reply(error), (coordinator, partition) != before, 0)

        said = self._local_verification(partition, request)
        if said is None:
            partition = self.partitions.maybe_start_transaction_verification(partition, request, v2)
            if v2:
                asked = self.coordinators.ask(coordinator, request)
                coordinator = asked.coordinator
                if asked.reply is None:
                    return Written(coordinator, partition, None, True, LATE_ADD)
                if asked.reply.error:
                    return refused(_of_write(asked.reply.error))
            said = self.coordinators.verify(coordinator, request)
        if said:
            return refused(_of_write(said))
        serial = self.coordinators.known[coordinator].members.serial
        appended = self.partitions.append(partition, request, serial)
        after = (coordinator, appended.partition)
        return Written(*after, Reply(appended.error), after != before, LATE_WRITE if appended.written else 0)

    def _local_verification(self, partition: int, request: Request) -> ErrorCode | None:
        # This uses only two members of a partition, and the model's partition has both.
        known: Partition = self.partitions.known[partition]
        return verification.local_verification(known, request.producer_id, request.epoch)  # type: ignore[arg-type]

    def _mark(self, state: State, left: Left, marker: Marker, *, late: bool) -> Next:
        name = "marker arrives late" if late else "marker arrives"
        self.trying = Event(name, message=marker)
        marked = self.partitions.mark(partition_of(state, marker.place), marker)
        hits = 0
        if marked.strays:
            if marker.version >= V2:
                raise Violation("stray-marker", f"{marker} ended another transaction")
            hits = LATE_MARKER
        coordinator = state[0] if late else self.coordinators.marker_answered(state[0], marker, marked.error)
        after = _replaced(state, coordinator, marker.place, marked.partition)
        return Next(Event(name, message=marker, detail=(marked.error,)), after, left, hits)

    def _stray_end(self, request: Request, stray: bool) -> int:
        return self._late_effect(request, LATE_END) if stray else 0

    def _late_effect(self, request: Request, hit: int) -> int:
        """Return the hit of a request whose transaction has ended for its producer. V2 forbids it: raise Violation."""
        if self.bounds.generations[request.client] == V2:
            raise Violation("late-effect", f"{request} took effect in another transaction")
        return hit

    def _unwaited(self, number: int) -> int:
        """Return the same coordinator without a producer that waits for its last record."""
        coordinator = self.coordinators.known[number]
        *others, last = coordinator.appending
        return self.coordinators.number(coordinator._replace(appending=(*others, last._replace(waiter=-1))))

    def _fanned_out(self, before: int, state: State, left: Left) -> list[tuple[tuple[int, ...], int]]:
        """Return (messages, copies spent) for each subset of the markers sent now that are sent twice."""
        choices = [(state[5], 0)]
        markers = self.coordinators.markers(state[0])
        if not left.copies or not markers or (before >= 0 and self.coordinators.markers(before) == markers):
            return choices
        choices += [(self._pool(state[5], (marker,)), 1) for marker in markers]
        if left.copies > 1 and len(markers) > 1:
            choices.append((self._pool(state[5], markers), 2))
        return choices

    def _turned(self, event: Event, state: State, left: Left, who: int, turn: Turn) -> Next:
        after = _with_client(state, who, turn.client)
        if turn.left:
            after = (*after[:5], self._pool(after[5], turn.left))
        if turn.copies:
            left = left._replace(copies=left.copies - turn.copies)
        return Next(event, after, left)

    def _pool(self, pool: tuple[int, ...], more: tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(sorted((*pool, *(self.messages.number(each, each) for each in more))))


_SENT_AGAIN: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})


def partition_of(state: State, place: int) -> int:
    return state[2] if place else state[1]


def client_of(state: State, who: int) -> int:
    return state[4] if who else state[3]


def _of_write(error: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def _replaced(state: State, coordinator: int, place: int = -1, partition: int = -1) -> State:
    if place == 0:
        return (coordinator, partition, *state[2:])
    if place == 1:
        return (coordinator, state[1], partition, *state[3:])
    return (coordinator, *state[1:])


def _with_client(state: State, who: int, client: int) -> State:
    if who == 0:
        return (*state[:3], client, *state[4:])
    return (*state[:4], client, state[5])


def _without(state: State, message: int) -> State:
    pool = list(state[5])
    pool.remove(message)
    return (*state[:5], tuple(pool))
