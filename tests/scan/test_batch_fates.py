"""Fates of batches in artificial partitions: a search in sorted ranges finds the same as a scan of all ranges."""

import random

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.protocol.batch_header import TRANSACTIONAL
from ottla.scan import batch_fates, headers

PRODUCERS, OFFSETS = range(6), range(60)


def ranges_of(chance):
    """Return (aborted, opened) of each producer: consecutive transactions, of which the last may be open."""
    aborted, opened = [], []
    for producer_id in PRODUCERS:
        bounds = sorted(chance.sample(OFFSETS, 2 * chance.randrange(4) + chance.randrange(2)))
        if len(bounds) % 2:
            opened.append((producer_id, bounds.pop()))
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        aborted += [(producer_id, first, marker) for first, marker in pairs if chance.random() < 0.7]
    return aborted, opened


def fate(aborted, opened, producer_id, offset):
    if any(pid == producer_id and first <= offset < marker for pid, first, marker in aborted):
        return batch_fates.ABORTED
    if any(pid == producer_id and first <= offset for pid, first in opened):
        return batch_fates.OPEN
    return batch_fates.COMMITTED


def test_the_numbers_are_places_among_the_words_of_the_view():
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    from ottla.spark_jobs.views.batches_view import FATES

    named = {name.lower(): getattr(batch_fates, name) for name in ("NONE", "COMMITTED", "ABORTED", "OPEN")}
    assert {word: place for place, word in enumerate(FATES)} == named


def mark(rows, aborted, opened):
    found = np.full(len(rows), -1, dtype=np.int64)
    shaped = (np.array(part, dtype=np.int64).reshape(-1, columns) for part, columns in ((aborted, 3), (opened, 2)))
    batch_fates.mark_fates(rows, *shaped, found)
    return found.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_a_transactional_batch_has_the_fate_of_its_range(seed):
    aborted, opened = ranges_of(random.Random(seed))
    places = [(producer_id, offset) for producer_id in (-1, *PRODUCERS, 99) for offset in OFFSETS]
    rows = np.zeros((len(places), headers.COLUMNS), dtype=np.int64)
    rows[:, [headers.PRODUCER_ID, headers.BASE_OFFSET]] = places
    rows[:, headers.ATTRIBUTES] = TRANSACTIONAL
    rows[:, headers.CONTROL_TYPE] = headers.NOT_CONTROL
    assert mark(rows, aborted, opened) == [fate(aborted, opened, *place) for place in places]


@pytest.mark.parametrize(("attributes", "control_type"), [(0, headers.NOT_CONTROL), (TRANSACTIONAL, 0)])
def test_a_batch_outside_of_transactions_and_a_marker_have_none(attributes, control_type):
    row = np.zeros((1, headers.COLUMNS), dtype=np.int64)
    row[0, headers.ATTRIBUTES], row[0, headers.CONTROL_TYPE] = attributes, control_type
    assert mark(row, [(0, 0, 9)], [(0, 0)]) == [batch_fates.NONE]
