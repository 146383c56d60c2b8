"""Who may change what: one line for each name, so that two changes of one topic never overlap. pure

A change of the metadata is decided, logged, and applied when the log is durable; what is decided in between must not
rest on what is not applied yet. So a change claims the names that it looks at, from before its decision until it is
applied; changes of other names go on beside it and share its sync.

A claim enters all its lines at once, in the order of arrival, and begins when it is first in each of them: nobody
overtakes, and nobody who holds one name waits for another.
"""

from collections import deque
from collections.abc import Iterable

from ottla.broker.turns import Turns, Wait


class Claim:
    """A place in the line of each of its names; `missing` counts those in which somebody stands before it."""

    __slots__ = ("missing", "names", "wait")

    def __init__(self, names: Iterable[str], turns: Turns) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.missing = 0
        self.wait: Wait[None] = Wait(turns)


class Claims:
    """The lines of all names that somebody claims. Whoever waits here is never discarded."""

    __slots__ = ("_lines", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lines: dict[str, deque[Claim]] = {}

    async def take(self, names: Iterable[str]) -> Claim:
        """Wait until nobody else claims any of the names."""
        claim = Claim(names, self._turns)
        for name in claim.names:
            line = self._lines.setdefault(name, deque())
            claim.missing += bool(line)
            line.append(claim)
        if claim.missing:
            await claim.wait
        return claim

    def follow(self, name: str) -> Claim:
        """A claim of a name that somebody holds, right behind the holder and before all who wait."""
        claim = Claim((name,), self._turns)
        claim.missing = 1
        self._lines[name].insert(1, claim)
        return claim

    def release(self, claim: Claim) -> None:
        """Let the next one of each line go on."""
        for name in claim.names:
            line = self._lines[name]
            line.popleft()
            if not line:
                del self._lines[name]
                continue
            following = line[0]
            following.missing -= 1
            if not following.missing:
                following.wait.wake(None)
