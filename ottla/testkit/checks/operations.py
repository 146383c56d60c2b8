"""A client history as operations, and the anomalies that a checker finds in it. pure"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Entry = dict[str, Any]

OK = "ok"
FAIL = "fail"
INFO = "info"

COMMITTED = "committed"
ABORTED = "aborted"
UNKNOWN = "unknown"


class Anomaly(NamedTuple):
    """Something that exactly-once forbids. `txns` are the transactions concerned, `cause` is a known cause or ""."""

    kind: str
    detail: str
    txns: frozenset[str] = frozenset()
    cause: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" + (f" (by {self.cause})" if self.cause else "")


def text_of(value: bytes | None) -> str:
    """Return a value as histories show it: other bytes than UTF-8 escaped, null as empty text."""
    return (value or b"").decode(errors="backslashreplace")


def unique_name(value: str, key: str, producer_id: int, producer_epoch: int, sequence: int) -> str:
    """Return a name for one of several records with this value, from its producer and sequence."""
    return f"{key}#{producer_id}.{producer_epoch}.{sequence}:{value}"


class BrokenHistory(Exception):
    """The history does not follow its format."""


@dataclass(slots=True)
class Operation:
    """An invocation and its outcome: OK, FAIL (certainly no effect) or INFO (unknown). Times are indexes of entries."""

    op: int
    proc: str
    f: str
    invoke: Entry
    began: int
    status: str = INFO
    result: Entry = field(default_factory=dict)
    ended: int = -1

    @property
    def txn(self) -> str | None:
        found: str | None = self.invoke.get("txn")
        return found

    @property
    def sent(self) -> list[tuple[str, str]]:
        """(key, value) of each record of a send."""
        return [(key, value) for _send, key, value in self.invoke["mops"]]

    @property
    def offsets(self) -> list[int | None]:
        """The offset that each record was acknowledged with."""
        if self.status != OK:
            return [None] * len(self.invoke["mops"])
        return [mop[3] if len(mop) > 3 else None for mop in self.result["mops"]]

    @property
    def producer(self) -> tuple[int, int]:
        return self.invoke.get("pid", -1), self.invoke.get("epoch", -1)


@dataclass(slots=True)
class Transaction:
    """All operations of a transaction, as its client saw it. `outcome` is the result that the client got."""

    name: str
    sends: list[Operation] = field(default_factory=list)
    commits: list[Operation] = field(default_factory=list)
    ends: list[Operation] = field(default_factory=list)
    polls: list[Operation] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        for end in self.ends:
            if end.status == OK:
                return COMMITTED if end.invoke["commit"] else ABORTED
        if all(end.status == FAIL or not end.invoke["commit"] for end in self.ends):
            return ABORTED  # no commit request can have reached the broker
        return UNKNOWN

    @property
    def commit_requested(self) -> int | None:
        """Index of the first commit request, or None."""
        return min((end.began for end in self.ends if end.invoke["commit"]), default=None)

    @property
    def operations(self) -> Iterator[Operation]:
        yield from self.sends
        yield from self.commits
        yield from self.polls
        yield from self.ends


@dataclass(slots=True)
class FullHistory:
    """A whole history: operations in the order of their beginnings, transactions by name, notes."""

    operations: list[Operation]
    transactions: dict[str, Transaction]
    notes: list[Entry]

    def note(self, f: str) -> Entry | None:
        """Return the first note of this kind, or None."""
        return next((note for note in self.notes if note["f"] == f), None)

    def of(self, f: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.f == f)


def read_story(entries: Iterable[Entry]) -> FullHistory:
    """Pair invocations with completions. An operation without a completion is INFO."""
    by_number: dict[int, Operation] = {}
    notes: list[Entry] = []
    for at, entry in enumerate(entries):
        if entry["type"] == "note":
            notes.append({**entry, "at": at})
        elif entry["type"] == "invoke":
            if entry["op"] in by_number:
                raise BrokenHistory(f"operation {entry['op']} is invoked twice")
            by_number[entry["op"]] = Operation(entry["op"], entry["proc"], entry["f"], entry, at)
        else:
            operation = by_number.get(entry["op"])
            if operation is None or operation.ended >= 0 or operation.f != entry["f"]:
                raise BrokenHistory(f"entry {at} completes no operation: {entry}")
            operation.status, operation.result, operation.ended = entry["type"], entry, at
    operations = list(by_number.values())
    return FullHistory(operations, _transactions(operations), notes)


def _transactions(operations: Iterable[Operation]) -> dict[str, Transaction]:
    found: dict[str, Transaction] = {}
    for operation in operations:
        name = operation.txn
        if name is None:
            continue
        transaction = found.setdefault(name, Transaction(name))
        lists = {
            "send": transaction.sends,
            "offsets": transaction.commits,
            "end": transaction.ends,
            "poll": transaction.polls,
        }
        if operation.f in lists:
            lists[operation.f].append(operation)
    return found
