"""Ends of replicas and of the directories of several brokers, which lack all later records. pure

Brokers of a cluster are not read at one instant. A directory of a broker that was down, or that was copied earlier,
ends before the others. The records that it lacks are not lost.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.audit.checks import history
from ottla.audit.checks.history import NEVER, History
from ottla.audit.checks.torn import Reached
from ottla.audit.tasks import RangeFacts
from ottla.scan import states

if TYPE_CHECKING:
    from ottla.audit.listed import Listed
    from ottla.audit.request import Request


def end_of(one: "Listed", parts: Sequence[RangeFacts]) -> int:
    """Return the offset after the last batch. The last segment may be empty: the log continues at its base offset."""
    return max([one.log.log_start, one.log.least_end, *(part.next_offset for part in parts)])


class ReadEnds:
    """Ends of all partitions, by index in the listing."""

    def __init__(
        self,
        request: "Request",
        listed: Mapping[int, "Listed"],
        facts: Mapping[int, Sequence[RangeFacts]],
        known: History,
    ) -> None:
        self._listed = listed
        self._facts = facts
        self._latest = {index: max((part.latest_ms for part in parts), default=-1) for index, parts in facts.items()}
        self._several = len(set(request.directories)) > 1
        self._newest: dict[str, int] = {}
        for index, one in listed.items():
            self._newest[one.directory] = max(self._newest.get(one.directory, -1), self._latest[index])
        for partition, directory in known.directories.items():
            times = known.decisions[known.decisions[:, history.COORDINATOR] == partition, history.UPDATED_MS]
            if len(times):
                self._newest[directory] = max(self._newest.get(directory, -1), int(times.max()))
        coordinators = [self._newest.get(directory, -1) for directory in known.directories.values()]
        decided_until_ms = min(coordinators, default=NEVER) if self._several else NEVER
        self._decided_until = min(decided_until_ms, request.decided_until_ms)
        self._longest: dict[str, int] = {}
        for index, one in listed.items():
            other = self._longest.get(one.log.name)
            if other is None or end_of(one, facts[index]) > end_of(listed[other], facts[other]):
                self._longest[one.log.name] = index

    def until_ms(self, index: int) -> int:
        """Return the time up to which the directory has all writes to the partition."""
        if not self._several:
            return NEVER
        newest = self._newest[self._listed[index].directory]
        return self._latest[index] if self._is_behind(index) else newest

    def counts(self, index: int) -> bool:
        """Return whether the totals include the partition: only the longest of several replicas counts."""
        return self._longest[self._listed[index].log.name] == index

    def of(self, index: int) -> Reached:
        still_open = None
        if self._is_behind(index):
            parts = self._facts[self._longest[self._listed[index].log.name]]
            rows = parts[-1].open_rows if parts else ()
            still_open = frozenset((int(row[states.PRODUCER_ID]), int(row[states.FIRST_OFFSET])) for row in rows)
        return Reached(self.until_ms(index), self._decided_until, still_open)

    def _is_behind(self, index: int) -> bool:
        """Return whether another replica of the partition is longer."""
        longest = self._longest[self._listed[index].log.name]
        return end_of(self._listed[index], self._facts[index]) < end_of(self._listed[longest], self._facts[longest])
