"""Damage in a segment: where it is, and what a scan does about it. pure"""

from typing import NamedTuple

FAIL = "fail"
REPORT = "report"
MODES = (FAIL, REPORT)
REMEDY = 'option("on.damage", "report") reads what is sound'


class Damage(NamedTuple):
    """Bytes [position, end_position) of a segment file that cannot be read, and why.

    `is_too_large`: a batch beyond a limit of Ottla's. It is not damaged, as far as is known.
    """

    path: str
    position: int
    end_position: int
    reason: str
    is_too_large: bool = False

    def __str__(self) -> str:
        return f"{self.path}: position {self.position} to {self.end_position}: {self.reason}"


class DamagedSegment(Exception):
    """A segment is damaged, not torn at its tail; the text names file, position and reason."""


class BatchTooLarge(DamagedSegment):
    """A batch is larger than Ottla reads. Handlers of DamagedSegment handle it too."""


class DamageLog:
    """Collects what one scan finds. In mode `fail` the first damage raises DamagedSegment."""

    __slots__ = ("found", "mode", "torn")

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.found: list[Damage] = []
        self.torn: list[Damage] = []

    def add(self, damage: Damage) -> None:
        """Something unreadable with sound batches, or another segment, behind it."""
        if self.mode == FAIL:
            raise (BatchTooLarge if damage.is_too_large else DamagedSegment)(f"{damage}; {REMEDY}")
        self.found.append(damage)

    def add_torn(self, tail: Damage) -> None:
        """The unfinished tail of the active segment: the log ends before it, as a broker's recovery would have it."""
        self.torn.append(tail)
