"""States at the starts of ranges, found by walks over everything before each range."""

from ottla.scan import states
from ottla.scan.damage_log import DamageLog
from ottla.scan.partitions import entering
from ottla.scan.walk import Walk


def entering_ranges(log, parts, *, on_damage):
    """Return the state at the start of each range of a partition, by walking all ranges but the last."""
    first = entering(log)
    leaving = [
        Walk(part, states.empty(), DamageLog(on_damage), check_crc=False).finish().leaving for part in parts[:-1]
    ]
    return [states.enter(first, leaving[:index]) for index in range(len(parts))]
