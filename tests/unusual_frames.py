"""Batches with odd compressed frames, and what Apache Kafka 4.3.1 answered to each.

`tests/conformance/frames` has the program that makes the frames and records the answers.
"""

import gzip
import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assemble, read_header
from ottla.protocol.records import NewRecord

RECORDED = Path(__file__).parent / "data" / "frames" / "kafka-4.3.1.jsonl.gz"
TIMESTAMP_MS = 1_700_000_000_000


class Row(NamedTuple):
    """A batch: `payload` stands in the place of its records and its header counts `count` of them."""

    name: str
    codec: int
    payload: bytes
    count: int

    @property
    def batch(self) -> bytes:
        """Return the batch at offset 0."""
        header = read_header(build_batch([NewRecord(b"k", b"v")] * self.count, timestamp_ms=TIMESTAMP_MS))
        return bytes(assemble(header._replace(attributes=self.codec), self.payload))


class Answer(NamedTuple):
    """Kafka's answers to a row: whether its broker appends the batch, and what its two readers make of it.

    `dumped` and `consumed` are the number of records, None if the reader fails. `values` are the size and the CRC of
    each value that the consumer was given.
    """

    row: Row
    produced: str
    dumped: int | None
    consumed: int | None
    values: tuple[str, ...]


@cache
def read_recording() -> tuple[Answer, ...]:
    """Return the table."""
    with gzip.open(RECORDED, "rt") as lines:
        return tuple(map(answer_of, lines))


def answer_of(line: str) -> Answer:
    """The answers in a line of the record."""
    said = json.loads(line)
    row = Row(said["name"], said["codec"], b64decode(said["payload"]), said["count"])
    dumped, consumed = (None if said[who]["failure"] else said[who]["records"] for who in ("dump", "consumer"))
    return Answer(row, said["produce"], dumped, consumed, tuple(said["values"]))


def bomb(size_bytes: int = 1 << 30) -> Row:
    """A sound batch of zstd whose records take gigabytes: RLE blocks of zeros, in a frame with the largest window."""
    blocks = size_bytes // (128 * 1024)
    block = (1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"\0"
    last = (1 | 1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"\0"
    return Row("bomb", 4, b"\x28\xb5\x2f\xfd\0\x88" + block * (blocks - 1) + last, 3)
