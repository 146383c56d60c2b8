"""Requests of clients and their answers, in the form that `ottla.testkit.checker` reads. pure

Each event is one entry, a dict that JSON can hold (see the checker for its fields).
"""

from collections.abc import Callable
from typing import Any

Entry = dict[str, Any]


class History:
    """The entries of one run, in order. `now_ms` is the virtual time."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.entries: list[Entry] = []
        self._now_ms = now_ms
        self._operations = 0

    def invoke(self, proc: str, f: str, **fields: Any) -> int:
        """Record the begin of an operation and return its number."""
        self._operations += 1
        self._add(proc, "invoke", f, self._operations, fields)
        return self._operations

    def ok(self, proc: str, f: str, op: int, **fields: Any) -> None:
        self._add(proc, "ok", f, op, fields)

    def fail(self, proc: str, f: str, op: int, error: int) -> None:
        """Record that the operation certainly has no effect, now or later."""
        self._add(proc, "fail", f, op, {"error": error})

    def info(self, proc: str, f: str, op: int, error: int = -1) -> None:
        """Record that the operation may or may not have an effect."""
        self._add(proc, "info", f, op, {"error": error})

    def note(self, f: str, **fields: Any) -> None:
        """Record a fact that the simulation knows and no client does."""
        self._add("world", "note", f, 0, fields)

    def _add(self, proc: str, kind: str, f: str, op: int, fields: Entry) -> None:
        entry = {"i": len(self.entries), "t": round(self._now_ms(), 3), "proc": proc, "type": kind, "f": f, "op": op}
        entry.update(fields)
        self.entries.append(entry)
