"""Rows of alerts: transactions that began to hang, and those that ended, between two checks. pure"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.audit.checks.hanging import OpenFinding

BEGAN, ENDED = "hanging", "ended"

# Columns that identify an alert.
_IDENTITY = ("topic", "partition", "producerId", "firstOffset")

Alert = dict[str, Any]


def alert(one: "OpenFinding", now_ms: int) -> Alert:
    """Return the columns of view `hanging` without `event`; times in microseconds."""
    return {
        "seen": now_ms * 1000,
        "topic": one.topic,
        "partition": one.partition,
        "producerId": one.producer_id,
        "producerEpoch": one.producer_epoch,
        "transactionalId": one.transactional_id,
        "firstOffset": one.first_offset,
        "records": one.records,
        "ageMs": one.age_ms,
        "timeoutMs": one.timeout_ms,
        "verdict": str(one.verdict),
        "message": one.explained,
        "action": one.action,
    }


def keep_first_seen(before: Sequence[Alert], now: Sequence[Alert]) -> list[Alert]:
    """Return the alerts of `now`; an alert that `before` has too is returned as in `before`."""
    known = {_identity(one): one for one in before}
    return [known.get(_identity(one), one) for one in now]


def changes(before: Sequence[Alert], after: Sequence[Alert]) -> list[Alert]:
    """Return a row for each alert that began or ended, with all columns of view `hanging`."""
    old, new = ({_identity(one): one for one in alerts} for alerts in (before, after))
    began = [{**one, "event": BEGAN} for identity, one in new.items() if identity not in old]
    return began + [{**one, "event": ENDED} for identity, one in old.items() if identity not in new]


def _identity(one: Alert) -> tuple[Any, ...]:
    return tuple(one[name] for name in _IDENTITY)
