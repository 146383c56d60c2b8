"""The coordinator of the model: does the work of the broker's `coordinator.py`, one event at a time. pure

Every decision, every new state and every change of the transient state is made by `ottla.broker.txn.machine`. Each
append takes time: the record is pending until the event `durable`, and a crash may lose it or keep it.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from lab.model.values import (
    AFTER_TIMEOUT_MS,
    NOW_MS,
    PLACES,
    TIMEOUT_MS,
    TRANSACTIONAL_ID,
    V2,
    Bounds,
    Interned,
    Kind,
    Marker,
    Reply,
    Request,
    Violation,
)
from ottla.broker.txn import end_txn_rules, machine
from ottla.broker.txn.states import IllegalMove, TransactionStatus
from ottla.broker.txn.values import (
    NEED_PRODUCER_ID,
    NO_PARTITIONS,
    NO_PENDING,
    Decision,
    TransactionState,
    TransientState,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_PRODUCER_ID, TopicPartition

NOBODY: Final = -1
FIRST_PRODUCER_ID: Final = 7
DROPPED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Answers of a partition that will never take the marker; the transaction ends without it (`markers.py`)."""


class Members(NamedTuple):
    """Facts that the broker's code does not know: the number of transactions of the id, and (producer, transaction)
    for which a partition was last added to the newest one."""

    serial: int = 0
    newest: tuple[int, int] | None = None


class Append(NamedTuple):
    """A record that is not durable yet, and the producer that gets its answer when the record is durable."""

    decision: Decision
    waiter: int
    members: Members


class Coordinator(NamedTuple):
    """The coordinator's state. `state` is the last durable record of the id; `watched`: its timeout is checked."""

    state: TransactionState | None
    transient: TransientState = NO_PENDING
    appending: tuple[Append, ...] = ()
    epoch: int = 0
    fresh: int = FIRST_PRODUCER_ID
    members: Members = Members()
    watched: bool = False


class Asked(NamedTuple):
    """The result of a request: the coordinator after it, the reply (None: it waits), whether a record is logged."""

    coordinator: int
    reply: Reply | None
    wrote: bool
    stray: bool
    """Whether EndTxn decided another transaction than the one that it was sent for."""


class Coordinators:
    """All known states of the coordinator, and their steps. Each step is computed once."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.known: Interned[Coordinator] = Interned()
        self._asked: dict[tuple[int, Request], Asked] = {}
        self._durable: dict[int, tuple[int, int, Reply]] = {}
        self._verified: dict[tuple[int, int, int, int], ErrorCode] = {}
        self._markers: dict[int, tuple[Marker, ...]] = {}
        self._answered: dict[tuple[int, Marker, ErrorCode], int] = {}

    def number(self, coordinator: Coordinator) -> int:
        return self.known.number(coordinator, _key(coordinator))

    def first(self) -> int:
        """Return the state before the run: no such id, or one that has used some epochs."""
        if self.bounds.first_epoch < 0:
            return self.number(Coordinator(None))
        state = TransactionState(
            FIRST_PRODUCER_ID,
            self.bounds.first_epoch,
            TransactionStatus.EMPTY,
            TIMEOUT_MS,
            NO_PARTITIONS,
            -1,
            NOW_MS,
            FIRST_PRODUCER_ID,
        )
        return self.number(Coordinator(state, fresh=FIRST_PRODUCER_ID + 1))

    # --- events

    def ask(self, number: int, request: Request) -> Asked:
        """Handle a request of a producer. For PRODUCE this is the addition of the partition in transactions V2."""
        known = self._asked.get((number, request))
        if known is None:
            known = self._asked[number, request] = self._ask(self.known[number], request)
        return known

    def durable(self, number: int) -> tuple[int, int, Reply]:
        """Make the oldest pending record durable. Return the new coordinator, the waiting producer, and its reply."""
        known = self._durable.get(number)
        if known is None:
            coordinator = self.known[number]
            first = coordinator.appending[0]
            after = self._applied(coordinator._replace(appending=coordinator.appending[1:]), first)
            known = self._durable[number] = self.number(after), first.waiter, _reply(first.decision)
        return known

    def time_out(self, number: int) -> int | None:
        """Abort the open transaction after its timeout. Return None if there is none to abort."""
        coordinator = self.known[number]
        state, transient = coordinator.state, coordinator.transient
        if state is None or not coordinator.watched or not machine.has_timed_out(state, transient, AFTER_TIMEOUT_MS):
            return None
        level, fresh = self.bounds.level, coordinator.fresh
        decision = end_txn_rules.decide_abort(state, transient, level, NOW_MS, NO_PRODUCER_ID, ErrorCode.NONE)
        if decision is NEED_PRODUCER_ID:
            decision = end_txn_rules.decide_abort(state, transient, level, NOW_MS, fresh, ErrorCode.NONE)
            coordinator = coordinator._replace(fresh=fresh + 1)
        return self.number(self._append(coordinator, decision, NOBODY, coordinator.members))

    def crash(self, number: int, kept: int) -> int:
        """Restart the coordinator: replay the durable records and the first `kept` of the pending ones."""
        coordinator = self.known[number]
        states = {} if coordinator.state is None else {TRANSACTIONAL_ID: coordinator.state}
        members = coordinator.members
        for append in coordinator.appending[:kept]:
            machine.apply_record(states, TRANSACTIONAL_ID, append.decision.record)
            members = append.members
        state = states.get(TRANSACTIONAL_ID)
        after = Coordinator(state, epoch=coordinator.epoch + 1, fresh=coordinator.fresh, members=members)
        return self.number(after if state is None else self._effects(after, None, state))

    def marker_answered(self, number: int, marker: Marker, error: ErrorCode) -> int:
        """Handle the answer of a partition to its marker."""
        key = (number, marker, error)
        known = self._answered.get(key)
        if known is None:
            known = self._answered[key] = self.number(self._settle(self.known[number], marker, error))
        return known

    # --- questions

    def markers(self, number: int) -> tuple[Marker, ...]:
        """Return the markers that are still to be written."""
        known = self._markers.get(number)
        if known is None:
            known = self._markers[number] = written_by(self.known[number])
        return known

    def verify(self, number: int, request: Request) -> ErrorCode:
        """Return NONE if the partition of a write belongs to the open transaction, otherwise the error."""
        key = (number, request.producer_id, request.epoch, request.place)
        known = self._verified.get(key)
        if known is None:
            coordinator = self.known[number]
            (known,) = machine.verify_partitions(
                coordinator.state, coordinator.transient, request.producer_id, request.epoch, [PLACES[request.place]]
            )
            self._verified[key] = known
        return known

    # --- parts

    def _ask(self, coordinator: Coordinator, request: Request) -> Asked:
        decision = self._decide(coordinator, request, NO_PRODUCER_ID)
        if decision is NEED_PRODUCER_ID:
            decision = self._decide(coordinator, request, coordinator.fresh)
            coordinator = coordinator._replace(fresh=coordinator.fresh + 1)
        members = coordinator.members
        tag = (request.client, request.txn)
        adds = request.kind in (Kind.ADD, Kind.PRODUCE) and not decision.error
        if adds:
            began = decision.record is not None and _status(coordinator) is not TransactionStatus.ONGOING
            newest = tag if began or members.newest is None or members.newest[0] != tag[0] else max(members.newest, tag)
            members = Members(members.serial + began, newest)
        if decision.record is None:
            return Asked(self.number(coordinator._replace(members=members)), _reply(decision), False, False)
        open_now = _status(coordinator) is TransactionStatus.ONGOING
        stray = request.kind is Kind.END and open_now and members.newest != tag
        waiter = NOBODY if request.kind is Kind.PRODUCE else request.client
        after = self._append(coordinator, decision, waiter, members)
        return Asked(self.number(after), None, True, stray)

    def _decide(self, coordinator: Coordinator, request: Request, fresh: int) -> Decision:
        state, transient = coordinator.state, coordinator.transient
        producer_id, epoch = request.producer_id, request.epoch
        if request.kind is Kind.INIT:
            return machine.decide_init_producer_id(
                state, transient, TIMEOUT_MS, producer_id, epoch, self.bounds.level, NOW_MS, fresh
            )
        v2 = self.bounds.generations[request.client] == V2
        if request.kind is Kind.END:
            if v2:
                return end_txn_rules.decide_end_v2(state, transient, producer_id, epoch, request.commit, NOW_MS, fresh)
            return end_txn_rules.decide_end(state, transient, producer_id, epoch, request.commit, NOW_MS)
        places: Sequence[TopicPartition] = PLACES if request.kind is Kind.ADD else [PLACES[request.place]]
        return machine.decide_add_partitions(state, transient, producer_id, epoch, places, NOW_MS, V2 if v2 else 0)

    def _append(self, coordinator: Coordinator, decision: Decision, waiter: int, members: Members) -> Coordinator:
        record = decision.record
        assert record is not None
        try:
            machine.check_step(coordinator.state, record)
        except (IllegalMove, machine.Impossible) as error:
            raise Violation("illegal-move", str(error)) from error
        return coordinator._replace(
            transient=machine.append_began(coordinator.transient, record, decision.fenced_epoch),
            appending=(*coordinator.appending, Append(decision, waiter, members)),
        )

    def _applied(self, coordinator: Coordinator, append: Append) -> Coordinator:
        before, decision = coordinator.state, append.decision
        states = {} if before is None else {TRANSACTIONAL_ID: before}
        machine.apply_record(states, TRANSACTIONAL_ID, decision.record)
        state = states[TRANSACTIONAL_ID]
        _check_epochs(before, state)
        after = coordinator._replace(
            state=state,
            transient=machine.after_record(coordinator.transient, decision.last_epoch),
            members=append.members,
        )
        return self._effects(after, before, state)

    def _effects(
        self, coordinator: Coordinator, before: TransactionState | None, state: TransactionState
    ) -> Coordinator:
        for effect in machine.effects(before, state):
            if effect is machine.Effect.START_TIMEOUT:
                coordinator = coordinator._replace(watched=True)
            elif effect is machine.Effect.STOP_TIMEOUT:
                coordinator = coordinator._replace(watched=False)
            else:
                transient = machine.with_pending_completion(coordinator.transient, state, NOW_MS)
                coordinator = coordinator._replace(transient=transient)
                if not transient.awaiting:
                    coordinator = self._complete(coordinator)
        return coordinator

    def _complete(self, coordinator: Coordinator) -> Coordinator:
        transient = coordinator.transient
        if transient.pending is None:
            return coordinator
        decision = Decision(ErrorCode.NONE, transient.pending, last_epoch=transient.last_epoch)
        return self._append(coordinator, decision, NOBODY, coordinator.members)

    def _settle(self, coordinator: Coordinator, marker: Marker, error: ErrorCode) -> Coordinator:
        if error and error not in DROPPED:
            raise Violation("marker-refused", f"{marker} was answered {error.name}")
        transient = coordinator.transient
        awaiting = {place: None for place in transient.awaiting if place != PLACES[marker.place]}
        coordinator = coordinator._replace(transient=transient._replace(awaiting=awaiting))
        return coordinator if awaiting else self._complete(coordinator)


def written_by(coordinator: Coordinator) -> tuple[Marker, ...]:
    """Return the markers that a prepared transaction still waits for."""
    state = coordinator.state
    if state is None:
        return ()
    commit = state.status is TransactionStatus.PREPARE_COMMIT
    serial = coordinator.members.serial
    return tuple(
        Marker(
            PLACES.index(place),
            state.producer_id,
            state.producer_epoch,
            coordinator.epoch,
            commit,
            state.client_version,
            serial,
        )
        for place in sorted(coordinator.transient.awaiting)
    )


def _check_epochs(before: TransactionState | None, after: TransactionState) -> None:
    same_id = before is not None and before.producer_id == after.producer_id
    if before is not None and same_id and after.producer_epoch < before.producer_epoch:
        raise Violation("epoch-went-back", f"{before} -> {after}")


def _status(coordinator: Coordinator) -> TransactionStatus | None:
    return None if coordinator.state is None else coordinator.state.status


def _reply(decision: Decision) -> Reply:
    return Reply(decision.error, decision.producer_id, decision.producer_epoch)


def _frozen(state: TransactionState | None) -> Hashable:
    return None if state is None else (*state[:4], tuple(sorted(state.partitions)), *state[5:])


def _key(coordinator: Coordinator) -> Hashable:
    transient = coordinator.transient
    appending = tuple(
        (_frozen(append.decision.record), append.decision._replace(record=None), append.waiter, append.members)
        for append in coordinator.appending
    )
    return (
        _frozen(coordinator.state),
        _frozen(transient.pending),
        transient.last_epoch,
        transient.fenced_epoch,
        tuple(sorted(transient.awaiting)),
        appending,
        coordinator[3:],
    )
