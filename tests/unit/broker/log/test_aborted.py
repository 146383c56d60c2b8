"""Which aborted transactions a reader is told of: all that touch what it reads, found without looking at all others."""

import random

import pytest

from ottla.broker.log.aborted import BLOCK, AbortedTransactions
from ottla.protocol.indexes import AbortedTxn, iter_aborted, pack_all_aborted


def collected(entries, offset, upper):
    """`LocalLog.collectAbortedTransactions` over one transaction index."""
    found = []
    for entry in entries:
        if entry.last_offset < offset:
            continue
        if entry.first_offset < upper:
            found.append((entry.producer_id, entry.first_offset))
        if entry.last_stable_offset >= upper:
            return found, True
    return found, False


def history(draw, count):
    """Transactions of a few producers, some of them long; the last stable offset as a log would have it."""
    entries, opened, offset = [], {}, 0
    while len(entries) < count:
        offset += draw.randint(1, 3)
        producer_id = draw.choice(range(4) if draw.random() < 0.9 else range(4, 6))
        if producer_id not in opened:
            opened[producer_id] = offset
        elif draw.random() < (0.7 if producer_id < 4 else 0.02):
            first = opened.pop(producer_id)
            entries.append(AbortedTxn(producer_id, first, offset, min([offset, *opened.values()])))
    return entries


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_is_what_kafka_collects(seed):
    draw = random.Random(seed)
    entries = history(draw, draw.choice([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 1_000]))
    aborted = AbortedTransactions()
    for entry in entries:
        aborted.entries.append(entry)
        if draw.random() < 0.1:
            aborted.touching(0, 1)  # what is remembered of the first entries holds when there are more
    end = entries[-1].last_offset + 5 if entries else 5
    for _ in range(300):
        offset = draw.randrange(end)
        upper = offset + draw.choice([1, 5, 100, end])
        assert aborted.touching(offset, upper) == collected(entries, offset, upper)


class Watched(list):
    """Counts the entries that are looked at."""

    looks = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        Watched.looks += len(found) if isinstance(at, slice) else 1
        return found


def test_what_was_aborted_behind_an_open_transaction_is_passed_in_blocks():
    later = [AbortedTxn(2, 10 + 2 * n, 11 + 2 * n, 0) for n in range(50_000)]
    aborted = AbortedTransactions(Watched([*later, AbortedTxn(1, 0, 200_000, 200_000)]))
    expected = [(2, 10), (2, 12), (1, 0)]
    assert aborted.touching(0, 14) == (expected, True)
    Watched.looks = 0
    assert aborted.touching(0, 14) == (expected, True)
    assert Watched.looks < 4 * BLOCK


def test_entries_come_back_from_their_file():
    entries = history(random.Random(1), 300)
    assert [*iter_aborted(pack_all_aborted(entries))] == entries
