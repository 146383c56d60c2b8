"""View `group_offsets`: committed offsets of consumer groups, as a broker holds them, or all records. shell"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.offsets_records import OffsetKey, OffsetValue, decode_offset_value, read_offsets_key
from ottla.scan import schemas
from ottla.scan.arrow import micros
from ottla.scan.listing import PartitionLog
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.internal import CONSUMER_OFFSETS, StoredRecord, handle_damage, row_at, stored_records
from ottla.spark_jobs.views.planning import fates_of, selected_logs
from ottla.spark_jobs.views.query_tasks import PartitionTask


class Commit(NamedTuple):
    """A record of an offset; `value` is None for a tombstone. `fate`: of its transaction; none outside of one."""

    record: StoredRecord
    key: OffsetKey
    value: OffsetValue | None
    fate: str


class GroupOffsetsReader(ViewReader):
    """Reader with a task per partition of the topic: a group is always in the same one."""

    view = schemas.GROUP_OFFSETS

    def plan(self) -> list[PartitionTask]:
        return [PartitionTask([log]) for log in selected_logs(self.options, self.bounds, CONSUMER_OFFSETS)]

    def rows_or_batches(self, task: PartitionTask) -> Iterator[Any]:
        (log,) = task.logs
        commits = self._commits(log)
        if not self.options.history:
            commits = current(commits)
        return self.to_arrow(_row(log, commit) for commit in commits)

    def _commits(self, log: PartitionLog) -> Iterator[Commit]:
        """Yield the commits. Skip unknown types and versions, as the group coordinator does at loading."""
        from ottla.scan.frames import is_aborted

        (fates,) = fates_of([log], self.options)
        opened = {one.producer_id: one.first_offset for one in fates.open_transactions}
        for record in stored_records(log, self.options.on_damage):
            try:
                key = None if record.key is None else read_offsets_key(record.key)
                if not isinstance(key, OffsetKey):
                    continue
                value = None if record.value is None else decode_offset_value(record.value)
            except UnknownVersion:
                continue
            except ProtocolError as error:
                handle_damage(error, log, record.offset, self.options.on_damage)
                continue
            if record.producer_id < 0:
                fate = "none"
            elif is_aborted(fates.aborted_ranges, record.producer_id, record.offset):
                fate = "aborted"
            else:
                first = opened.get(record.producer_id)
                fate = "committed" if first is None or record.offset < first else "open"
            yield Commit(record, key, value, fate)


def current(commits: Iterator[Commit]) -> Iterator[Commit]:
    """Yield the records from which a broker answers OffsetFetch: the valid record of each key with the highest offset.

    A marker makes an offset of its transaction current only if no later record is current already
    (`OffsetMetadataManager.replayEndTransactionMarker`), so the order of the markers does not matter.
    """
    last = {commit.key: commit for commit in commits if commit.fate in ("none", "committed")}
    in_order = sorted(last.values(), key=lambda commit: commit.record.offset)
    return (commit for commit in in_order if commit.value is not None)


def _row(log: PartitionLog, commit: Commit) -> dict[str, Any]:
    record, key, value, fate = commit
    row = row_at(schemas.GROUP_OFFSETS, log, record)
    row.update(
        group=key.group,
        committedTopic=key.topic,
        committedPartition=key.partition,
        producerId=record.producer_id,
        producerEpoch=record.producer_epoch,
        fate=fate,
    )
    if value is not None:
        row.update(
            committedOffset=value.offset,
            leaderEpoch=None if value.leader_epoch < 0 else value.leader_epoch,
            metadata=value.metadata,
            commitTime=micros(value.commit_ms),
            expireTime=micros(value.expire_ms),
            topicId=value.topic_id,
        )
    return row
