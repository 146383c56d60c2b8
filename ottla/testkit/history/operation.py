"""An operation of a client, built from all its attempts: one invocation and one completion. pure"""

from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import Any

from ottla.testkit.checks.operations import FAIL, INFO, OK, Entry
from ottla.testkit.control.journal import JournalEntry

Moment = tuple[int, int, int]
"""Sort key in the order of time: number of a request, 1 for a reply after it, number of that reply's request."""


class Operation:
    """An operation of a client. `invocation` are the fields of its invocation."""

    __slots__ = (
        *("_refused", "_unknown", "attempts", "began", "began_ms", "ended", "ended_ms", "f", "invocation", "proc"),
        "result",
    )

    def __init__(self, f: str, proc: str, entry: JournalEntry, **invocation: Any) -> None:
        self.f = f
        self.proc = proc
        self.invocation = invocation
        self.result: dict[str, Any] = {}
        self.began: Moment = (entry.number, 0, 0)
        self.began_ms = entry.began_ms
        self.ended: Moment | None = None
        self.ended_ms = 0
        self.attempts = 0
        self._refused: tuple[Moment, int] | None = None
        self._unknown = False

    def attempt(self, entry: JournalEntry, status: str, result: dict[str, Any] | None = None) -> None:
        """Record an attempt and its outcome. The first successful attempt completes the operation."""
        self.attempts += 1
        if status == INFO or entry.ended_after is None or entry.ended_ms is None:
            self._unknown = True
            return
        moment = entry.ended_after, 1, entry.number
        if status == OK and (self.ended is None or moment < self.ended):
            self.ended, self.ended_ms, self.result = moment, entry.ended_ms, result or {}
        elif status == FAIL and (self._refused is None or moment > self._refused[0]):
            self._refused = moment, entry.ended_ms

    @property
    def status(self) -> str:
        """OK if an attempt succeeded, FAIL if every attempt was refused, else INFO."""
        if self.ended is not None:
            return OK
        return FAIL if self._refused is not None and not self._unknown else INFO

    def entries(self, number: int) -> Iterator[tuple[Moment, Entry]]:
        """Yield the lines of the operation, with their sort keys."""
        common = {"proc": self.proc, "f": self.f, "op": number}
        yield self.began, {"t": self.began_ms, "type": "invoke", **common, **self.invocation}
        if self.ended is not None:
            yield self.ended, {"t": self.ended_ms, "type": OK, **common, **self.result}
        elif self.status == FAIL and self._refused is not None:
            moment, at_ms = self._refused
            yield moment, {"t": at_ms, "type": FAIL, **common}


def in_order(operations: Iterable[Operation], notes: Iterable[Entry]) -> list[Entry]:
    """Return all lines in the order of time, followed by the notes."""
    entries = [
        entry
        for number, operation in enumerate(sorted(operations, key=attrgetter("began")), 1)
        for entry in operation.entries(number)
    ]
    entries.sort(key=itemgetter(0))
    lines = [entry for _, entry in entries]
    last_ms = lines[-1]["t"] if lines else 0
    lines += [{"t": last_ms, "proc": "history", "type": "note", "op": 0, **note} for note in notes]
    return [{"i": index, **line} for index, line in enumerate(lines)]
