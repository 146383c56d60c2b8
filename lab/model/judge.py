"""Checks of every state: the logs against the answers that the producers got. pure

`Judge.content` checks only the transactions, so it runs once for each combination of outcomes and answers.
"""

from collections.abc import Iterator
from typing import Final

from lab.model.partition import ABORTED, COMMITTED, OPEN, TWICE
from lab.model.values import NAMES
from lab.model.world import State, World, partition_of
from ottla.broker.txn.states import RESTING

Outcomes = tuple[tuple[tuple[int, int], int], ...]
_NOT_WRITTEN: Final = 0


class Judge:
    """Checks of the states of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._outcomes: list[int] = []
        self._outcome_numbers: dict[Outcomes, int] = {}
        self._outcome_values: list[Outcomes] = []
        self._fates: list[str] = []
        self._known: dict[tuple[int, int, str, str, bool], str | None] = {}

    def content(self, state: State, at_rest: bool) -> str | None:
        """Return the first problem of the transactions, or None."""
        key = (self._of(state[1]), self._of(state[2]), self._fate(state[3]), self._fate(state[4]), at_rest)
        if key not in self._known:
            zero, one, a, b, _ = key
            found = self._judge(dict(self._outcome_values[zero]), dict(self._outcome_values[one]), (a, b), at_rest)
            self._known[key] = next(found, None)
        return self._known[key]

    def rest(self, state: State) -> str | None:
        """Return a pending or open transaction in a state at rest, or None."""
        coordinator = self._world.coordinators.known[state[0]]
        if coordinator.transient.pending is not None:
            return f"stuck: {coordinator.transient.pending.status.wire_name} is pending for ever"
        if coordinator.state is not None and coordinator.state.status not in RESTING:
            return f"stuck: {coordinator.state.status.wire_name} for ever"
        for place in (0, 1):
            log, producers = self._world.partitions.known[partition_of(state, place)]
            if producers.first_unstable_offset() is not None:
                return f"hanging: a transaction is open on partition {place} for ever: {log}"
        return None

    # --- parts

    def _of(self, partition: int) -> int:
        outcomes = self._outcomes
        while len(outcomes) <= partition:
            found = tuple(sorted(self._world.partitions.outcomes(len(outcomes)).items()))
            number = self._outcome_numbers.setdefault(found, len(self._outcome_numbers))
            if number == len(self._outcome_values):
                self._outcome_values.append(found)
            outcomes.append(number)
        return outcomes[partition]

    def _fate(self, client: int) -> str:
        fates = self._fates
        while len(fates) <= client:
            known = self._world.clients.known[len(fates)]
            asked = known.phase.name == "END"
            fates.append(known.fates + (("c" if known.commit else "a") if asked else ""))
        return fates[client]

    def _judge(
        self, zero: dict[tuple[int, int], int], one: dict[tuple[int, int], int], fates: tuple[str, str], at_rest: bool
    ) -> Iterator[str]:
        for client, txn in sorted({*zero, *one, *((c, k) for c in (0, 1) for k in range(len(fates[c])))}):
            found = (zero.get((client, txn), _NOT_WRITTEN), one.get((client, txn), _NOT_WRITTEN))
            fate = fates[client][txn : txn + 1] or "-"
            name = f"transaction {txn} of {NAMES[client]}"
            either = found[0] | found[1]
            if either & TWICE:
                yield f"duplicate: a batch of {name} was appended twice"
            if either & COMMITTED and either & ABORTED:
                yield f"torn: {name} is committed on one partition and aborted on the other"
            if either & COMMITTED and fate not in "cC":
                yield f"committed-unasked: {name} is visible, and nobody asked to commit it"
            if fate == "C" and either & ABORTED:
                yield f"lost: {name} was acknowledged as committed and is aborted"
            if fate == "C" and _NOT_WRITTEN in found:
                yield f"lost: a batch of {name} was acknowledged and never written"
            if at_rest and either & OPEN:
                yield f"hanging: {name} is open for ever"
            if at_rest and fate == "C" and not found[0] & found[1] & COMMITTED:
                yield f"lost: {name} was acknowledged as committed and is not"
