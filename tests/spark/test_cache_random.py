"""Logs that change at random, in every way a log can: a cache gives the same rows as the log."""

import random
import shutil
from itertools import pairwise

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.spark_jobs.cache import seen, settled_ranges
from tests.segment_files import LogWriter
from tests.spark.cache_reads import live, through_cache

STEPS = 25
LEVELS = ("read_committed", "read_uncommitted")


class Changing:
    """A partition that is written, truncated, compacted and recreated."""

    def __init__(self, root, chance):
        self.root, self.chance = root, chance
        root.mkdir()
        (root / "meta.properties").write_text("version=1\n")
        self.writer = LogWriter(root)
        self.open = {}
        self.epochs = dict.fromkeys(range(4), 0)

    def append(self):
        for _ in range(self.chance.randrange(1, 6)):
            producer = self.chance.choice([-1, 0, 1, 2, 3])
            value = self.chance.randbytes(self.chance.randrange(40))
            self.writer.data(self.chance.randrange(1, 5), producer_id=producer, value=value)
            if producer >= 0:
                self.open[producer] = True

    def end(self):
        for producer in self.chance.sample(sorted(self.open), min(len(self.open), 2)):
            self.writer.marker(producer, commit=self.chance.random() < 0.5)
            del self.open[producer]

    def roll(self):
        if self.writer.path.stat().st_size:
            self.writer.roll()

    def truncate(self):
        """Truncate to the start of one of the last batches, as a follower does with a new leader."""
        batches = self.batches()
        if len(batches) < 4:
            return
        path, position, offset = self.chance.choice(batches[-len(batches) // 3 :])
        for later in self.segments():
            if later > path:
                later.unlink()
        with path.open("r+b") as file:
            file.truncate(position)
        self.writer.path, self.writer.next_offset = path, offset
        # The producers with open transactions are no longer known; markers that end nothing do no harm.
        self.open = dict.fromkeys(range(4), True)

    def compact(self):
        """Leave batches out of a segment that is not the last, under the same name."""
        segments = self.segments()[:-1]
        if not segments:
            return
        path = self.chance.choice(segments)
        content = path.read_bytes()
        ends = [position for one, position, _ in self.batches() if one == path] + [len(content)]
        edges = pairwise(ends)
        kept = [content[start:end] for start, end in edges if self.chance.random() < 0.7 or start == 0]
        swap = path.with_suffix(".swap")
        swap.write_bytes(b"".join(kept))
        swap.replace(path)

    def delete_records(self):
        offsets = [offset for _, _, offset in self.batches()]
        start = self.chance.choice(offsets[: len(offsets) // 3 + 1] or [0]) + self.chance.randrange(2)
        (self.root / "log-start-offset-checkpoint").write_text(f"0\n1\nledger 0 {start}\n")
        for first, second in pairwise(self.segments()):
            if int(second.stem) <= start:
                first.unlink()

    def make_anew(self):
        shutil.rmtree(self.writer.folder)
        (self.root / "log-start-offset-checkpoint").unlink(missing_ok=True)
        self.writer = LogWriter(self.root)
        self.open = {}

    def segments(self):
        return sorted(self.writer.folder.glob("*.log"))

    def batches(self):
        """Return (file, position, base offset) of each batch."""
        from ottla.protocol.batch_header import read_header

        found = []
        for path in self.segments():
            content = path.read_bytes()
            at = 0
            while at < len(content):
                header = read_header(content, at)
                found.append((path, at, header.base_offset))
                at += header.size_bytes
        return found

    def change(self):
        often = [self.append] * 6 + [self.end] * 4 + [self.roll] * 2
        self.chance.choice([*often, self.truncate, self.compact, self.delete_records, self.make_anew])()


@pytest.mark.parametrize("trusts_at_once", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_changes_reads_the_same(tmp_path, monkeypatch, seed, trusts_at_once):
    if trusts_at_once:
        # Treat the files as unchanging: nothing changes them while they are read.
        monkeypatch.setattr(seen, "RESTING_NS", 0)
    monkeypatch.setattr(settled_ranges, "TARGET_BYTES", 600)
    log = Changing(tmp_path / "log", random.Random(f"{seed}"))
    log.append()
    from_cache = 0
    for step in range(STEPS):
        log.change()
        if log.chance.random() < 0.3:
            log.change()
        for level in LEVELS:
            options = {"isolation.level": level}
            rows, behind = through_cache(log.root, tmp_path / "cache", **options)
            assert rows == live(log.root, **options), (step, level)
            from_cache += len(rows) - behind
            assert level == "read_uncommitted" or not behind
    assert from_cache
