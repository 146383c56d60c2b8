"""Operations of consumers: fetched records and committed offsets. pure

Fetch requests of a session (KIP-227) name only the changed partitions, so the positions are stored for each session.
Each partition of a reply becomes a separate poll. A partition without a complete batch gives no poll.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.testkit.checks.operations import OK
from ottla.testkit.history.batches import Named, committed_batches, end_of, read_batches
from ottla.testkit.history.calls import Call
from ottla.testkit.history.operation import Operation

_COMMITTED = 1
_CONSUMER = -1
Positions = dict[str, int]


class Poll(NamedTuple):
    """The records that a Fetch reply has for one partition."""

    operation: Operation
    key: str
    start: int
    end_offset: int
    records: tuple[Named, ...]


class Polls:
    """Polls from all Fetch requests."""

    def __init__(self) -> None:
        self._sessions: dict[int, Positions] = {}
        self.all: list[Poll] = []

    def fetch(self, call: Call) -> None:
        """Add the polls of a consumer's Fetch."""
        message, reply = call.message, call.reply
        follower = message.replica_state.replica_id if message.replica_state is not None else message.replica_id
        if follower != _CONSUMER:
            return
        positions = self._positions(call)
        if reply is None or reply.error_code:
            return
        session_id = reply.session_id
        if session_id and message.session_epoch == 0:
            self._sessions[session_id] = positions
        for topic in reply.responses:
            name = call.topic_of(topic)
            for row in topic.partitions:
                start = positions.get(f"{name}/{row.partition_index}")
                if start is not None and not row.error_code and row.records:
                    self._poll(call, f"{name}/{row.partition_index}", start, row)

    def _positions(self, call: Call) -> Positions:
        """Return the fetch offset of each partition, and update those of the session."""
        message = call.message
        known = self._sessions.get(message.session_id, {}) if message.session_id and message.session_epoch > 0 else {}
        for topic in message.forgotten_topics_data or ():
            for index in topic.partitions:
                known.pop(f"{call.topic_of(topic)}/{index}", None)
        for topic in message.topics:
            for row in topic.partitions:
                known[f"{call.topic_of(topic)}/{row.partition}"] = row.fetch_offset
        return known

    def _poll(self, call: Call, key: str, start: int, row: Any) -> None:
        committed = call.message.isolation_level == _COMMITTED
        try:
            batches = (
                committed_batches(key, row.records, row.aborted_transactions or ())
                if committed
                else read_batches(key, row.records)
            )
            records = tuple(record for batch in batches for record in batch.records if record.offset >= start)
            end_offset = end_of(row.records, start)
        except ProtocolError:
            return
        if end_offset > start:
            proc = f"{call.client_id}@{call.entry.peer}"
            operation = Operation("poll", proc, call.entry, committed=committed, txn=None)
            operation.attempt(call.entry, OK)
            self.all.append(Poll(operation, key, start, end_offset, records))

    def iter_operations(self, repeated: set[str], same: set[str]) -> Iterator[Operation]:
        """Yield the operations, with the names of the records that were read."""
        for poll in self.all:
            rows = []
            for record in poll.records:
                name = record.name_apart if record.value in repeated else record.value
                if name not in same:
                    rows.append([record.offset, name])
            poll.operation.result = {"mops": [["poll", poll.key, poll.start, poll.end_offset, rows]]}
            yield poll.operation


def fetched_offsets(call: Call) -> Iterator[Operation]:
    """Yield an operation for each group of an OffsetFetch."""
    reply = call.reply
    if reply is None:
        return
    groups = reply.groups or () if call.api_version >= 8 else ()
    for group in groups:
        yield from _read_offset_fetch(call, group.group_id, group.error_code, group.topics)
    if call.api_version < 8:
        yield from _read_offset_fetch(call, call.message.group_id, reply.error_code, reply.topics)


def _read_offset_fetch(call: Call, group: str, error: int, topics: Any) -> Iterator[Operation]:
    mops = [
        ["offset", f"{call.topic_of(topic)}/{row.partition_index}", row.committed_offset]
        for topic in topics
        for row in topic.partitions
        if not row.error_code
    ]
    if mops and not error:
        operation = Operation("fetch-offsets", f"{call.client_id}@{call.entry.peer}", call.entry, group=group)
        operation.attempt(call.entry, OK, {"mops": mops})
        yield operation
