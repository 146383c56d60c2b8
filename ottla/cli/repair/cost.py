"""The loss by truncating a damaged log: the data that can still be read after the damage. shell"""

from pathlib import Path
from typing import NamedTuple

from ottla.broker.group.log import replay_batch
from ottla.broker.log.tail_kind import sound_batches
from ottla.broker.txn.log import read_changes
from ottla.cli.inspect.partition import Fault, find_fault
from ottla.cli.read_only import ReadOnlyFile
from ottla.protocol.batch import COMMIT, read_marker
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.checkpoints import LAST_BASE_OFFSET
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.offsets_records import OffsetKey
from ottla.scan.log_directory import SEGMENT


class Cost(NamedTuple):
    """The readable data after the damage of a partition, which a cut would remove.

    `offsets` counts from the first lost offset to the end of the log, by the checkpoints. `committed` and `aborted`
    count the ends of transactions. Some of these transactions began before the cut.
    """

    fault: Fault
    bytes: int
    offsets: int
    batches: int
    records: int
    committed: int
    aborted: int
    group_offsets: int
    transactional_ids: int


def cost_of_cut(directory: str, known_end: int) -> Cost | None:
    """Read on after the first bad batch. Return None if every batch is sound. Failed IO raises OSError."""
    logs = sorted(each.name for each in Path(directory).iterdir() if SEGMENT.match(each.name))
    fault = find_fault(directory, logs, verify=True)
    if fault is None:
        return None
    tally = _Tally(Path(directory).name)
    later = logs[logs.index(fault.segment) :]
    lost_bytes = sum((Path(directory) / each).stat().st_size for each in later) - fault.position
    for number, each in enumerate(later):
        base = int(each.partition(".")[0])
        least_offset = max(fault.offset, base) if base <= LAST_BASE_OFFSET else 0
        with ReadOnlyFile(f"{directory}/{each}") as file:
            for header, batch in sound_batches(file, fault.position if number == 0 else 0, least_offset):
                tally.add(header, memoryview(batch))
    return Cost(
        fault,
        lost_bytes,
        max(known_end, tally.end_offset) - fault.offset,
        tally.batches,
        tally.records,
        tally.outcomes[True],
        tally.outcomes[False],
        len(tally.group_offsets),
        len(tally.transactional_ids),
    )


class _Tally:
    """Counters of batches, records and transactions."""

    def __init__(self, name: str) -> None:
        self.batches = self.records = self.end_offset = 0
        self.outcomes = {True: 0, False: 0}
        self.group_offsets: set[OffsetKey] = set()
        self.transactional_ids: set[str] = set()
        self._name = name

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        self.batches += 1
        self.end_offset = max(self.end_offset, header.next_offset)
        try:
            if header.is_control:
                self._end(header, batch)
            else:
                self.records += header.record_count
                self._add_internal(header, batch)
        except ProtocolError:
            return  # sound, but not decodable: only the batch is counted

    def _end(self, header: BatchHeader, batch: memoryview) -> None:
        marker = read_marker(batch, header) if header.record_count and header.producer_id >= 0 else None
        if marker is not None:
            self.outcomes[marker.control_type == COMMIT] += 1

    def _add_internal(self, header: BatchHeader, batch: memoryview) -> None:
        if self._name.startswith("__consumer_offsets-"):
            keys = (record.key for record in replay_batch(header, batch))
            self.group_offsets.update(key for key in keys if isinstance(key, OffsetKey))
        elif self._name.startswith("__transaction_state-"):
            self.transactional_ids.update(change.transactional_id for change in read_changes(header, batch, self._name))
