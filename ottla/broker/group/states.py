"""The states of a classic consumer group, in one table. pure

Rules

1. A group is created Empty. It is Empty again when its last member has left; only then may it be deleted.
2. The first member, a new member, a member that leaves or changes its protocols: PreparingRebalance. Members join.
3. All members have joined, or the rebalance timeout has passed: a new generation, CompletingRebalance. The leader
   computes the assignment.
4. The leader's SyncGroup is logged: Stable.
5. Dead is the last state: the group was deleted, and its members get an error that makes them find the coordinator
   again.

Source: `org.apache.kafka.coordinator.group.classic.ClassicGroupState`.
"""

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """A state, with the name that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


ALLOWED_PREVIOUS: Final = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""Target state to the states from which it may be entered."""


def check_transition(group_id: str, current: ClassicGroupState, target: ClassicGroupState) -> ClassicGroupState:
    """Return `target` if the transition is valid. An invalid transition is a bug and raises RuntimeError."""
    if current not in ALLOWED_PREVIOUS[target]:
        raise RuntimeError(f"group {group_id}: illegal transition {current.value} -> {target.value}")
    return target
