"""Bytes of segments that cannot be read, and batches that are larger than Ottla reads. pure"""

import re
from collections.abc import Iterable

from ottla.audit.checks.finding import Finding
from ottla.protocol.values import TopicPartition
from ottla.scan.damage_log import Damage

_OFFSET = re.compile(r"at offset (\d+)")


def findings(place: TopicPartition, damaged: Iterable[Damage], torn: Iterable[Damage]) -> list[Finding]:
    """Return an error for each damaged part, a warning for each batch above Ottla's limits, and information on torn
    tails."""
    found = []
    for one in damaged:
        offset = _OFFSET.search(one.reason)
        if one.is_too_large:
            found.append(_unread(place, one, int(offset[1]) if offset else None))
            continue
        found.append(
            Finding(
                "damage",
                "error",
                *place,
                int(offset[1]) if offset else None,
                None,
                None,
                f"{one.reason}; bytes {one.position:,} to {one.end_position:,} cannot be read",
                "restore the segment from a replica; `ottla repair` shows the cost of cutting the log here",
                one.path,
                one.position,
            )
        )
    for one in torn:
        found.append(
            Finding(
                "damage",
                "info",
                *place,
                None,
                None,
                None,
                f"torn tail: {one.reason}; the log ends before it, as after a crash or during a write",
                "nothing to do: the broker cuts it off when it starts",
                one.path,
                one.position,
            )
        )
    return found


def _unread(place: TopicPartition, one: Damage, offset: int | None) -> Finding:
    return Finding(
        "unread",
        "warning",
        *place,
        offset,
        None,
        None,
        f"not checked: {one.reason}; bytes {one.position:,} to {one.end_position:,}",
        "no fault is known; `kafka-dump-log --deep-iteration` reads the batch",
        one.path,
        one.position,
    )
