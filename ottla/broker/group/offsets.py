"""The committed and the pending offsets of one group. pure

A plain commit counts at once. An offset that was committed in a transaction is pending until the producer's marker:
COMMIT makes it the committed one if no later record overtook it in the log, ABORT drops it (KIP-447).
Order is decided by the offset of the commit's record in `__consumer_offsets`, live and in replay alike.
"""

from typing import NamedTuple

from ottla.protocol.state_records import OffsetValue

Key = tuple[str, int]
"""(topic, partition)."""


class Committed(NamedTuple):
    """A committed offset and the offset of its record in `__consumer_offsets`."""

    value: OffsetValue
    record_offset: int


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("committed", "pending", "unstable")

    def __init__(self) -> None:
        self.committed: dict[Key, Committed] = {}
        self.pending: dict[int, dict[Key, Committed]] = {}
        self.unstable: dict[Key, set[int]] = {}

    def commit(self, key: Key, value: OffsetValue, record_offset: int) -> None:
        """A commit outside of transactions."""
        self.committed[key] = Committed(value, record_offset)

    def commit_pending(self, producer_id: int, key: Key, value: OffsetValue, record_offset: int) -> None:
        """A commit inside the open transaction of `producer_id`."""
        self.pending.setdefault(producer_id, {})[key] = Committed(value, record_offset)
        self.unstable.setdefault(key, set()).add(producer_id)

    def end_transaction(self, producer_id: int, commit: bool) -> int:
        """The producer's marker was written; how many offsets it has settled."""
        pending = self.pending.pop(producer_id, {})
        for key, ended in pending.items():
            self._settle(key, producer_id)
            if not commit:
                continue
            current = self.committed.get(key)
            if current is None or ended.record_offset > current.record_offset:
                self.committed[key] = ended
        return len(pending)

    def remove(self, key: Key) -> None:
        """A tombstone: the committed offset and every pending one of the key are gone."""
        self.committed.pop(key, None)
        for producer_id in self.unstable.pop(key, ()):
            of_producer = self.pending[producer_id]
            del of_producer[key]
            if not of_producer:
                del self.pending[producer_id]

    def is_unstable(self, key: Key) -> bool:
        """Whether an open transaction covers the key."""
        return key in self.unstable

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed or pending."""
        return not self.committed and not self.unstable

    def last_offset(self, key: Key) -> int:
        """The offset of the last record of a key, pending ones included; -1 when there is none."""
        told = [self.pending[producer_id][key] for producer_id in self.unstable.get(key, ())]
        if key in self.committed:
            told.append(self.committed[key])
        return max((each.record_offset for each in told), default=-1)

    def places(self) -> list[Key]:
        """Every key with a committed offset, then those with a pending one alone."""
        return [*dict.fromkeys((*self.committed, *self.unstable))]

    def __contains__(self, key: Key) -> bool:
        return key in self.committed or key in self.unstable

    def _settle(self, key: Key, producer_id: int) -> None:
        producers = self.unstable[key]
        producers.discard(producer_id)
        if not producers:
            del self.unstable[key]
