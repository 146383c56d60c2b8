"""The committed and the pending offsets of one group. pure

A plain commit counts at once. An offset that was committed in a transaction is pending until the producer's marker:
COMMIT makes it the committed one if no later record overtook it in the log, ABORT drops it (KIP-447).
Order is decided by the offset of the commit's record in `__consumer_offsets`, live and in replay alike.

A marker may end a transaction with any number of offsets in any number of groups, and all of them count from the same
moment. So each of them refers to its transaction; the marker writes the outcome there and nowhere else, and readers go
by it. To put the offsets of an ended transaction among the committed ones, or to drop them, changes nothing that can be
read, and is done by and by (`OffsetTransaction.settle`).
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

    `committed` is None while it is open. `places` are the offsets that are to be settled when it has ended.
    """

    __slots__ = ("committed", "places", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.committed: bool | None = None
        self.places: list[tuple[GroupOffsets, TopicPartition]] = []

    def complete_some(self, most: int) -> int:
        """Put so many of its offsets where they belong now that it has ended; how many there were."""
        places = self.places
        count = min(most, len(places))
        for _ in range(count):
            offsets, key = places.pop()
            offsets.complete_pending(key, self)
        return count


class GroupOffsets:
    """The offsets of one group.

    `committed` and `in_transactions` are for this module: what an ended transaction has left may stand in either.
    """

    __slots__ = ("committed", "in_transactions")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.in_transactions: dict[TopicPartition, dict[OffsetTransaction, OffsetAndMetadata]] = {}

    def commit(self, key: TopicPartition, value: OffsetValue, record_offset: int) -> None:
        """A commit outside of transactions."""
        self.committed[key] = OffsetAndMetadata(value, record_offset)

    def commit_pending(
        self, transaction: OffsetTransaction, key: TopicPartition, value: OffsetValue, record_offset: int
    ) -> None:
        """A commit inside a transaction that is open."""
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
            return  # there was a tombstone
        if not by_transaction:
            del self.in_transactions[key]
        if transaction.committed:
            current = self.committed.get(key)
            if current is None or pending.record_offset > current.record_offset:
                self.committed[key] = pending

    def remove(self, key: TopicPartition) -> None:
        """A tombstone: the committed offset and every pending one of the key are gone."""
        self.committed.pop(key, None)
        self.in_transactions.pop(key, None)

    def get(self, key: TopicPartition) -> OffsetAndMetadata | None:
        """The committed offset of a key."""
        current = self.committed.get(key)
        by_transaction = self.in_transactions.get(key)
        if by_transaction is not None:
            for transaction, pending in by_transaction.items():
                if transaction.committed and (current is None or pending.record_offset > current.record_offset):
                    current = pending
        return current

    def is_unstable(self, key: TopicPartition) -> bool:
        """Whether an open transaction covers the key."""
        by_transaction = self.in_transactions.get(key)
        return by_transaction is not None and any(each.committed is None for each in by_transaction)

    def pending(self, key: TopicPartition) -> Iterator[tuple[int, int]]:
        """(producer id, offset) of each open transaction that covers the key."""
        for transaction, pending in self.in_transactions.get(key, {}).items():
            if transaction.committed is None:
                yield transaction.producer_id, pending.value.offset

    def depth(self, key: TopicPartition) -> int:
        """Return the number of transactions that a lookup of the key examines."""
        return len(self.in_transactions.get(key, ()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed or pending. What aborted transactions have left is looked through."""
        return not self.committed and not any(key in self for key in self.in_transactions)

    @property
    def at_most(self) -> int:
        """There are no more keys than this."""
        return len(self.committed) + len(self.in_transactions)

    def is_older(self, key: TopicPartition, end: int) -> bool | None:
        """Whether a record before offset `end` is what counts for the key, or may come to count; None if an open
        transaction with a later one decides that. A tombstone would take the later one along."""
        committed = self.get(key)
        if committed is not None and committed.record_offset >= end:
            return False
        by_transaction = self.in_transactions.get(key, {}).items()
        pending = [each.record_offset for transaction, each in by_transaction if transaction.committed is None]
        if committed is None and not any(offset < end for offset in pending):
            return False
        return None if any(offset >= end for offset in pending) else True

    def places(self) -> Iterator[TopicPartition]:
        """Iterate over the keys with a committed or a pending offset. A key may occur twice, or have no offset any
        more."""
        return chain([*self.committed], [*self.in_transactions])

    def some_places(self, most: int) -> list[TopicPartition]:
        """So many keys at most of `places`, each once, in a step that is as short as that."""
        return list(dict.fromkeys(islice(chain(self.committed, self.in_transactions), most)))

    def to_value(
        self,
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[int, dict[TopicPartition, OffsetAndMetadata]]]:
        """All that is committed by key, and all that is pending by producer and key: what must equal a replay."""
        pending: dict[int, dict[TopicPartition, OffsetAndMetadata]] = {}
        for key in self.in_transactions:
            for transaction, offset in self.in_transactions[key].items():
                if transaction.committed is None:
                    pending.setdefault(transaction.producer_id, {})[key] = offset
        found = ((key, self.get(key)) for key in self.places())
        return {key: committed for key, committed in found if committed is not None}, pending

    def __contains__(self, key: TopicPartition) -> bool:
        return self.get(key) is not None or self.is_unstable(key)
