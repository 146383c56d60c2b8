"""The check `copies`: tasks hash every committed record of two topics, and compare hashes by bucket. shell"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ottla.audit.checks import copies
from ottla.audit.checks.copies import INPUT, OUTPUT, Pair, Tally
from ottla.audit.checks.finding import Finding
from ottla.audit.runner import raise_first_error
from ottla.audit.tasks import Result, Work, entry_states, failed_result, walk
from ottla.protocol.errors import ProtocolError
from ottla.scan.compiled.kernels import Longs
from ottla.scan.needs import WorkerLacks, check_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.audit.runner import Runner
    from ottla.scan.records import Visibility

# At most this many identities that do not match are kept for a bucket.
MOST_KEPT = 10_000


def find_copies(runner: "Runner", pairs: Sequence[Pair], works: Mapping[int, Sequence[Work]]) -> list[Finding]:
    """Return the findings on all pairs. `works`: of all partitions, by index in the listing. Raises AuditFailed."""
    return [one for pair in pairs for one in _compare(runner, pair, works)]


def _compare(runner: "Runner", pair: Pair, works: Mapping[int, Sequence[Work]]) -> list[Finding]:
    sides = {
        index: INPUT if parts[0].part.topic == pair.source else OUTPUT
        for index, parts in works.items()
        if parts and parts[0].part.topic in (pair.source, pair.target)
    }
    # A partition is one task: its committed records are known only after all of it was read.
    whole = [_join(works[index]) for index in sides]
    numbers = [work.part.number for work in whole]
    named = _Named(pair, {work.part.partition: place for place, work in enumerate(whole)}, sides)
    kept, notes = runner.reduce(named, _unequal, whole, f"comparing {pair.source} with {pair.target}")
    raise_first_error(notes)
    counts = np.zeros(3, dtype=np.int64)
    for note in notes:
        assert isinstance(note.value, np.ndarray)
        counts += note.value
    rows = np.concatenate([*(rows for rows, _ in kept), np.empty((0, copies.COLUMNS), dtype=np.int64)])
    left_out = sum(more for _, more in kept)
    return copies.findings(pair, rows, left_out, Tally(*counts.tolist()), numbers)


def _unequal(parts: Sequence[Longs]) -> tuple[Longs, int]:
    rows = copies.unequal(np.concatenate(parts))
    return rows[:MOST_KEPT], max(0, len(rows) - MOST_KEPT)


def _join(parts: Sequence[Work]) -> Work:
    pieces = tuple(piece for one in parts for piece in one.part.pieces)
    return parts[0]._replace(part=parts[0].part._replace(pieces=pieces))


class _Named:
    """A picklable function: returns the committed records of a partition as rows of identities, and their counts."""

    def __init__(self, pair: Pair, places: Mapping[int, int], sides: Mapping[int, int]) -> None:
        self._pair = pair
        self._places = places
        self._sides = sides

    def __call__(self, work: Work) -> tuple[Longs, Result]:
        part = work.part
        none = np.empty((0, copies.COLUMNS), dtype=np.int64)
        try:
            check_worker()
            rows, unnamed = self._rows(work)
        except (OSError, ProtocolError, WorkerLacks) as error:
            return none, failed_result(work, error)
        counts = np.zeros(3, dtype=np.int64)
        counts[self._sides[part.partition]] = len(rows)
        counts[2] = unnamed
        return rows, Result(part.partition, part.ordinal, counts)

    def _rows(self, work: Work) -> tuple[Longs, int]:
        from ottla.scan import schemas
        from ottla.scan.damage_log import REPORT, DamageLog
        from ottla.scan.records import RecordScan

        part = work.part
        column = "key" if self._pair.header is None else "headers"
        log = DamageLog(REPORT)
        scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [("offset", True), (column, True)]), log)
        found, unnamed = [np.empty((0, copies.COLUMNS), dtype=np.int64)], 0
        for batch in scan.read(part, committed_visibility(work)):
            names, offsets = self._names(batch)
            rows = np.empty((len(names), copies.COLUMNS), dtype=np.int64)
            rows[:, copies.HASH] = _hashes(names)
            rows[:, copies.SIDE] = self._sides[part.partition]
            rows[:, copies.PARTITION] = self._places[part.partition]
            rows[:, copies.OFFSET] = offsets
            found.append(rows)
            unnamed += len(batch) - len(rows)
        for one in log.found:
            if one.is_too_large:  # its records would be reported as missing
                raise ProtocolError(str(one))
        return np.concatenate(found), unnamed

    def _names(self, batch: "pa.RecordBatch") -> "tuple[pa.Array, Longs]":
        """Return the keys or header values that identify records, and the offsets of the records that have one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        offsets = batch.column("offset").to_numpy()
        if self._pair.header is None:
            keys = batch.column("key")
            given = pc.is_valid(keys)
            return keys.filter(given), offsets[given.to_numpy(zero_copy_only=False)]
        headers = batch.column("headers")
        flat, parents = pc.list_flatten(headers), pc.list_parent_indices(headers).to_numpy()
        chosen = pc.equal(flat.field("key"), self._pair.header).to_numpy(zero_copy_only=False)
        # The last header of a name counts, as in `Headers.lastHeader`.
        rows, last = np.unique(parents[chosen][::-1], return_index=True)
        values = flat.field("value").filter(pa.array(chosen))
        values = values.take(pa.array(len(values) - 1 - last))
        given = pc.is_valid(values)
        return values.filter(given), offsets[rows][given.to_numpy(zero_copy_only=False)]


def committed_visibility(work: Work) -> "Visibility":
    """Return the visibility of a whole partition to a read_committed consumer, up to `work.limit`."""
    from ottla.scan import states
    from ottla.scan.damage_log import REPORT, DamageLog
    from ottla.scan.fates import ABORTED_COLUMNS, aborted_of
    from ottla.scan.records import Visibility

    walked = walk(work, entry_states(work), DamageLog(REPORT))
    aborted = [np.empty((0, ABORTED_COLUMNS), dtype=np.int64), *(aborted_of(step.ended) for step in walked)]
    ranges = np.concatenate(aborted)
    still_open = walked.leaving.open_rows
    limit = int(still_open[0, states.FIRST_OFFSET]) if len(still_open) else walked.leaving.next_offset
    log_start = work.part.log_start
    return Visibility(True, log_start, max(limit, log_start), ranges[np.lexsort((ranges[:, 1], ranges[:, 0]))])


def _hashes(names: "pa.Array") -> Longs:
    if not len(names):
        return np.empty(0, dtype=np.int64)
    _, ends, data = names.buffers()
    offsets = np.frombuffer(ends, dtype=np.int32)[names.offset : names.offset + len(names) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return copies.hashes(content, offsets.astype(np.int64))
