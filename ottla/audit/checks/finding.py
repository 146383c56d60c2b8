"""The result of a check: a finding, with its place and the action to take. pure"""

import json
from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning", "info"]

# Worst first.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

# Every check of an audit, in the order of reports, with the nouns for one finding of it and for several.
NOUNS = {
    "damage": ("damaged place", "damaged places"),
    "unread": ("batch that was not checked", "batches that were not checked"),
    "hanging": ("hanging transaction", "hanging transactions"),
    "torn": ("torn transaction", "torn transactions"),
    "sequence": ("break in a sequence", "breaks in sequences"),
    "zombie": ("write of a zombie", "writes of zombies"),
    "reused": ("commit that may lack its records", "commits that may lack their records"),
    "index": ("wrong index entry", "wrong index entries"),
    "gaps": ("range of lost offsets", "ranges of lost offsets"),
    "replicas": ("difference between replicas", "differences between replicas"),
    "copies": ("input without exactly one output", "inputs without exactly one output"),
    "stale": ("idle producer", "idle producers"),
    "shape": ("remark on the shape", "remarks on the shape"),
}
CHECKS = tuple(NOUNS)


class Finding(NamedTuple):
    """A finding. None: does not apply or is not known. `position` is the position in `file`, in bytes."""

    check: str
    severity: Severity
    topic: str | None
    partition: int | None
    offset: int | None
    producer_id: int | None
    transactional_id: str | None
    message: str
    action: str
    file: str | None = None
    position: int | None = None

    @property
    def place(self) -> str:
        """`topic-partition@offset`, as far as it is known."""
        if self.topic is None:
            return ""
        name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return name if self.offset is None else f"{name}@{self.offset}"

    def is_at_least(self, severity: Severity) -> bool:
        return SEVERITIES.index(self.severity) <= SEVERITIES.index(severity)

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the finding for JSON, without `file` and `position` if they are None."""
        content = self._asdict()
        for key in ("file", "position"):
            if content[key] is None:
                del content[key]
        return content

    def line(self) -> str:
        """Return the finding as one line of JSON."""
        return json.dumps(self.as_json())


def in_order(findings: list[Finding]) -> list[Finding]:
    """Sort findings: errors first, then by check, place and offset."""

    def key(one: Finding) -> tuple[int, int, str, int, int]:
        partition = -1 if one.partition is None else one.partition
        offset = -1 if one.offset is None else one.offset
        return SEVERITIES.index(one.severity), CHECKS.index(one.check), one.topic or "", partition, offset

    return sorted(findings, key=key)
