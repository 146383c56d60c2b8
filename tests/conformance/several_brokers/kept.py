"""Intended differences of three brokers of Ottla from three Apache Kafkas: script, reason, and what Ottla answers.

A change is the place of a value in the answer, and Ottla's value. All else is equal. An entry without a difference
fails its test.
"""

from typing import NamedTuple


class Kept(NamedTuple):
    reason: str
    changes: dict
    """{number of the step: {place: value}}."""


_NO_ELR = (
    "Ottla does not finalize `eligible.leader.replicas.version`: the last replica in sync stays in the set when its "
    "broker stops, as in a Kafka at level 0."
)
_ONE_LOG = "All replicas are one log: one that was stopped has what another leader has appended meanwhile."
_SHARE = "There are no share groups, so each key of their type is refused with a text."
_SINGLE = "The brokers are one process: settings of a single one would change all, and are refused."

KEPT = {
    "FindCoordinator: unusual keys and types": Kept(
        _SHARE, {key: {"coordinators.0.error_message": "text"} for key in (12, 15, 18)}
    ),
    "IncrementalAlterConfigs of a broker": Kept(
        _SINGLE,
        {key: {"responses.0.error_code": "INVALID_REQUEST", "responses.0.error_message": "text"} for key in (2, 5)},
    ),
}


def apply_changes(answer, changes):
    """Return an answer of Kafka with Ottla's values. Raises AssertionError for a change that changes nothing."""
    for place, value in changes.items():
        *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        row = answer
        for part in path:
            row = row[part]
        assert row[last] != value, f"Kafka answers as Ottla does: {place}"
        row[last] = value
    return answer
