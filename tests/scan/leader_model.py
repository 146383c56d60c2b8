"""A model of a partition leader's producer state, batch by batch, in plain dicts; it shares no code with the walk.

Straight from what `ProducerAppendInfo`, `ProducerStateEntry` and `ProducerStateManager` do.
"""

from dataclasses import dataclass, field

DAY_MS = 86_400_000
T0 = 1_700_000_000_000
SEQUENCE_GAP, SEQUENCE_DUPLICATE, SEQUENCE_RESTART, ZOMBIE_EPOCH, ZOMBIE_AFTER_MARKER, ZOMBIE_MARKER = range(6)
COORDINATOR_EPOCH_BACK, PLAIN_IN_TRANSACTION, EPOCH_IN_TRANSACTION, EMPTY_COMMIT = 6, 7, 8, 9


@dataclass
class Batch:
    """A batch: `kind` is data, commit, abort, or none (a control batch that ends nothing)."""

    base: int
    delta: int
    pid: int = -1
    epoch: int = -1
    seq: int = -1
    count: int = 1
    kind: str = "data"
    transactional: bool = False
    append_time: bool = False
    horizon: bool = False
    coordinator: int = -1
    start_ms: int = T0
    time_ms: int = T0
    size: int = 100
    segment: int = 0

    @property
    def last(self):
        return self.base + self.delta


@dataclass
class Producer:
    """State of a producer in the model."""

    epoch: int = -1
    coordinator: int = -1
    last_seq: int = -1
    last_offset: int = -1
    delta: int = 0
    time: int = -1
    first: int = -1
    snapshot_epoch: int = -1
    opened: list = field(default_factory=list)
    # Judging.
    met: bool = False
    highest: int = -1
    expected: int | None = None
    sequenced: bool = False
    since: int = 0  # the offset behind its last batch, or where it was met first
    last_marker: tuple = (-1, -1, -1)
    written: Batch | None = None  # the last one in the log
    markers: list = field(default_factory=list)  # behind it: (kind, offset)


class Model:
    """Reads batches one by one. The results are `ended`, `anomalies`, `gaps` and `producers`."""

    def __init__(self, snapshot=(), log_start=0, next_offset=None, has_sequences=True):
        self.log_start, self.has_sequences = log_start, has_sequences
        self.producers, self.ended, self.anomalies, self.gaps = {}, [], [], []
        self.next_offset, self.clock, self.there = next_offset, -1, set()
        self.totals = dict.fromkeys(("batches", "bytes", "plain", "control", "data", "holes", "explained"), 0)
        self.tally = {"commit": [0, 0], "abort": [0, 0]}
        for entry in snapshot:
            self.producers[entry.producer_id] = Producer(
                entry.producer_epoch, entry.coordinator_epoch, entry.last_sequence, entry.last_offset,
                entry.offset_delta, entry.timestamp, entry.current_txn_first_offset, entry.producer_epoch,
                since=next_offset,
            )  # fmt: skip

    def read(self, batch):
        if self.next_offset is not None and batch.base > self.next_offset and batch.base > self.log_start:
            self.gaps.append((max(self.next_offset, self.log_start), batch.base, batch.segment))
        if self.next_offset is None:
            self.next_offset = batch.base
        self.there.update(range(batch.base, batch.last + 1))
        before, self.next_offset = self.next_offset, batch.last + 1
        if batch.kind != "data" or batch.append_time:
            self.clock = max(self.clock, batch.time_ms)
        counted = batch.last >= self.log_start
        if counted:
            self.totals["batches"] += 1
            self.totals["bytes"] += batch.size
            if batch.kind == "data":
                self.totals["data"] += batch.count
                self.totals["holes"] += batch.delta + 1 - batch.count
                self.totals["plain"] += 0 if batch.transactional else batch.count
            else:
                self.totals["control"] += 1
        if batch.pid < 0 or batch.kind == "none":
            return
        known = batch.pid in self.producers
        # Missing offsets before its first batch do not belong to a producer.
        producer = self.producers.setdefault(batch.pid, Producer(since=batch.base if not known else 0))
        if batch.kind == "data":
            self.judge(batch, producer)
            self.append(batch, producer, counted)
        else:
            self.end(batch, producer, counted)
        producer.met = True
        assert before is not None

    def note(self, kind, batch, expected, found, details=(0, 0, 0)):
        self.anomalies.append((kind, batch.pid, batch.epoch, batch.base, batch.segment, expected, found, *details))

    def judge(self, batch, producer):
        if producer.first >= 0 and not batch.transactional:
            self.note(PLAIN_IN_TRANSACTION, batch, producer.first, batch.base)
        if batch.epoch < producer.highest:
            fenced = producer.last_marker[2] == producer.highest
            kind = ZOMBIE_AFTER_MARKER if fenced else ZOMBIE_EPOCH
            self.note(kind, batch, producer.highest, batch.epoch)
            return
        if batch.epoch > producer.highest:
            if batch.transactional and producer.opened:
                self.note(EPOCH_IN_TRANSACTION, batch, producer.highest, batch.epoch)
            self.raise_epoch(producer, batch.epoch)
        if batch.seq < 0 or not self.has_sequences:
            return
        following = (batch.seq + batch.delta + 1) % 2**31
        idle = max(self.clock, batch.time_ms) - producer.time
        if producer.expected is not None and batch.seq != producer.expected:
            ahead = (batch.seq - producer.expected) % 2**31
            missing = sum(offset not in self.there for offset in range(producer.since, batch.base))
            if producer.met and producer.first < 0 and idle >= DAY_MS:
                self.totals["explained"] += 1
            elif producer.sequenced and ahead >= 2**30:
                self.note(SEQUENCE_DUPLICATE, batch, producer.expected, batch.seq)
                if (following - producer.expected) % 2**31 >= 2**30:
                    following = producer.expected
            elif missing >= ahead:
                self.totals["explained"] += 1
            else:
                kind = SEQUENCE_GAP if producer.sequenced else SEQUENCE_RESTART
                self.note(kind, batch, producer.expected, batch.seq)
        producer.expected, producer.sequenced = following, True

    def raise_epoch(self, producer, epoch):
        producer.expected = 0 if producer.highest >= 0 else None
        producer.highest, producer.sequenced = epoch, False

    def append(self, batch, producer, counted):
        producer.epoch = batch.epoch
        producer.last_seq = (batch.seq + batch.delta) % 2**31 if batch.seq >= 0 else -1
        producer.last_offset, producer.delta, producer.time = batch.last, batch.delta, batch.time_ms
        producer.since = batch.last + 1
        producer.written, producer.markers = batch, []
        if batch.transactional:
            if producer.first < 0:
                producer.first = batch.base
            producer.opened.append((batch, counted))

    def judge_empty(self, batch, producer):
        """Check a commit without records that follows only aborts of the epoch in which the producer wrote last."""
        before = producer.written
        if batch.kind != "commit" or producer.first >= 0 or before is None or not self.has_sequences:
            return
        is_window = producer.last_seq >= 0 and batch.epoch == producer.epoch == producer.highest
        is_whole = all(offset in self.there for offset in range(before.last + 1, batch.base))
        if is_window and is_whole and {kind for kind, _ in producer.markers} == {"abort"}:
            due = (before.seq + before.delta + 1) % 2**31
            self.note(EMPTY_COMMIT, batch, due, before.seq, (batch.time_ms, producer.markers[0][1], before.last))

    def end(self, batch, producer, counted):
        if batch.epoch < producer.highest:
            self.note(ZOMBIE_MARKER, batch, producer.highest, batch.epoch)
        elif batch.epoch > producer.highest:
            self.raise_epoch(producer, batch.epoch)
        if producer.last_marker[0] >= 0 and batch.coordinator < producer.coordinator:
            self.note(COORDINATOR_EPOCH_BACK, batch, producer.coordinator, batch.coordinator)
        self.judge_empty(batch, producer)
        producer.markers.append((batch.kind, batch.base))
        others = [one.first for one in self.producers.values() if one is not producer and one.first >= 0]
        data, opened = [one for one, _ in producer.opened], producer.first >= 0
        records = sum(one.count for one, it in producer.opened if it)
        if data and counted:
            self.tally[batch.kind][0] += 1
            self.tally[batch.kind][1] += records
        first = data[0] if data else None
        start_ms = -1 if first is None else first.time_ms if first.horizon or first.start_ms < 0 else first.start_ms
        self.ended.append((
            batch.pid, data[-1].epoch if data else producer.snapshot_epoch if opened else batch.epoch,
            producer.first, data[-1].last if data else -1, batch.base, int(batch.kind == "commit"), batch.epoch,
            batch.coordinator, records, sum(one.size for one, it in producer.opened if it), len(data), start_ms,
            batch.time_ms, batch.segment, 0, min(others, default=batch.base + 1),
        ))  # fmt: skip
        producer.first, producer.opened = -1, []
        if producer.epoch != batch.epoch:
            producer.epoch, producer.last_seq, producer.last_offset, producer.delta = batch.epoch, -1, -1, 0
        producer.coordinator, producer.time = batch.coordinator, batch.time_ms
        producer.last_marker = (batch.base, int(batch.kind == "commit"), batch.epoch)
