"""Replicas that one broker cannot have, in Kafka's words and with the advice. pure"""

from collections.abc import Sequence
from typing import Final

ONE_BROKER: Final = "Ottla is one broker: use a replication factor of 1, or -1."


def replicas_problem(node_id: int, replicas: Sequence[int]) -> str:
    """Return the reason why a partition cannot have these replicas; empty if it can.

    Source: `ReplicationControlManager.validateManualPartitionAssignment`.
    """
    if not replicas:
        problem = "an empty replica list."
    elif (unknown := next((replica for replica in sorted(replicas) if replica != node_id), None)) is not None:
        problem = f"broker {unknown}, but no such broker is registered."
    elif len(replicas) > 1:
        problem = f"the broker {node_id} more than once."
    else:
        return ""
    advice = f"Ottla is one broker: assign each partition to broker {node_id} alone."
    return f"The manual partition assignment includes {problem} {advice}"
