"""The states with which ranges are entered, found by walks over all of what lies before each."""

from ottla.scan import states
from ottla.scan.damage_log import DamageLog
from ottla.scan.partitions import entering
from ottla.scan.walk import Walk


def entering_ranges(log, parts, *, on_damage):
    """The states with which each of the ranges of a partition is entered: all but the last are walked for it."""
    first = entering(log)
    leaving = [
        Walk(part, states.empty(), DamageLog(on_damage), check_crc=False).finish().leaving for part in parts[:-1]
    ]
    return [states.enter(first, leaving[:index]) for index in range(len(parts))]
