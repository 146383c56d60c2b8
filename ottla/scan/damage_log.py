"""Damage in a segment: its position and reason, and the modes of a scan that finds it. pure"""

from typing import NamedTuple

FAIL = "fail"
REPORT = "report"
MODES = (FAIL, REPORT)
REMEDY = 'option("on.damage", "report") reads what is sound'


class Damage(NamedTuple):
    """Bytes [position, end_position) of a segment file that cannot be read, and the reason.

    `is_too_large`: the batch exceeds a limit of Ottla's. It may be sound. `of_offsets`: the positions are offsets of
    records, because they came from a broker.
    """

    path: str
    position: int
    end_position: int
    reason: str
    is_too_large: bool = False
    of_offsets: bool = False

    def __str__(self) -> str:
        unit = "offset" if self.of_offsets else "position"
        return f"{self.path}: {unit} {self.position} to {self.end_position}: {self.reason}"


class DamagedSegment(Exception):
    """A segment is damaged, not torn at its tail; the text names file, position and reason."""


class BatchTooLarge(DamagedSegment):
    """A batch is larger than Ottla reads. Handlers of DamagedSegment handle it too."""


class DamageLog:
    """Collects the damage that one scan finds. In mode `fail` the first damage raises DamagedSegment."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.found: list[Damage] = []
        self.torn: list[Damage] = []

    def add(self, damage: Damage) -> None:
        """Add unreadable bytes that sound batches or another segment follow. Raises DamagedSegment in mode `fail`."""
        if self.mode == FAIL:
            raise (BatchTooLarge if damage.is_too_large else DamagedSegment)(f"{damage}; {REMEDY}")
        self.found.append(damage)

    def add_torn(self, tail: Damage) -> None:
        """Add the unfinished tail of the active segment. The log ends before it, as after a broker's recovery."""
        self.torn.append(tail)
