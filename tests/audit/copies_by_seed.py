"""Copies of partitions on two brokers, made by a seed: sound ones that differ as Kafka's may, and faults in them."""

import random
from typing import NamedTuple

from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import assign_offsets, read_header, seal, write_header
from ottla.protocol.checkpoints import HIGH_WATERMARKS, LEADER_EPOCHS, LOG_STARTS, encode_epochs, encode_offsets

FAULTS = ("value", "crc", "epoch", "producer", "unclean", "unclean and nothing written")


class Planned(NamedTuple):
    """A batch at an offset: its records (key, value, headers, time), or none for a marker."""

    base_offset: int
    records: list
    epoch: int
    producer_id: int
    compression: int

    @property
    def next_offset(self):
        return self.base_offset + max(len(self.records), 1)

    def build(self, kept=None):
        """Return the batch with the records at the indexes `kept`, as compaction leaves it; None: with all."""
        if not self.records:
            batch = build_marker(self.producer_id, 0, 0, True, 5_000)
        else:
            kept = range(len(self.records)) if kept is None else kept
            batch = build_batch(
                [self.records[index] for index in kept],
                producer_id=self.producer_id,
                producer_epoch=0 if self.producer_id >= 0 else -1,
                base_sequence=self.base_offset if self.producer_id >= 0 else -1,
                transactional=self.producer_id >= 0,
                compression=self.compression,
                offset_deltas=list(kept),
                last_offset_delta=len(self.records) - 1,
            )
        assign_offsets(batch, self.base_offset, self.epoch)
        return batch


class Made(NamedTuple):
    """A pair of copies. `offset`: the place of the fault, None without one; `records`: the number that it concerns."""

    name: str
    fault: str | None
    offset: int | None = None
    records: int = 0


def plan(rng, count, base_offset=0, epoch=0, text="v"):
    """Return consecutive batches with rising leader epochs."""
    batches = []
    for _ in range(count):
        epoch += rng.random() < 0.15
        producer_id = rng.choice([-1, -1, 7])
        is_marker = producer_id >= 0 and len(batches) not in (0, 3) and rng.random() < 0.3
        size = 0 if is_marker else rng.randint(1, 6)
        records = [
            (b"k%d" % rng.randrange(9), b"%s %d" % (text.encode(), base_offset + at), [], 1_000 + base_offset + at)
            for at in range(size)
        ]
        batches.append(Planned(base_offset, records, epoch, producer_id, rng.choice([0, 0, 1])))
        base_offset = batches[-1].next_offset
    return batches


def starts_of(batches):
    """Return (leader epoch, first offset) of the batches."""
    found = {}
    for one in batches:
        found.setdefault(one.epoch, one.base_offset)
    return list(found.items())


class CopyOf:
    """Planned batches of one copy with their bytes, which a fault may change, and its checkpoints."""

    def __init__(self, rng, batches, high_watermark, epochs=None, compacted_below=0):
        self.batches = []
        for one in batches:
            if one.base_offset >= compacted_below or not one.records:
                self.batches.append((one, one.build()))
                continue
            kept = [at for at in range(len(one.records)) if rng.random() < 0.7]
            if kept or rng.random() < 0.5:
                self.batches.append((one, one.build(kept)))
        self.high_watermark = high_watermark
        # A follower learns epochs from batches, a leader from its election.
        fetched = starts_of([one for one, _ in self.batches])
        self.epochs = epochs or rng.choice([fetched, starts_of(batches)])
        self.log_start = batches[0].base_offset if batches else 0

    def write(self, rng, root, name, starts, watermarks):
        folder = root / f"{name}-0"
        folder.mkdir(parents=True)
        path = folder / f"{self.log_start:020d}.log"
        content = b""
        for one, batch in self.batches:
            if content and rng.random() < 0.2:
                path.write_bytes(content)
                path, content = folder / f"{one.base_offset:020d}.log", b""
            content += batch
        path.write_bytes(content)
        (folder / LEADER_EPOCHS).write_bytes(encode_epochs(self.epochs))
        starts[name, 0], watermarks[name, 0] = self.log_start, self.high_watermark


def pair(rng, fault=None):
    """Return two copies, and (offset, records) of the fault."""
    batches = plan(rng, rng.randint(8, 16))
    end = batches[-1].next_offset
    first, second = list(batches), list(batches)
    if rng.random() < 0.3:
        first = first[rng.randint(1, 3) :]
    kept = rng.randint(6, len(batches))  # the second copy lags
    second = second[:kept]
    second_end = second[-1].next_offset
    acknowledged = rng.choice([one.base_offset for one in second] + [second_end])
    watermarks = [rng.choice([acknowledged, end]), acknowledged]
    compacted = [rng.choice([0, 0, end]), rng.choice([0, 0, end])]
    if fault is None and rng.random() < 0.4:
        # Records of an old leader that were never acknowledged: a later epoch begins at or above its high watermark.
        cut = rng.choice([one for one in second if one.base_offset >= acknowledged] or [None])
        if cut is not None:
            old = [one for one in second if one.base_offset < cut.base_offset]
            second = old + plan(rng, 3, cut.base_offset, cut.epoch, "never acknowledged")
            first = [one for one in first if one.base_offset < cut.base_offset]
            first += plan(rng, 5, cut.base_offset, second[-1].epoch + 1, "later")
            watermarks[0] = first[-1].next_offset if rng.random() < 0.5 else cut.base_offset
    if fault is not None:
        watermarks, compacted = [end, second_end], [0, 0]
    if fault is not None and fault.startswith("unclean"):
        cut = rng.choice(batches[4:kept])
        lost = [one for one in second if one.base_offset >= cut.base_offset]
        first = [one for one in first if one.base_offset < cut.base_offset]
        epoch = second[-1].epoch + 1
        epochs = [*starts_of(first), (epoch, cut.base_offset)]
        if fault == "unclean":
            first += plan(rng, rng.randint(1, 9), cut.base_offset, epoch, "later")
            epochs = starts_of(first)
        copies = CopyOf(rng, first, first[-1].next_offset, epochs), CopyOf(rng, second, second_end)
        return copies, (cut.base_offset, sum(len(one.records) for one in lost))
    copies = [
        CopyOf(rng, batches, *rest) if batches else None
        for batches, *rest in ((first, watermarks[0], None, compacted[0]), (second, watermarks[1], None, compacted[1]))
    ]
    return copies, None if fault is None else change(rng, copies[1], fault)


def change(rng, copy, fault):
    """Plant a fault in a batch with records that both copies have, and return (offset, records).

    The last batch stays: with a wrong CRC it would be a torn tail.
    """
    at = rng.choice([at for at, (one, _) in enumerate(copy.batches[:-1]) if at >= 3 and one.records])
    one, batch = copy.batches[at]
    if fault == "value":
        index = rng.randrange(len(one.records))
        key, value, headers, time = one.records[index]
        records = [*one.records[:index], (key, b"X" + value[1:], headers, time), *one.records[index + 1 :]]
        copy.batches[at] = one, one._replace(records=records).build()
        return one.base_offset + index, 1
    if fault == "crc":
        batch[-1] ^= 1
    elif fault == "epoch":
        assign_offsets(batch, one.base_offset, one.epoch + 1)
    else:
        write_header(batch, read_header(batch)._replace(producer_id=99))
        seal(batch)
    return one.base_offset, len(one.records)


def write_pairs(root, seed, count, faults=(None,)):
    """Write the directories `one` and `two` with `count` partitions, and return what was planted in each."""
    directories = root / "one", root / "two"
    starts, watermarks = ({}, {}), ({}, {})
    made = []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        fault = faults[number % len(faults)]
        name = f"pair.{number:04d}"
        copies, planted = pair(rng, fault)
        for side, copy in enumerate(copies):
            copy.write(rng, directories[side], name, starts[side], watermarks[side])
        made.append(Made(name, fault, *(planted or ())))
    for side, directory in enumerate(directories):
        (directory / "meta.properties").write_text("version=1\n")
        (directory / LOG_STARTS).write_bytes(encode_offsets(starts[side]))
        (directory / HIGH_WATERMARKS).write_bytes(encode_offsets(watermarks[side]))
    return directories, made
