"""Consume, transform, produce: each committed record of the input has exactly one record in the output. pure

Records with the same key, or with the same value of a header, belong together. If several input records have the same
key or value, as many output records must have it.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ottla.audit.checks.finding import Finding, Severity
from ottla.audit.checks.words import count
from ottla.scan.compiled.kernels import Bytes, Longs, expect, kernel

# Columns of an identity: its hash, 0 input or 1 output, the index of the topic's partition, and the offset.
HASH = 0
SIDE = 1
PARTITION = 2
OFFSET = 3
COLUMNS = 4

INPUT, OUTPUT = 0, 1
MOST_REPORTED = 1_000

_HEADER = "header:"
# Without compiled kernels, to hash these bytes takes as long as the walk over a batch.
_HASHED_BYTES = 6


class Pair(NamedTuple):
    """Two topics; `header` names the header that identifies a record; None: the key identifies it."""

    source: str
    target: str
    header: str | None


def parse(given: str) -> Pair:
    """Parse `INPUT=OUTPUT,key` or `INPUT=OUTPUT,header:NAME`. Raises ValueError."""
    topics, comma, how = given.rpartition(",")
    source, equals, target = topics.partition("=")
    header = how.removeprefix(_HEADER) if how.startswith(_HEADER) else None
    if not (comma and equals and source and target) or (how != "key" and not header):
        raise ValueError(f"--copies {given}: not INPUT=OUTPUT,key or INPUT=OUTPUT,header:NAME")
    return Pair(source, target, header)


@kernel
def hash_parts(data: Bytes, ends: Longs, out: Longs) -> None:
    """Write 64-bit hashes of the byte strings `data[ends[i]:ends[i + 1]]` (FNV-1a with a final mix) to `out`."""
    for index in range(out.shape[0]):
        state = np.uint64(0xCBF29CE484222325)
        for at in range(ends[index], ends[index + 1]):
            state = (state ^ np.uint64(data[np.uint64(at)])) * np.uint64(0x100000001B3)
        state ^= state >> np.uint64(33)
        state *= np.uint64(0xFF51AFD7ED558CCD)
        state ^= state >> np.uint64(33)
        out[index] = np.int64(state)


def hashes(data: Bytes, ends: Longs) -> Longs:
    """Return 64-bit hashes of the byte strings `data[ends[i]:ends[i + 1]]`."""
    out = np.empty(len(ends) - 1, dtype=np.int64)
    expect(len(data) // _HASHED_BYTES)
    hash_parts(data, ends, out)
    return out


def unequal(rows: Longs) -> Longs:
    """Return the rows of identities whose numbers of inputs and outputs differ, sorted by identity, side and place."""
    rows = rows[np.lexsort((rows[:, OFFSET], rows[:, PARTITION], rows[:, SIDE], rows[:, HASH]))]
    _, group, sizes = np.unique(rows[:, HASH], return_inverse=True, return_counts=True)
    outputs = np.bincount(group, weights=rows[:, SIDE], minlength=len(sizes)).astype(np.int64)
    found: Longs = rows[(2 * outputs != sizes)[group]]
    return found


class Tally(NamedTuple):
    """Counts of compared records on both sides, and of those without the identifying key or header."""

    inputs: int
    outputs: int
    unnamed: int


def findings(pair: Pair, rows: Longs, left_out: int, tally: Tally, partitions: Sequence[int]) -> list[Finding]:
    """Return a finding for each identity. `partitions`: numbers that PARTITION indexes; `left_out`: rows not kept."""
    found: list[Finding] = []
    edges = [0, *(np.flatnonzero(np.diff(rows[:, HASH])) + 1).tolist(), len(rows)] if len(rows) else [0]
    for first, end in pairwise(edges):
        if len(found) < MOST_REPORTED:
            found.append(_finding(pair, rows[first:end].tolist(), partitions))
        else:
            left_out += end - first
    if left_out:
        more = f"{count(left_out, 'more record')} of {pair.source} and {pair.target} without exactly one partner"
        found.append(Finding("copies", "error", pair.source, None, None, None, None, more, _LOST))
    if tally.unnamed:
        what = "key" if pair.header is None else f"header {pair.header}"
        message = f"{count(tally.unnamed, 'record')} of {pair.source} and {pair.target} without a {what}: not compared"
        found.append(
            Finding("copies", "warning", pair.source, None, None, None, None, message, "identify every record")
        )
    message = f"{tally.inputs:,} committed records of {pair.source} compared with {tally.outputs:,} of {pair.target}"
    found.append(Finding("copies", "info", pair.source, None, None, None, None, message, "nothing to do"))
    return found


_LOST = "the application did not commit its offsets and its output in one transaction: process these inputs again"
_TWICE = "the application is not transactional, or its id changed between runs: remove the copies downstream"
_FOREIGN = "another application writes to the output, or the input was deleted"


def _finding(pair: Pair, rows: Sequence[Sequence[int]], partitions: Sequence[int]) -> Finding:
    inputs = [row for row in rows if row[SIDE] == INPUT]
    outputs = [row for row in rows if row[SIDE] == OUTPUT]
    topic, first = (pair.source, inputs[0]) if inputs else (pair.target, outputs[0])
    if not inputs:
        message, action = "an output without an input", _FOREIGN
    elif len(outputs) < len(inputs):
        message, action = f"{count(len(inputs), 'input')} with {count(len(outputs), 'committed output')}", _LOST
    else:
        message, action = f"{count(len(inputs), 'input')} with {count(len(outputs), 'committed output')}", _TWICE
    where = _places(pair.source, inputs, partitions) + _places(pair.target, outputs, partitions)
    severity: Severity = "error" if inputs else "warning"
    text = f"{message}: {', '.join(where)}"
    return Finding("copies", severity, topic, partitions[first[PARTITION]], first[OFFSET], None, None, text, action)


def _places(topic: str, rows: Iterable[Sequence[int]], partitions: Sequence[int]) -> list[str]:
    return [f"{topic}-{partitions[row[PARTITION]]}@{row[OFFSET]}" for row in rows][:4]
