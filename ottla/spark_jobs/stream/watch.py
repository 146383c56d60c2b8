"""Find the transactions that hang now. Each check reads only the records appended since the last one. shell"""

from collections.abc import Mapping

import numpy as np

from ottla.audit.checks import hanging, history
from ottla.audit.checks.hanging import OpenFinding
from ottla.audit.checks.history import DECISION_COLUMNS, TOPIC, History, HistoryDecoder
from ottla.audit.pipeline import ANYWHERE
from ottla.audit.tasks import read_decisions
from ottla.audit.topics import read_topics
from ottla.protocol.internal_topics.transaction_records import TransactionValue
from ottla.protocol.values import TopicPartition
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.fates import OpenTransaction
from ottla.scan.growing_partition import GrowingPartition
from ottla.scan.listing import PartitionLog, storage_path
from ottla.scan.narrowing import narrowed_range
from ottla.scan.ranges import cut_partition
from ottla.scan.records import ReadFilter
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.stream.growing_directory import GrowingDirectory, newest_segments
from ottla.spark_jobs.views.bounds import UNBOUNDED
from ottla.spark_jobs.views.directories import in_order, partitions_of
from ottla.spark_jobs.views.planning import narrowed_log, selected_logs


class Watch:
    """Repeated checks of log directories."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._directory = GrowingDirectory(REPORT)
        self._is_first_look = True
        self._settled: dict[TopicPartition, int] = {}
        self._read_to: dict[int, int] = {}
        self._states: dict[str, TransactionValue] = {}
        self._homes: dict[str, int] = {}
        self._damaged: set[int] = set()
        self._count: int | None = None
        # The newest decision per partition and producer.
        self._decided: dict[tuple[TopicPartition, int], Longs] = {}

    def find_hanging(self, now_ms: int) -> list[OpenFinding]:
        """Return the transactions that hang at `now_ms`, by place and offset. Raises UnreadableDirectory, OSError.

        The coordinators' log is read after the partitions, because it must contain their open transactions. Then the
        partitions with a hanging transaction are read again, because it may have ended meanwhile. So no clock matters.
        """
        self._update()
        known = self._history()
        found = [
            hanging.judge(place, one, known, self._undone(place, growing, one), now_ms)
            for place, growing in sorted(self._directory.partitions.items())
            for one in growing.open_transactions
        ]
        hangs = [one for one in found if one.is_hanging]
        if hangs:
            self._update()
        return [one for one in hangs if self._is_still_open(one)]

    def _is_still_open(self, one: OpenFinding) -> bool:
        growing = self._directory.partitions.get((one.topic, one.partition))
        opened = () if growing is None else growing.open_transactions
        return any((each.producer_id, each.first_offset) == (one.producer_id, one.first_offset) for each in opened)

    def _update(self) -> None:
        logs = selected_logs(self._options, UNBOUNDED, warn=self._is_first_look)
        self._is_first_look = False
        begin = newest_segments(logs)
        self._directory.update(logs, {place: max(first, self._settled.get(place, 0)) for place, first in begin.items()})
        for place, growing in self._directory.partitions.items():
            growing.forget_below(growing.last_stable_offset)
            self._settled[place] = growing.last_stable_offset

    def _undone(self, place: TopicPartition, growing: GrowingPartition, one: OpenTransaction) -> Mapping[int, Longs]:
        decision = self._decided.get((place, one.producer_id))
        last_marker_ms = growing.last_marker_ms.get(one.producer_id, growing.first_marker_ms)
        return {} if decision is None else hanging.find_undone(one, decision, last_marker_ms)

    def _history(self) -> History:
        """Return the coordinators' last record of each transactional id."""
        logs = in_order(partitions_of(self._options._replace(partitions=None), (TOPIC,), warn=False))
        for log in logs:
            self._read_states(log)
        none = np.empty((0, DECISION_COLUMNS), dtype=np.int64)
        starts = {log.partition: log.log_start for log in logs}
        damaged = {number for number, start in starts.items() if start > 0} | self._damaged
        known = History((), {}, none, self._states, starts, self._homes, damaged)
        if logs and self._count is None:
            counts = [read_topics(storage_path(path)).counts.get(TOPIC, 0) for path in self._options.paths]
            self._count = max(counts)
        known.count = self._count or 0
        return known

    def _read_states(self, log: PartitionLog) -> None:
        read_filter = ReadFilter(first_offset=self._read_to.get(log.partition, 0))
        decoder = HistoryDecoder(log.partition, ANYWHERE)
        damage = DamageLog(REPORT)
        narrowed = narrowed_log(log, read_filter, UNBOUNDED)
        for part in cut_partition(0, narrowed, narrowed.size_bytes + 1):
            read_decisions(decoder, narrowed_range(part, read_filter), read_filter, damage)
        decoded = decoder.result()
        if decoded.is_damaged or damage.found:
            self._damaged.add(log.partition)
        self._homes.update(dict.fromkeys(decoded.last, log.partition))
        for row in decoded.decisions:
            self._decided[decoded.places[row[history.PLACE]], int(row[history.PRODUCER_ID])] = row
        self._read_to[log.partition] = max(read_filter.first_offset, decoded.next_offset)
        for transactional_id, state in decoded.last.items():
            if state is None:
                self._states.pop(transactional_id, None)
            else:
                self._states[transactional_id] = state
