"""The walk against a model of a partition leader's rules, batch by batch, on random logs, sound and broken ones."""

import pickle
import random
from dataclasses import replace

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from ottla.scan import events, headers, states
from ottla.scan.events import Follower
from ottla.scan.index_files import snapshot_entries
from tests.kernel_kinds import PLAIN
from tests.scan.leader_model import DAY_MS, T0, Batch, Model

MAX = 2**31 - 1


def rows_of(batches):
    """Return header rows, all at position 0, because the model has no positions."""
    rows = np.zeros((len(batches), headers.COLUMNS), dtype=np.int64)
    for row, batch in zip(rows, batches, strict=True):
        kinds = {"data": headers.NOT_CONTROL, "abort": 0, "commit": 1, "none": headers.EMPTY_CONTROL}
        row[headers.BASE_OFFSET], row[headers.LAST_OFFSET], row[headers.SIZE] = batch.base, batch.last, batch.size
        row[headers.ATTRIBUTES] = (
            0x10 * (batch.transactional or batch.kind != "data")
            + 0x20 * (batch.kind != "data")
            + 0x08 * batch.append_time
            + 0x40 * batch.horizon
        )
        row[headers.BASE_TIMESTAMP], row[headers.MAX_TIMESTAMP] = batch.start_ms, batch.time_ms
        row[headers.PRODUCER_ID], row[headers.PRODUCER_EPOCH] = batch.pid, batch.epoch
        row[headers.BASE_SEQUENCE], row[headers.RECORD_COUNT] = batch.seq, batch.count
        row[headers.CONTROL_TYPE], row[headers.COORDINATOR_EPOCH] = kinds[batch.kind], batch.coordinator
    return rows


class Writer:
    """Writes sound logs: offsets, sequences, epochs and markers as producers and coordinators have them."""

    def __init__(self, chance):
        self.chance, self.batches, self.next, self.now, self.segment = chance, [], chance.choice([0, 1000]), T0, 0
        first = [0, 0, 2**31 - 12]
        self.seq = {pid: chance.choice(first) for pid in range(1, chance.randrange(2, 7))}
        self.epoch = {pid: chance.choice([0, 0, 5, 32_700]) for pid in self.seq}
        self.opened, self.coordinator = {}, 3

    def add(self, **fields):
        batch = Batch(
            self.next, fields.pop("delta", 0), size=self.chance.randrange(70, 999), segment=self.segment, **fields
        )
        self.batches.append(batch)
        self.next = batch.last + 1
        return batch

    def step(self):
        chance = self.chance
        dice, pid = chance.random(), chance.choice(list(self.seq))
        self.now += chance.choice([1, 5, 1000])
        if dice < 0.03:
            self.segment = self.next
        elif dice < 0.05:
            self.now += chance.choice([3_600_000, 2 * DAY_MS])
        elif dice < 0.10:
            self.add(delta=chance.randrange(4), time_ms=self.now, start_ms=self.now, append_time=chance.random() < 0.5)
        elif dice < 0.13:
            self.add(kind="none", pid=chance.choice([-1, pid]), epoch=0, time_ms=self.now)
        elif dice < 0.35 and pid in self.opened:
            self.end(pid)
        elif dice < 0.40 and pid not in self.opened:
            self.new_epoch(pid)
        else:
            self.data(pid, self.opened.get(pid, chance.random() < 0.7))

    def data(self, pid, transactional, **more):
        delta = more.pop("delta", self.chance.randrange(5))
        fields = {"seq": self.seq[pid], "epoch": self.epoch[pid], "time_ms": self.now, "start_ms": self.now - 3, **more}
        fields.setdefault("count", delta + 1)
        batch = self.add(pid=pid, delta=delta, transactional=transactional, **fields)
        self.seq[pid] = (batch.seq + delta + 1) % 2**31
        if transactional:
            self.opened[pid] = True
        return batch

    def end(self, pid, **more):
        if self.chance.random() < 0.5 and self.epoch[pid] < 32_760:  # as transaction version 2 has it
            self.new_epoch(pid)
        self.coordinator += self.chance.random() < 0.05
        fields = {"epoch": self.epoch[pid], "coordinator": self.coordinator, **more}
        fields.setdefault("kind", self.chance.choice(["commit", "abort"]))
        batch = self.add(pid=pid, time_ms=self.now, start_ms=self.now, **fields)
        self.opened.pop(pid, None)
        return batch

    def new_epoch(self, pid):
        self.epoch[pid] += 1
        self.seq[pid] = 0

    def break_something(self):
        """Write something that a correct broker never accepts."""
        chance, pid = self.chance, self.chance.choice(list(self.seq))
        transactional = self.opened.get(pid, chance.random() < 0.7)
        what = chance.randrange(10)
        if what == 0:
            self.seq[pid] = (self.seq[pid] + chance.choice([1, 7, 2**29])) % 2**31
            self.data(pid, transactional)
        elif what == 1:
            self.seq[pid] = (self.seq[pid] - chance.choice([1, 3, 2**29])) % 2**31
            self.data(pid, transactional)
        elif what == 2 and self.epoch[pid] > 0:
            kept = self.seq[pid]
            self.data(pid, transactional, epoch=self.epoch[pid] - 1, seq=chance.choice([0, kept]))
            self.seq[pid] = kept
        elif what == 3:
            self.end(pid, epoch=max(self.epoch[pid] - 1, 0))
        elif what == 4:
            self.end(pid, coordinator=chance.choice([0, self.coordinator - 1]))
        elif what == 5:
            self.data(pid, False)
        elif what == 6:
            self.next += chance.randrange(1, 9)
        elif what == 7:
            self.epoch[pid] += 1
            self.data(pid, transactional)
        elif what == 8:
            self.end(pid, kind="abort")
            self.end(pid, kind="commit")
        else:
            self.data(pid, transactional, seq=-1)


def compact(chance, batches):
    """Return the batches that cleaning may leave of a sound log: a marker stays while data of its transaction does."""
    kept, markers_needed = [], set()
    for batch in batches:
        if batch.kind in ("commit", "abort"):
            if batch.pid in markers_needed or chance.random() < 0.5:
                kept.append(replace(batch, horizon=chance.random() < 0.5))
            markers_needed.discard(batch.pid)
            continue
        dice = chance.random()
        if dice < 0.4 and batch.kind == "data":
            continue
        if dice < 0.6 and batch.kind == "data":
            batch = replace(batch, count=chance.randrange(batch.count + 1))
            if batch.count == 0:
                batch = replace(batch, start_ms=-1)
        if batch.transactional:
            markers_needed.add(batch.pid)
        kept.append(replace(batch, horizon=chance.random() < 0.2))
    return kept


def write_log(seed, *, faults):
    chance = random.Random(seed)
    writer = Writer(chance)
    for _ in range(chance.choice([3, 20, 60])):
        if chance.random() < faults:
            writer.break_something()
        else:
            writer.step()
    batches = compact(chance, writer.batches) if chance.random() < 0.3 else writer.batches
    return batches, writer, chance


def snapshot_below(batches, chance):
    """Return a snapshot at the first batch: producers of the log, some with open transactions below it, and others."""
    first = batches[0].base if batches else 0
    entries = []
    for pid in chance.sample(range(1, 12), chance.randrange(5)):
        opened = chance.randrange(first) if first and chance.random() < 0.5 else -1
        if opened in [entry.current_txn_first_offset for entry in entries]:
            opened = -1
        entries.append(
            ProducerEntry(pid, chance.randrange(3), chance.choice([-1, 9]), chance.choice([-1, 5]), 0, T0, 2, opened)
        )
    return entries, first


def follow(follower, rows, segments, chance=None):
    """Return all outputs for the rows, passed in runs of one segment (and of random length)."""
    found, at = ([], [], []), 0
    while at < len(rows):
        end = at + 1
        most = chance.choice([1, 3, len(rows)]) if chance else len(rows)
        while end < len(rows) and segments[end] == segments[at] and end - at < most:
            end += 1
        for out, part in zip(found, follower.follow(rows[at:end], 0, segments[at]), strict=True):
            out += map(tuple, part.tolist())
        at = end
    return found


def run(batches, start=None, *, log_start=0, chance=None, has_sequences=True):
    rows = rows_of(batches)
    follower = Follower(states.empty() if start is None else start, log_start, DAY_MS, has_sequences=has_sequences)
    found = follow(follower, rows, [batch.segment for batch in batches], chance)
    return found, follower.leaving(), follower.totals


def comparable(leaving):
    """Return the states without the fields that are needed only to join ranges."""
    rows = leaving.rows[np.argsort(leaving.rows[:, states.PRODUCER_ID])].copy()
    rows[:, states.FLAGS] &= states.FROM_SNAPSHOT | states.SEEN_BATCH | states.SEEN_MARKER | states.SEQUENCED
    rows[:, [states.FIRST_CLOCK, states.PREVIOUS_OPEN, states.NEXT_OPEN]] = 0
    return rows.tolist(), leaving.next_offset, leaving.clock_ms


def round_trip(entries):
    """Return the entries after a round trip through a snapshot file."""
    return snapshot_entries(encode_snapshot(entries)).rows


def entries_of(leaving):
    return {
        row[states.PRODUCER_ID]: tuple(row[states.EPOCH : states.FIRST_OFFSET + 1]) for row in leaving.rows.tolist()
    }


@pytest.mark.parametrize("block", range(12))
def test_random_logs_are_followed_as_the_model_follows_them(block):
    anomalies = []
    for seed in range(250 * block, 250 * (block + 1)):
        batches, _, chance = write_log(seed, faults=0.15)
        entries, first = snapshot_below(batches, chance) if chance.random() < 0.5 else ((), None)
        log_start = chance.choice([0, batches[len(batches) // 2].base]) if batches else 0
        has_sequences = chance.random() < 0.9
        model = Model(entries, log_start, first, has_sequences)
        for batch in batches:
            model.read(batch)
        start = states.empty() if first is None else states.from_snapshot(round_trip(entries), first)
        (ended, found, gaps), leaving, totals = run(
            batches, start, log_start=log_start, chance=chance, has_sequences=has_sequences
        )
        assert ended == model.ended, seed
        assert [(*row[:4], *row[5:]) for row in found] == model.anomalies, seed
        assert gaps == model.gaps, seed
        assert entries_of(leaving) == {
            pid: (one.epoch, one.coordinator, one.last_seq, one.last_offset, one.delta, one.time, one.first)
            for pid, one in model.producers.items()
        }, seed
        assert dict(zip(model.totals, totals[[0, 1, 2, 3, 8, 9, 10]].tolist(), strict=True)) == model.totals, seed
        assert totals[4:8].tolist() == model.tally["commit"] + model.tally["abort"], seed
        anomalies += [row[events.ANOMALY_KIND] for row in found]
    assert set(anomalies) == set(range(len(events.KINDS)))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_splitting_anywhere_gives_what_one_walk_gives(kind_of_kernels, block):
    count = 15 if kind_of_kernels == PLAIN else 60
    for seed in range(count * block, count * (block + 1)):
        batches, _, chance = write_log(seed, faults=0.15)
        entries, first = snapshot_below(batches, chance)
        start = states.from_snapshot(round_trip(entries), first)
        (ended, anomalies, gaps), leaving, totals = run(batches, start)
        for cut in range(1, len(batches)):
            middle = chance.randrange(cut + 1)
            alone = [run(part)[1] for part in (batches[:middle], batches[middle:cut], batches[cut:])]
            entered = states.enter(start, alone[:2])
            head, tail = run(batches[:cut], start), run(batches[cut:], entered)
            assert comparable(entered) == comparable(head[1]), (seed, cut)
            assert comparable(tail[1]) == comparable(leaving) == comparable(states.enter(start, alone)), (seed, cut)
            for whole, before, after in zip((ended, anomalies, gaps), head[0], tail[0], strict=True):
                assert whole == before + after, (seed, cut)
            assert (head[2] + tail[2]).tolist() == totals.tolist(), (seed, cut)


@pytest.mark.parametrize("block", range(4))
def test_sound_logs_have_no_anomalies_compacted_or_not(block):
    batches_read = explained = 0
    for seed in range(10_000 + 250 * block, 10_000 + 250 * (block + 1)):
        batches, writer, _ = write_log(seed, faults=0)
        (_, anomalies, gaps), _, totals = run(batches)
        assert anomalies == [], seed
        assert not gaps or len(batches) < len(writer.batches), seed
        batches_read += len(batches)
        explained += int(totals[events.EXPLAINED_GAPS])
    assert batches_read > 3_000
    assert explained > 20


def test_states_travel_small_and_whole():
    batches = [
        Batch(5 * pid, 4, pid, 0, 40 * pid, time_ms=T0 + pid, transactional=pid % 3 == 0) for pid in range(2_000)
    ]
    leaving = run(batches)[1]
    packed = pickle.dumps(leaving)
    assert len(packed) < leaving.rows.nbytes / 4
    for one in (leaving, states.empty(7), leaving._replace(rows=leaving.rows[:1])):
        again = pickle.loads(pickle.dumps(one))
        assert (again.rows.tolist(), again[1:]) == (one.rows.tolist(), one[1:])
    widest = np.full((2, states.COLUMNS), -(2**63), dtype=np.int64)
    widest[1] = 2**63 - 1
    assert pickle.loads(pickle.dumps(states.States(widest))).rows.tolist() == widest.tolist()


def test_more_producers_than_the_table_holds_at_first_are_followed_all():
    batches = [Batch(pid, 0, pid, 0, 0, transactional=True) for pid in range(5_000)]
    batches += [Batch(5_000 + pid, 0, pid, 0, kind="abort", coordinator=0) for pid in range(0, 5_000, 3)]
    (ended, anomalies, _), leaving, _ = run(batches)
    assert anomalies == []
    assert len(ended) == 1667
    assert [row[events.ENDED_LAST_STABLE_OFFSET] for row in ended[:3]] == [1, 1, 1]
    assert leaving.open_rows[:, states.PRODUCER_ID].tolist() == [pid for pid in range(5_000) if pid % 3]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ({"seq": 0, "delta": 4}, {"seq": 5}, None),
        ({"seq": 0, "delta": 4}, {"seq": 6}, events.SEQUENCE_GAP),
        ({"seq": 0, "delta": 4}, {"seq": 4}, events.SEQUENCE_DUPLICATE),
        ({"seq": 0, "delta": 4}, {"seq": 0, "delta": 4}, events.SEQUENCE_DUPLICATE),
        ({"seq": MAX - 1, "delta": 1}, {"seq": 0}, None),
        ({"seq": MAX - 1, "delta": 1}, {"seq": 1}, events.SEQUENCE_GAP),
        ({"seq": MAX - 1, "delta": 2}, {"seq": 1}, None),
        ({"seq": 0}, {"epoch": 2, "seq": 0}, None),
        ({"seq": 0}, {"epoch": 2, "seq": 1}, events.SEQUENCE_RESTART),
        ({"seq": 0}, {"epoch": 0, "seq": 1}, events.ZOMBIE_EPOCH),
        ({"seq": 0}, {"seq": 7, "base": 17}, None),  # six sequences, six offsets are missing
        ({"seq": 0}, {"seq": 8, "base": 17}, events.SEQUENCE_GAP),
        ({"seq": 0}, {"seq": 8, "time_ms": T0 + DAY_MS}, None),
        ({"seq": 0}, {"seq": 8, "time_ms": T0 + DAY_MS - 1}, events.SEQUENCE_GAP),
        ({"seq": 5, "count": 0, "delta": 3}, {"seq": 9}, None),
    ],
)
def test_an_anomaly_of_a_batch_depends_on_the_batch_before_it(first, second, kind):
    one = Batch(**{"base": 10, "delta": 0, "pid": 7, "epoch": 1, **first})
    two = Batch(**{"base": one.last + 1, "delta": 0, "pid": 7, "epoch": 1, **second})
    (_, anomalies, _), _, _ = run([one, two])
    assert [row[events.ANOMALY_KIND] for row in anomalies] == ([] if kind is None else [kind])


@pytest.mark.parametrize(
    ("marker_epoch", "data_epoch", "seq", "kind"),
    [
        (4, 4, 1, None),  # transaction version 1: the epoch stays, sequences go on
        (5, 5, 0, None),  # version 2: every marker raises the epoch, sequences begin again
        (5, 5, 1, events.SEQUENCE_RESTART),
        (5, 4, 1, events.ZOMBIE_AFTER_MARKER),
        (5, 6, 0, None),
        (32_767, 32_766, 1, events.ZOMBIE_AFTER_MARKER),
    ],
)
def test_an_anomaly_of_data_after_a_marker_depends_on_its_epoch(marker_epoch, data_epoch, seq, kind):
    before = 32_766 if marker_epoch == 32_767 else 4
    (ended, anomalies, _), _, _ = run(
        [
            Batch(0, 0, 7, before, 0, transactional=True),
            Batch(1, 0, 7, marker_epoch, kind="commit", coordinator=0),
            Batch(2, 0, 7, data_epoch, seq, transactional=True),
        ]
    )
    assert [row[events.ANOMALY_KIND] for row in anomalies] == ([] if kind is None else [kind])
    assert ended[0][: events.ENDED_MARKER_OFFSET] == (7, before, 0, 0)
