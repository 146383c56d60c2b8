"""Aborted transactions of a read: all that overlap it, found without a scan of all entries."""

import random

import pytest

from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.segments.transaction_index import BLOCK, TransactionIndex, read_transaction_index
from ottla.broker.turns import SHARE_US
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import AbortedTxn, iter_aborted_txns, pack_aborted_txns
from ottla.protocol.steps import to_the_end


def collect_as_kafka(entries, offset, upper):
    """Apply `LocalLog.collectAbortedTransactions` to one transaction index."""
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
    """Return transactions of a few producers, some of them long, and the last stable offset that a log would have."""
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
def test_collected_aborted_transactions_are_those_of_kafkas_algorithm(seed):
    draw = random.Random(seed)
    entries = history(draw, draw.choice([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 1_000]))
    aborted = TransactionIndex()
    for entry in entries:
        aborted.entries.append(entry)
        if draw.random() < 0.1:
            # What is remembered of the first entries holds when there are more.
            to_the_end(aborted.collect_aborted_txns(0, 1))
    end = entries[-1].last_offset + 5 if entries else 5
    for _ in range(300):
        offset = draw.randrange(end)
        upper = offset + draw.choice([1, 5, 100, end])
        assert to_the_end(aborted.collect_aborted_txns(offset, upper)) == collect_as_kafka(entries, offset, upper)


class Watched(list):
    """A transaction index that counts the entries that are read."""

    looks = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        Watched.looks += len(found) if isinstance(at, slice) else 1
        return found


def test_aborted_transactions_above_the_range_are_skipped_in_blocks():
    later = [AbortedTxn(2, 10 + 2 * n, 11 + 2 * n, 0) for n in range(50_000)]
    aborted = TransactionIndex(Watched([*later, AbortedTxn(1, 0, 200_000, 200_000)]))
    expected = [(2, 10), (2, 12), (1, 0)]
    assert to_the_end(aborted.collect_aborted_txns(0, 14)) == (expected, True)
    Watched.looks = 0
    assert to_the_end(aborted.collect_aborted_txns(0, 14)) == (expected, True)
    assert Watched.looks < 4 * BLOCK


def test_packed_entries_are_unpacked_unchanged():
    entries = history(random.Random(1), 300)
    assert [*iter_aborted_txns(pack_aborted_txns(entries))] == entries


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 1_000])
def test_a_file_is_read_in_steps_to_the_same_entries(count):
    entries = history(random.Random(count), count)
    assert to_the_end(read_transaction_index(pack_aborted_txns(entries))).entries == entries


@pytest.mark.parametrize("at", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_entries_out_of_order_are_found_between_two_steps_as_well(at):
    entries = history(random.Random(2), 2 * BLOCK)
    entries[at] = entries[at - 1]
    with pytest.raises(ProtocolError, match="out of order"):
        to_the_end(read_transaction_index(pack_aborted_txns(entries)))


MANY = [AbortedTxn(2, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(20_000)]


def test_a_file_of_many_is_read_in_steps_that_are_a_small_part_of_a_share():
    steps = list(read_transaction_index(pack_aborted_txns(MANY)))
    assert sum(steps) > 4 * SHARE_US
    assert max(steps) < SHARE_US / 4


@pytest.mark.parametrize("entries", [MANY, [*MANY, AbortedTxn(1, 0, 50_000, 50_000)]])
def test_many_aborted_transactions_are_collected_in_short_steps(entries):
    steps = list(TransactionIndex(entries).collect_aborted_txns(0, 40_000))
    assert sum(steps) > SHARE_US
    assert max(steps) < SHARE_US / 4


def replace_in_between(partition, steps, replace):
    """Replace the segments after the first step. Return the result of the steps."""
    next(steps)
    replace(partition.log.segments)
    return to_the_end(steps)


def test_aborted_transactions_are_collected_again_if_segments_are_replaced(logs, transactor):
    partition = logs.partition()
    for producer_id in range(5 * BLOCK):
        producer = transactor(partition, producer_id)
        producer.send()
        producer.end(commit=False)
    expected = partition.read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED).aborted
    assert len(expected) == 5 * BLOCK

    def replace(segments):
        segments.replaced += 1
        del segments.active.aborted[0]

    found = replace_in_between(
        partition,
        partition.fetch(0, 1 << 20, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED, min_one_batch=True),
        replace,
    )
    assert found.aborted == expected[1:]
