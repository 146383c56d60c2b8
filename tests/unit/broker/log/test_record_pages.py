"""Pages of the records of a log for the admin port: each record once, with the fate of its transaction."""

from random import Random

import pytest

from ottla.admin.topics.reading import read_backward, read_forward
from ottla.fates import Fate
from ottla.protocol.steps import to_the_end


def write_history(partition, produce, transactor, seed):
    """Write transactions of four producers that overlap. Return {offset: fate} of their records."""
    random, fates, opened = Random(seed), {}, {}
    producers = [transactor(partition, 100 + number) for number in range(4)]
    for _ in range(300):
        producer, roll = random.choice(producers), random.random()
        if roll < 0.2:
            result = produce(partition, random.randint(1, 3))
            fates |= dict.fromkeys(range(result.base_offset, result.last_offset + 1), Fate.NONE)
        elif roll < 0.75 or producer not in opened:
            result = producer.send(random.randint(1, 3), value=bytes(random.randint(0, 200)))
            opened.setdefault(producer, []).extend(range(result.base_offset, result.last_offset + 1))
        else:
            is_commit = random.random() < 0.5
            producer.end(is_commit)
            fates |= dict.fromkeys(opened.pop(producer), Fate.COMMITTED if is_commit else Fate.ABORTED)
    return fates | {offset: Fate.OPEN for offsets in opened.values() for offset in offsets}


def read_pages(read, at, end):
    """Return {offset: fate} of the pages from offset `at` to offset `end`, in either direction."""
    found = {}
    while at != end:
        page = to_the_end(read(at))
        fates = {each.record.offset: each.fate for each in page.records}
        assert not fates.keys() & found.keys() and not page.left_out
        found |= fates
        after = page.end if at < end else page.first
        assert after != at
        at = after
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("piece_bytes", [400, 256 * 1024])
def test_pages_in_both_directions_have_every_record_once_with_its_fate(logs, produce, transactor, seed, piece_bytes):
    partition = logs.partition(segment_bytes=3_000, index_interval_bytes=100)
    fates = write_history(partition, produce, transactor, seed)
    end = partition.high_watermark
    assert {Fate.COMMITTED, Fate.ABORTED, Fate.OPEN, Fate.NONE} == set(fates.values())
    forward = read_pages(lambda at: read_forward(partition, at, 7, None, piece_bytes), 0, end)
    backward = read_pages(lambda at: read_backward(partition, at, 7, None, piece_bytes), end, 0)
    assert forward == backward == fates
