"""Log directory for the benchmarks of scans, with every file that a cleanly stopped broker leaves. free

Records of 200 random bytes in batches of about 14 KB, eight interleaved transactional producers a partition, every
tenth transaction aborted. The same few batches repeat; a larger `templates` makes more different ones.
"""

import json
import os
import random

from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import assign_offsets, read_header, seal, write_header
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY, AbortedTxn, pack_aborted_txn
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot

TOPIC = "financial-ledger"
PRODUCERS = 8
TEMPLATES = 16
RECORDS_PER_BATCH = 64
BATCHES_PER_TRANSACTION = 10
ABORTED_EVERY = 10
VALUE_BYTES = 200
SEGMENT_BYTES = 256 * 1024 * 1024
INDEX_INTERVAL_BYTES = 4096
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"  # that of kafka.sh
FIRST_MS = 1_700_000_000_000


class PartitionWriter:
    """Writer that appends batches to segments, which it rolls, and writes their indexes and snapshots."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        self._folder = folder
        self._file = None
        self.next_offset = 0
        self.size = 0
        self.producers = {}
        self._open = {}
        self._roll()

    def append(self, batch):
        if self._position + len(batch) > SEGMENT_BYTES:
            self._roll()
        assign_offsets(batch, self.next_offset, 0)
        header = read_header(batch)
        if self._unindexed > INDEX_INTERVAL_BYTES:
            self._index += OFFSET_ENTRY.pack(header.last_offset - self._base, self._position)
            self._add_time()
            self._unindexed = 0
        if header.max_timestamp > self._latest[0]:
            self._latest = header.max_timestamp, header.last_offset
        self._file.write(batch)
        self._position += len(batch)
        self._unindexed += len(batch)
        self.size += len(batch)
        self.next_offset = header.last_offset + 1
        return header

    def data(self, batch):
        header = self.append(batch)
        first = self._open.setdefault(header.producer_id, header.base_offset)
        self.producers[header.producer_id] = ProducerEntry(
            header.producer_id,
            0,
            header.base_sequence + RECORDS_PER_BATCH - 1,
            header.last_offset,
            RECORDS_PER_BATCH - 1,
            header.max_timestamp,
            self.producers[header.producer_id].coordinator_epoch if header.producer_id in self.producers else -1,
            first,
        )

    def end(self, producer, commit, time_ms):
        header = self.append(build_marker(producer, 0, 0, commit, time_ms))
        first = self._open.pop(producer)
        if not commit:
            stable = min(self._open.values(), default=self.next_offset)
            self._aborted += pack_aborted_txn(AbortedTxn(producer, first, header.base_offset, stable))
        self.producers[producer] = self.producers[producer]._replace(
            timestamp=time_ms, coordinator_epoch=0, current_txn_first_offset=-1
        )

    def _add_time(self):
        if self._latest[0] > self._indexed_ms:
            self._times += TIME_ENTRY.pack(self._latest[0], self._latest[1] - self._base)
            self._indexed_ms = self._latest[0]

    def _roll(self):
        self.close()
        self._base, self._position, self._unindexed = self.next_offset, 0, 0
        self._index, self._times, self._aborted = bytearray(), bytearray(), bytearray()
        self._latest, self._indexed_ms = (-1, 0), -1
        self._file = (self._folder / f"{self._base:020d}.log").open("wb")

    def close(self):
        if self._file is None:
            return
        self._file.close()
        self._add_time()
        path = self._folder / f"{self._base:020d}"
        path.with_suffix(".index").write_bytes(self._index)
        path.with_suffix(".timeindex").write_bytes(self._times)
        if self._aborted:
            path.with_suffix(".txnindex").write_bytes(self._aborted)
        (self._folder / f"{self.next_offset:020d}.snapshot").write_bytes(encode_snapshot(self.producers.values()))


def make_log(root, size_bytes, partitions=4, copies=1, templates=TEMPLATES, value=None, codec=0):
    """Write the log into `root` and return (bytes, records, committed records), with all copies counted.

    `value` makes a value from a source of random numbers; `codec` is the compression codec of the batches.
    """
    root.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    batches = [_template(chance, value or _random_value, codec) for _ in range(templates)]
    ends, size, records, committed = {}, 0, 0, 0
    for partition in range(partitions):
        writer = PartitionWriter(root / f"{TOPIC}-{partition}")
        sequences, turns = [0] * PRODUCERS, 0
        while writer.size < size_bytes // partitions:
            turns += 1
            time_ms = FIRST_MS + turns * 100
            for _ in range(BATCHES_PER_TRANSACTION):
                for producer in range(PRODUCERS):
                    writer.data(_batch(chance.choice(batches), producer, sequences[producer], time_ms))
                    sequences[producer] += RECORDS_PER_BATCH
            for producer in range(PRODUCERS):
                commit = (turns + producer) % ABORTED_EVERY != 0
                writer.end(producer, commit, time_ms + 50)
                committed += commit * BATCHES_PER_TRANSACTION * RECORDS_PER_BATCH
            records += PRODUCERS * BATCHES_PER_TRANSACTION * RECORDS_PER_BATCH
        writer.close()
        ends[f"{TOPIC} {partition}"] = writer.next_offset
        size += writer.size
    for copy in range(1, copies):
        for partition in range(partitions):
            folder = root / f"{TOPIC}-{copy:03d}-{partition}"
            folder.mkdir()
            for path in (root / f"{TOPIC}-{partition}").iterdir():
                os.link(path, folder / path.name)
            ends[f"{TOPIC}-{copy:03d} {partition}"] = ends[f"{TOPIC} {partition}"]
    lines = "".join(f"{place} {end}\n" for place, end in ends.items())
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n{len(ends)}\n{lines}")
    (root / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n")
    return size * copies, records * copies, committed * copies


def _random_value(chance):
    return chance.randbytes(VALUE_BYTES)


def json_value(chance):
    """Return a JSON value of about the size of a random one, as programs write it."""
    day = f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"
    booked = {
        "id": f"{chance.getrandbits(128):032x}",
        "account": f"Account-{chance.randrange(10**6):08d}",
        "amount": chance.randrange(10**6) / 100,
        "currency": chance.choice(["EUR", "USD", "GBP"]),
        "kind": chance.choice(["transfer", "deposit", "withdrawal"]),
        "bookedAt": f"{day}T{chance.randrange(24):02d}:00:00Z",
    }
    return json.dumps(booked).encode()


def _template(chance, value, codec):
    records = [(b"Account-%08d" % chance.randrange(10**6), value(chance)) for _ in range(RECORDS_PER_BATCH)]
    return build_batch(
        records,
        timestamp_ms=FIRST_MS,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        compression=codec,
    )


def _batch(template, producer, sequence, time_ms):
    batch = bytearray(template)
    header = read_header(batch)
    more = {"base_timestamp": time_ms, "max_timestamp": time_ms}
    write_header(batch, header._replace(producer_id=producer, base_sequence=sequence, **more))
    seal(batch)
    return batch
