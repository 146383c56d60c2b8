"""The committed and the pending offsets of one group. pure

A plain commit counts at once. An offset that was committed in a transaction is pending until the producer's marker:
COMMIT makes it the committed offset unless a later record in the log has replaced it, ABORT drops it (KIP-447). The
order is that of the commits' records in `__consumer_offsets`, live and in a replay.

A marker may end a transaction with any number of offsets in any number of groups, and all of them count from the same
moment. So each offset refers to its transaction, the marker writes the outcome only there, and readers use that
outcome. Later the offsets of an ended transaction are moved to the committed ones, or dropped, a few at a time. This
changes no result of a read (`OffsetTransaction.complete_some`).
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from ottla.protocol.internal_topics.offsets_records import OffsetValue
from ottla.protocol.values import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset and the offset of its record in `__consumer_offsets`."""

    value: OffsetValue
    record_offset: int


class OffsetTransaction:
    """The transaction of one producer in one partition of `__consumer_offsets`.

    `committed` is None while it is open. `places` are the offsets to complete after its end.
    """

    __slots__ = ("committed", "places", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.committed: bool | None = None
        self.places: list[tuple[GroupOffsets, TopicPartition]] = []

    def complete_some(self, most: int) -> int:
        """Complete up to this many offsets of the ended transaction; return how many there were."""
        places = self.places
        count = min(most, len(places))
        for _ in range(count):
            offsets, key = places.pop()
            offsets.complete_pending(key, self)
        return count


class GroupOffsets:
    """The offsets of one group.

    `committed` and `in_transactions` are for this module: either may still hold offsets of ended transactions.
    """

    __slots__ = ("committed", "in_transactions")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.in_transactions: dict[TopicPartition, dict[OffsetTransaction, OffsetAndMetadata]] = {}

    def commit(self, key: TopicPartition, value: OffsetValue, record_offset: int) -> None:
        """Record a commit outside of transactions."""
        self.committed[key] = OffsetAndMetadata(value, record_offset)

    def commit_pending(
        self, transaction: OffsetTransaction, key: TopicPartition, value: OffsetValue, record_offset: int
    ) -> None:
        """Record a commit in an open transaction."""
        by_transaction = self.in_transactions.get(key)
        if by_transaction is None:
            by_transaction = self.in_transactions[key] = {}
        if transaction not in by_transaction:
            transaction.places.append((self, key))
        by_transaction[transaction] = OffsetAndMetadata(value, record_offset)

    def complete_pending(self, key: TopicPartition, transaction: OffsetTransaction) -> None:
        """Make the pending offset of an ended transaction the committed one, or drop it."""
        by_transaction = self.in_transactions.get(key)
        pending = None if by_transaction is None else by_transaction.pop(transaction, None)
        if pending is None:
            return  # a tombstone has removed it
        if not by_transaction:
            del self.in_transactions[key]
        if transaction.committed:
            current = self.committed.get(key)
            if current is None or pending.record_offset > current.record_offset:
                self.committed[key] = pending

    def remove(self, key: TopicPartition) -> None:
        """Apply a tombstone: remove the committed offset and all pending offsets of the key."""
        self.committed.pop(key, None)
        self.in_transactions.pop(key, None)

    def get(self, key: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a key."""
        current = self.committed.get(key)
        by_transaction = self.in_transactions.get(key)
        if by_transaction is not None:
            for transaction, pending in by_transaction.items():
                if transaction.committed and (current is None or pending.record_offset > current.record_offset):
                    current = pending
        return current

    def is_unstable(self, key: TopicPartition) -> bool:
        """Return whether an open transaction covers the key."""
        by_transaction = self.in_transactions.get(key)
        return by_transaction is not None and any(each.committed is None for each in by_transaction)

    def pending(self, key: TopicPartition) -> Iterator[tuple[int, int]]:
        """Yield (producer id, offset) of each open transaction that covers the key."""
        for transaction, pending in self.in_transactions.get(key, {}).items():
            if transaction.committed is None:
                yield transaction.producer_id, pending.value.offset

    def depth(self, key: TopicPartition) -> int:
        """Return the number of transactions that a lookup of the key examines."""
        return len(self.in_transactions.get(key, ()))

    @property
    def is_empty(self) -> bool:
        """Whether no offset is committed or pending. Offsets of aborted transactions do not count."""
        return not self.committed and not any(key in self for key in self.in_transactions)

    @property
    def at_most(self) -> int:
        """Upper limit of the number of keys."""
        return len(self.committed) + len(self.in_transactions)

    def is_older(self, key: TopicPartition, end: int) -> bool | None:
        """Return whether the key has a committed or pending offset, and all of them have records before offset
        `end`. None if an open transaction has a later record too: a tombstone would remove that one as well."""
        committed = self.get(key)
        if committed is not None and committed.record_offset >= end:
            return False
        by_transaction = self.in_transactions.get(key, {}).items()
        pending = [each.record_offset for transaction, each in by_transaction if transaction.committed is None]
        if committed is None and not any(offset < end for offset in pending):
            return False
        return None if any(offset >= end for offset in pending) else True

    def places(self) -> Iterator[TopicPartition]:
        """Iterate over the keys with a committed or a pending offset. A key may occur twice, or have lost its
        offset."""
        return chain([*self.committed], [*self.in_transactions])

    def some_places(self, most: int) -> list[TopicPartition]:
        """Return the first keys of `places`, at most `most`, each once. The cost depends on `most` only."""
        return list(dict.fromkeys(islice(chain(self.committed, self.in_transactions), most)))

    def to_value(
        self,
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[int, dict[TopicPartition, OffsetAndMetadata]]]:
        """Return the committed offsets by key, and the pending ones by producer and key, to compare with a replay."""
        pending: dict[int, dict[TopicPartition, OffsetAndMetadata]] = {}
        for key in self.in_transactions:
            for transaction, offset in self.in_transactions[key].items():
                if transaction.committed is None:
                    pending.setdefault(transaction.producer_id, {})[key] = offset
        found = ((key, self.get(key)) for key in self.places())
        return {key: committed for key, committed in found if committed is not None}, pending

    def __contains__(self, key: TopicPartition) -> bool:
        return self.get(key) is not None or self.is_unstable(key)
