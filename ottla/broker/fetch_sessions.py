"""Fetch sessions (KIP-227): the partitions of clients that name only changes in their next Fetch. pure

A session has the last request and the last answer of each partition. A Fetch of the session reads all of them, and its
reply leaves out those without news. Sessions belong to no connection, as in Kafka: their ids are random.

A new session needs a free slot, and memory for its partitions. If there is none, it takes the place of one that was not
used for two minutes, or of a smaller one that is older than that. Otherwise the client gets no session, and sends full
requests as before. A session that grows beyond the memory ends, and its client begins again with a full request.

Source: Kafka's `FetchSession`, `FetchSessionCacheShard` and `FetchManager`. Kafka divides the slots among eight
caches and counts no memory.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests.fetch_wire import FetchPartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 120_000
"""The time after which an unused session is ended for a new one (`FetchSession`'s eviction time in `BrokerServer`)."""
SCAN_PAUSE_MS: Final = 1_000
"""The time between two searches for a smaller session, because each visits all."""
PARTITION_BYTES: Final = 450
"""The approximate memory of one partition of a session, without the name of its topic."""
_LAST_EPOCH: Final = 2**31 - 1

TopicKey = str | bytes
"""The name of a topic, or in versions with ids its id."""
Place = tuple[TopicKey, int]


class SessionPartition:
    """A partition of a session: the fields of the last request that named it, and offsets of the last answer.

    `topic` is its name. With ids it is None as long as the id was unknown, and keeps its value if the topic is deleted.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "topic",
    )

    def __init__(self, topic: str | None, row: Any) -> None:
        self.topic = topic
        self.high_watermark = self.log_start_offset = -1
        self.set_request(row)

    def set_request(self, row: Any) -> None:
        """Take the fields of a row of a request."""
        self.partition: int = row.partition
        self.fetch_offset: int = row.fetch_offset
        self.partition_max_bytes: int = row.partition_max_bytes
        self.current_leader_epoch: int = row.current_leader_epoch
        self.last_fetched_epoch: int = row.last_fetched_epoch

    def has_news(self, row: FetchPartitionData) -> bool:
        """Return whether the reply must have this answer (`maybeUpdateResponseData`)."""
        return bool(
            row.records
            or row.error
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.diverging_epoch is not None
        )

    def set_answer(self, row: FetchPartitionData) -> None:
        """Take the offsets of an answer. After an error, the next answer is sent whatever it is."""
        self.high_watermark = -1 if row.error else row.high_watermark
        self.log_start_offset = row.log_start_offset


class FetchSession:
    """A session, or one that is about to begin and has no id."""

    __slots__ = (
        "counted_bytes",
        "created_ms",
        "epoch",
        "held_bytes",
        "id",
        "is_of_replica",
        "partitions",
        "size",
        "used_ms",
        "uses_ids",
    )

    def __init__(self, *, uses_ids: bool, is_of_replica: bool) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.uses_ids = uses_ids
        self.is_of_replica = is_of_replica
        self.created_ms = self.used_ms = 0.0
        self.held_bytes = self.counted_bytes = 0
        self.size = 0
        """The number of partitions when they were counted last."""
        self.partitions: dict[Place, SessionPartition] = {}
        """In the order of reading: a partition with records moves to the end."""

    def put(self, key: TopicKey, topic: str | None, row: Any) -> None:
        """Add a partition, or change its request."""
        known = self.partitions.get((key, row.partition))
        if known is None:
            self.partitions[key, row.partition] = SessionPartition(topic, row)
            self.held_bytes += PARTITION_BYTES + len(key)
        else:
            known.set_request(row)

    def forget(self, key: TopicKey, index: int) -> None:
        """Remove a partition, if it is there."""
        if self.partitions.pop((key, index), None) is not None:
            self.held_bytes -= PARTITION_BYTES + len(key)

    def take_answer(self, place: Place, row: FetchPartitionData) -> bool:
        """Take an answer, and return whether the reply must have it: each does that begins the session. After one with
        records, the partition is read last in the next Fetch."""
        known = self.partitions.get(place)
        if known is None:
            return False  # another request of the session has removed it meanwhile
        if self.id == NO_SESSION:
            known.set_answer(row)
            return True
        if not known.has_news(row):
            return False
        known.set_answer(row)
        if row.records:
            del self.partitions[place]
            self.partitions[place] = known
        return True

    def repeat_answers(self) -> None:
        """Send all partitions with the next answer, because this one is not sent."""
        for known in self.partitions.values():
            known.high_watermark = -1


class FetchSessions:
    """The sessions of one broker, in the order of their last use."""

    def __init__(self, most: int, limit_bytes: int, draw_id: Callable[[], int]) -> None:
        """Keep at most `most` sessions with `limit_bytes` of partitions. `draw_id` returns 31 random bits."""
        self._most = most
        self._limit_bytes = limit_bytes
        self._draw_id = draw_id
        self._by_id: dict[int, FetchSession] = {}
        self._scan_at_ms = 0.0
        self.held_bytes = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def partition_count(self) -> int:
        """The partitions of all sessions at their last use."""
        return sum(session.size for session in self._by_id.values())

    def places(self, session_id: int) -> Iterator[tuple[str, int]]:
        """Yield topic and number of each partition of a session; none of an unknown one."""
        session = self._by_id.get(session_id)
        for (_, index), partition in session.partitions.items() if session is not None else ():
            if partition.topic is not None:
                yield partition.topic, index

    def resume(self, session_id: int, epoch: int, *, uses_ids: bool) -> FetchSession | ErrorCode:
        """Return the session of an incremental Fetch, and raise its epoch; or the error."""
        session = self._by_id.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = next_epoch(epoch)
        return session

    def keep(self, session: FetchSession, now_ms: float) -> bool:
        """Count a use of a session, and its memory after a change. Returns False if the session has ended: it has no
        partition, or there is no memory for those it has."""
        grown_bytes = session.held_bytes - session.counted_bytes
        if session.id not in self._by_id or not session.partitions or self.held_bytes + grown_bytes > self._limit_bytes:
            self.remove(session.id)
            return False
        del self._by_id[session.id]
        self._charge_use(session, now_ms)
        return True

    def add(self, session: FetchSession, now_ms: float) -> int:
        """Begin a session and return its id, or NO_SESSION if there is no room."""
        if not self._make_room(session, now_ms):
            return NO_SESSION
        while (new_id := self._draw_id()) in self._by_id or new_id == NO_SESSION:
            pass
        session.id, session.epoch, session.created_ms = new_id, next_epoch(INITIAL_EPOCH), now_ms
        self._charge_use(session, now_ms)
        return new_id

    def remove(self, session_id: int) -> None:
        """End a session, if it is there."""
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self.held_bytes -= session.counted_bytes

    def clear(self) -> None:
        """End all sessions."""
        self._by_id.clear()
        self.held_bytes = 0

    def _charge_use(self, session: FetchSession, now_ms: float) -> None:
        """Make a session the last one that was used."""
        self._by_id[session.id] = session
        self.held_bytes += session.held_bytes - session.counted_bytes
        session.counted_bytes, session.size = session.held_bytes, len(session.partitions)
        session.used_ms = now_ms

    def _make_room(self, session: FetchSession, now_ms: float) -> bool:
        if session.held_bytes > self._limit_bytes:
            return False
        while len(self._by_id) >= self._most or self.held_bytes + session.held_bytes > self._limit_bytes:
            victim = self._find_victim(session, now_ms)
            if victim is None:
                return False
            self.remove(victim.id)
            self.evictions += 1
        return True

    def _find_victim(self, session: FetchSession, now_ms: float) -> FetchSession | None:
        """Return a session to end for a new one (`tryEvict`)."""
        oldest = next(iter(self._by_id.values()), None)
        if oldest is None or now_ms - oldest.used_ms > EVICTION_MS:
            return oldest
        if now_ms < self._scan_at_ms:
            return None
        self._scan_at_ms = now_ms + SCAN_PAUSE_MS
        able = [each for each in self._by_id.values() if _is_evictable(each, session, now_ms)]
        least = min(able, key=lambda each: (each.is_of_replica, each.size), default=None)
        if least is None or (session.is_of_replica, len(session.partitions)) <= (least.is_of_replica, least.size):
            return None
        return least


def _is_evictable(session: FetchSession, by: FetchSession, now_ms: float) -> bool:
    return now_ms - session.created_ms > EVICTION_MS or (by.is_of_replica and not session.is_of_replica)


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next Fetch of a session."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1
