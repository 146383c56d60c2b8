"""Locks on names: a queue for each name, so that two changes of one topic never overlap. pure

A change of the metadata is decided, logged, and applied when the log is durable. A decision must not depend on a change
that is not applied yet. So a change locks the names that it reads, from before its decision until it is applied.
Changes of other names run at the same time and share its sync.

A lock enters all its queues at once, in the order of arrival, and begins when it is first in each of them. No lock
overtakes another, and no lock that holds a name waits for another name.
"""

from collections import deque
from collections.abc import Iterable

from ottla.broker.turns import Turns, Wait


class NameLock:
    """A place in the queue of each of its names; `missing` counts the queues in which it is not first."""

    __slots__ = ("missing", "names", "wait")

    def __init__(self, names: Iterable[str], turns: Turns) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.missing = 0
        self.wait: Wait[None] = Wait(turns)


class NameLocks:
    """The queues of all locked names. A handler that waits here is never discarded."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines: dict[str, deque[NameLock]] = {}

    async def take(self, names: Iterable[str]) -> NameLock:
        """Wait until this lock is first in the queue of each name."""
        lock = NameLock(names, self._turns)
        for name in lock.names:
            line = self._lines.setdefault(name, deque())
            lock.missing += bool(line)
            line.append(lock)
        if lock.missing:
            await lock.wait
        return lock

    def follow(self, name: str) -> NameLock:
        """Insert a lock of a name directly after its holder and before all that wait."""
        lock = NameLock((name,), self._turns)
        lock.missing = 1
        self._lines[name].insert(1, lock)
        return lock

    def release(self, lock: NameLock) -> None:
        """Release the names and wake the next lock of each queue."""
        for name in lock.names:
            line = self._lines[name]
            line.popleft()
            if not line:
                del self._lines[name]
                continue
            following = line[0]
            following.missing -= 1
            if not following.missing:
                following.wait.wake(None)
