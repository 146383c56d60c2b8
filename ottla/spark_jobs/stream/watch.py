"""Which transactions hang now: each look at a directory reads what was appended since the one before. shell"""

from collections.abc import Mapping

import numpy as np

from ottla.audit.checks import hanging, history
from ottla.audit.checks.hanging import OpenFinding
from ottla.audit.checks.history import COMPLETE, DECISION_COLUMNS, TOPIC, History, HistoryDecoder
from ottla.audit.checks.torn import SKEW_MS
from ottla.protocol.transaction_records import TransactionValue
from ottla.protocol.values import TopicPartition
from ottla.scan import schemas
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.fates import OpenTransaction
from ottla.scan.growing_partition import GrowingPartition
from ottla.scan.kernels import Longs
from ottla.scan.listing import PartitionLog
from ottla.scan.narrowing import narrowed_range
from ottla.scan.ranges import cut_partition
from ottla.scan.records import ReadFilter, RecordScan, uncommitted
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.stream.growing_directory import GrowingDirectory, newest_segments
from ottla.spark_jobs.views.bounds import UNBOUNDED
from ottla.spark_jobs.views.directories import in_order, partitions_of
from ottla.spark_jobs.views.planning import narrowed_log, selected_logs

_COLUMNS = ("offset", "key", "value")


class Watch:
    """Log directories, looked at again and again."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._directory = GrowingDirectory(REPORT)
        self._settled: dict[TopicPartition, int] = {}
        self._read_to: dict[int, int] = {}
        self._states: dict[str, TransactionValue] = {}
        # The newest decision on each producer of each partition.
        self._decided: dict[tuple[TopicPartition, int], Longs] = {}

    def look(self, now_ms: int) -> list[OpenFinding]:
        """The transactions that hang at `now_ms`, by topic, partition and offset. Raises UnreadableDirectory, OSError.

        The coordinators' log is read last: what it holds open must be compared with partitions as they were before.
        """
        logs = selected_logs(self._options, UNBOUNDED, warn=not self._directory.logs)
        begin = newest_segments(logs)
        self._directory.update(logs, {place: max(first, self._settled.get(place, 0)) for place, first in begin.items()})
        for place, growing in self._directory.partitions.items():
            growing.forget_below(growing.last_stable_offset)
            self._settled[place] = growing.last_stable_offset
        known = self._history()
        judged = [
            hanging.judge(place, one, known, self._undone(place, growing, one, known, now_ms), now_ms)
            for place, growing in sorted(self._directory.partitions.items())
            for one in growing.open_transactions
        ]
        return [one for one in judged if one.is_hanging]

    def _undone(
        self, place: TopicPartition, growing: GrowingPartition, one: OpenTransaction, known: History, now_ms: int
    ) -> Mapping[int, Longs]:
        """The decision that an open transaction lacks the marker of, if that is certain, by producer id.

        A decision with a newer epoch can be on no other transaction. One with the epoch of its data may be on the one
        before, unless no marker came here since.
        """
        decision = self._decided.get((place, one.producer_id))
        _, state = known.state_of(one.producer_id)
        if decision is None or decision[history.EPOCH] < one.producer_epoch:
            return {}
        decided_ms = int(decision[history.UPDATED_MS])
        completed_ms = state.last_update_ms if state is not None and state.status in COMPLETE else decided_ms
        if max(decided_ms, completed_ms) > now_ms - hanging.SETTLED_MS:
            return {}
        if decision[history.EPOCH] == one.producer_epoch:
            witness_ms = growing.last_marker_ms.get(one.producer_id, growing.first_marker_ms)
            if witness_ms < 0 or decided_ms <= witness_ms + SKEW_MS:
                return {}
        return {one.producer_id: decision}

    def _history(self) -> History:
        """The coordinators' last word on each transactional id."""
        logs = in_order(partitions_of(self._options._replace(partitions=None), (TOPIC,), warn=False))
        for log in logs:
            self._read_states(log)
        none = np.empty((0, DECISION_COLUMNS), dtype=np.int64)
        return History((), {}, none, self._states, {log.partition: 0 for log in logs})

    def _read_states(self, log: PartitionLog) -> None:
        wanted = ReadFilter(first_offset=self._read_to.get(log.partition, 0))
        decoder = HistoryDecoder(log.partition, 0)
        scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in _COLUMNS]), DamageLog(REPORT))
        narrowed = narrowed_log(log, wanted, UNBOUNDED)
        for part in cut_partition(0, narrowed, narrowed.size_bytes + 1):
            for batch in scan.read(narrowed_range(part, wanted), uncommitted(log.log_start), wanted):
                for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    decoder.add(*record)
        told = decoder.result()
        for row in told.decisions:
            self._decided[told.places[row[history.PLACE]], int(row[history.PRODUCER_ID])] = row
        self._read_to[log.partition] = max(wanted.first_offset, told.next_offset)
        for transactional_id, state in told.last.items():
            if state is None:
                self._states.pop(transactional_id, None)
            else:
                self._states[transactional_id] = state
