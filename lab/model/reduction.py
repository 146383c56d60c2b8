"""Representatives of equivalent states: partitions exchanged, and without late messages that stay fenced. pure

The partitions differ only in their numbers, so a state and its mirror image have the same future. A late message that
is refused because of its epoch, and changes nothing, is always refused: epochs only grow, in the coordinator's log and
in each partition. Every step checks that.
"""

from typing import Final

from lab.model.coordinator import Append
from lab.model.values import PLACES, Kind, Marker, Violation
from lab.model.world import State, World
from ottla.broker.txn.values import Partitions, TransactionState
from ottla.protocol.errors import ErrorCode

FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class Reduction:
    """Finds the representative of a state. `drops`: remove fenced messages."""

    def __init__(self, world: World, drops: bool) -> None:
        self._world = world
        self._drops = drops
        self._fenced: dict[tuple[int, int, int, int], bool] = {}
        self._coordinators: dict[int, int] = {}
        self._clients: dict[int, int] = {}
        self._messages: dict[int, int] = {}

    def without_fenced(self, state: State) -> State:
        """Return the state without the late messages that can no longer have an effect."""
        pool = state[5]
        if not pool or not self._drops:
            return state
        coordinator, zero, one = state[:3]
        kept = tuple(each for each in pool if not self._is_fenced(coordinator, zero, one, each))
        return state if len(kept) == len(pool) else (*state[:5], kept)

    def representative(self, state: State) -> State:
        """Return the smaller of the state and its mirror image."""
        coordinator, zero, one, a, b, pool = state
        mirrored = (
            self._mirrored_coordinator(coordinator),
            one,
            zero,
            self._mirrored_client(a),
            self._mirrored_client(b),
            tuple(sorted([self._mirrored_message(each) for each in pool])) if pool else pool,
        )
        return mirrored if mirrored < state else state

    # --- parts

    def _is_fenced(self, coordinator: int, zero: int, one: int, message: int) -> bool:
        key = (coordinator, zero, one, message)
        known = self._fenced.get(key)
        if known is None:
            try:
                known = self._refused(coordinator, zero, one, message) in FENCED
            except Violation:
                known = False  # the message breaks a rule, which its own event will report
            self._fenced[key] = known
        return known

    def _refused(self, coordinator: int, zero: int, one: int, number: int) -> ErrorCode | None:
        """Return the error that the message would get now, or None if it would change something."""
        world, message = self._world, self._world.messages[number]
        if isinstance(message, Marker):
            return world.partitions.mark((zero, one)[message.place], message).error
        if message.kind is Kind.PRODUCE:
            written = world.write((coordinator, zero, one, 0, 0, ()), message)
            return None if written.changed or written.reply is None else written.reply.error
        asked = world.coordinators.ask(coordinator, message)
        return None if asked.reply is None else asked.reply.error

    def _mirrored_coordinator(self, number: int) -> int:
        known = self._coordinators.get(number)
        if known is None:
            value = self._world.coordinators.known[number]
            transient = value.transient
            mirrored = value._replace(
                state=_mirrored_state(value.state),
                transient=transient._replace(
                    pending=_mirrored_state(transient.pending), awaiting=_mirrored_partitions(transient.awaiting)
                ),
                appending=tuple(map(_mirrored_append, value.appending)),
            )
            known = self._coordinators[number] = self._world.coordinators.number(mirrored)
            self._coordinators[known] = number
        return known

    def _mirrored_client(self, number: int) -> int:
        known = self._clients.get(number)
        if known is None:
            value = self._world.clients.known[number]
            first, second = value.sequences
            mirrored = value._replace(sequences=(second, first), slots=value.slots[::-1])
            known = self._clients[number] = self._world.clients.number(mirrored)
            self._clients[known] = number
        return known

    def _mirrored_message(self, number: int) -> int:
        known = self._messages.get(number)
        if known is None:
            value = self._world.messages[number]
            mirrored = value if value.place < 0 else value._replace(place=1 - value.place)
            known = self._messages[number] = self._world.messages.number(mirrored, mirrored)
            self._messages[known] = number
        return known


def _mirrored_partitions(partitions: Partitions) -> Partitions:
    return {PLACES[1 - PLACES.index(place)]: None for place in partitions}


def _mirrored_state(state: TransactionState | None) -> TransactionState | None:
    return None if state is None else state._replace(partitions=_mirrored_partitions(state.partitions))


def _mirrored_append(append: Append) -> Append:
    record = _mirrored_state(append.decision.record)
    return append._replace(decision=append.decision._replace(record=record))
