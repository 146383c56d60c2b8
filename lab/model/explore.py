"""Breadth-first exploration of the world until no state is new. pure

A state is skipped if it was seen before with at least as much left of every bound and after the same hits by late
messages: the earlier one covers all its successors. The first violation found has a shortest trace.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from lab.model.judge import Judge
from lab.model.reduction import Reduction
from lab.model.trace import describe, describe_event
from lab.model.values import Bounds, Violation
from lab.model.world import CAUSES, LATE_ADD, Event, Left, Next, State, World


class Finding(NamedTuple):
    """A broken rule, and the steps that lead to it, one line each."""

    rule: str
    detail: str
    trace: tuple[str, ...]


class Result(NamedTuple):
    """Figures of an exploration. `complete`: every state within the bounds was seen.

    `shared` counts, by cause, the events in which a late message hit a V1 transaction other than its own. `anomalies`
    counts the states in which consumers or producers can see that, by anomaly and cause. Kafka has both (KAFKA-17754).
    """

    bounds: Bounds
    states: int
    transitions: int
    depth: int
    rests: int
    complete: bool
    shared: dict[str, int]
    anomalies: dict[str, int]
    finding: Finding | None


class Leaf(NamedTuple):
    """A state at rest, and the steps that lead to it."""

    trace: tuple[str, ...]
    steps: tuple[tuple[Event, State], ...]
    """Each event and the state after it."""


class Explorer:
    """An exploration. `most_states` ends it early."""

    def __init__(self, bounds: Bounds, most_states: int = 50_000_000) -> None:
        self.world = World(bounds)
        self.judge = Judge(self.world)
        self.reduction = Reduction(self.world, not bounds.keeps_fenced)
        self.rests: list[int] = []
        self._most_states = most_states
        self._states: list[State] = []
        self._lefts = array("H")
        self._hits = array("B")
        self._parents = array("l")
        self._better = _Better(bounds)
        # By hits: state -> a bit for each Left that the state was seen with.
        self._seen: defaultdict[int, dict[State, int]] = defaultdict(dict)
        self._shared: Counter[str] = Counter()
        self._anomalies: Counter[str] = Counter()

    def run(self) -> Result:
        """Explore until the end, a violation, or `most_states`."""
        finding = None
        transitions = depth = 0
        try:
            for each in self.world.first():
                self._enter(each, -1, 0)
            at, ends = 0, len(self._states)
            while at < len(self._states) < self._most_states:
                if at == ends:
                    depth, ends = depth + 1, len(self._states)
                transitions += self._expand(at)
                at += 1
        except Found as found:
            lines, _steps = self._trace(found.at)
            last = () if found.event is None else (describe_event(found.event),)
            finding = Finding(found.rule, found.detail, (*lines, *last))
        complete = finding is None and len(self._states) < self._most_states
        return Result(
            self.world.bounds,
            len(self._states),
            transitions,
            depth,
            len(self.rests),
            complete,
            dict(sorted(self._shared.items())),
            dict(sorted(self._anomalies.items())),
            finding,
        )

    def leaves(self, count: int) -> list[Leaf]:
        """Return `count` of the states at rest, in a pseudo-random choice that is the same each time."""
        chosen = sorted(self.rests, key=lambda number: (crc32(b"%d" % number), number))[:count]
        return [Leaf(*self._trace(number)) for number in chosen]

    # --- parts

    def _expand(self, at: int) -> int:
        state, left, hits = self._states[at], self._better.values[self._lefts[at]], self._hits[at]
        count, helped = 0, False
        try:
            for each in self.world.successors(state, left):
                count += 1
                helped = helped or each.helps
                self._enter(each, at, hits)
        except Violation as violation:
            raise Found(violation.rule, str(violation).partition(": ")[2], at, self.world.trying) from violation
        if self.world.at_rest(state):
            if not helped:
                self.rests.append(at)
                self._check(self.judge.rest(state), at)
                if self.judge.content(state, False) is None:  # otherwise it is counted already
                    self._check_content(state, hits, at, at_rest=True)
        elif not helped:
            raise Found("stuck", "nothing more can happen by itself, and somebody still waits", at, None)
        return count

    def _enter(self, each: Next, parent: int, hits: int) -> None:
        for cause in _bits(each.hits):
            self._shared[CAUSES[cause]] += 1
        hits |= each.hits & ~LATE_ADD
        rank = self._better.ranks[each.left]
        state = self.reduction.representative(self.reduction.without_fenced(each.state))
        seen = self._seen[hits]
        known = seen.get(state, 0)
        if known & self._better.masks[rank]:
            return
        seen[state] = known | 1 << rank
        number = len(self._states)
        self._states.append(state)
        self._lefts.append(rank)
        self._hits.append(hits)
        self._parents.append(parent)
        self._check_content(state, hits, number, at_rest=False)

    def _check_content(self, state: State, hits: int, at: int, *, at_rest: bool) -> None:
        problem = self.judge.content(state, at_rest)
        if problem is not None and hits:
            causes = " and ".join(CAUSES[cause] for cause in _bits(hits))
            self._anomalies[f"{problem.partition(':')[0]} by {causes}"] += 1
        else:
            self._check(problem, at)

    @staticmethod
    def _check(problem: str | None, at: int) -> None:
        if problem is not None:
            rule, _, detail = problem.partition(": ")
            raise Found(rule, detail, at, None)

    def _trace(self, at: int) -> tuple[tuple[str, ...], tuple[tuple[Event, State], ...]]:
        path = []
        while at >= 0:
            path.append(at)
            at = self._parents[at]
        path.reverse()
        begin = next(
            each for each in self.world.first() if self.reduction.representative(each.state) == self._states[path[0]]
        )
        lines, steps, actual = [describe(self.world, None, begin)], [(begin.event, begin.state)], begin.state
        for before, after in pairwise(path):
            step = self._step(actual, before, after)
            lines.append(describe(self.world, actual, step))
            steps.append((step.event, step.state))
            actual = self.reduction.without_fenced(step.state)
        return tuple(lines), tuple(steps)

    def _step(self, actual: State, before: int, after: int) -> Next:
        """Return the step from `actual` to a state whose representative is state number `after`."""
        goal, spent = self._states[after], self._better.values[self._lefts[after]]
        for each in self.world.successors(actual, self._better.values[self._lefts[before]]):
            state = self.reduction.without_fenced(each.state)
            if each.left == spent and self.reduction.representative(state) == goal:
                return each
        raise AssertionError("a state without the event that led to it")


class Found(Exception):
    """Raised for a violation in state number `at`, or by `event` from there."""

    def __init__(self, rule: str, detail: str, at: int, event: Event | None) -> None:
        super().__init__(rule)
        self.rule = rule
        self.detail = detail
        self.at = at
        self.event = event


class _Better:
    """All possible rests of the bounds, numbered. `masks[n]` has a bit for each that is at least as much as n."""

    def __init__(self, bounds: Bounds) -> None:
        self.values = [
            Left(copies, give_ups, crashes, timeouts)
            for copies in range(bounds.copies + 1)
            for give_ups in range(bounds.give_ups + 1)
            for crashes in range(bounds.crashes + 1)
            for timeouts in range(bounds.timeouts + 1)
        ]
        self.ranks = {left: rank for rank, left in enumerate(self.values)}
        self.masks = [
            sum(1 << rank for rank, other in enumerate(self.values) if _covers(other, left)) for left in self.values
        ]


def _covers(more: Left, less: Left) -> bool:
    return all(a >= b for a, b in zip(more, less, strict=True))


def _bits(hits: int) -> Sequence[int]:
    return [cause for cause in CAUSES if hits & cause] if hits else ()
