"""The checks of the partitions of a Fetch before it waits: topic, right, leader epoch, offset. free

Versions from 13 on name topics by id. UNKNOWN_TOPIC_ID: no topic has it. INCONSISTENT_TOPIC_ID: a session began with
the topic, and there is another one of its name now. A session whose topic is deleted gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.broker.api.authorization import CLUSTER_ACTION, READ_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.costs import ROW_US
from ottla.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, Place, TopicKey
from ottla.broker.log.partition import Partition
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, ZERO_UUID

FIRST_VERSION_FROM_FOLLOWERS: Final = 11
FIRST_VERSION_WITH_LAST_EPOCH: Final = 12
FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
NOT_READ: Final = (READ_TOPIC.error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors of partitions that Kafka does not try to read: their rows have an empty list of aborted transactions."""
UNDEFINED: Final = (UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
ROWS_AT_ONCE: Final = 32
"""The rows between two checks of the turn budget; a request with fewer rows continues although it is spent."""


class FetchPartitionStatus(NamedTuple):
    """A partition of the request. `partition` is None when `error` has the reason.

    Source: Kafka's class of this name, the state that a `DelayedFetch` keeps of each partition.
    """

    offset: int
    max_bytes: int
    partition: Partition | None
    error: ErrorCode
    leader_epoch: int = -1
    """The epoch of the partition at the check."""
    requested_epoch: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """The last epoch that the client and this log can share, and its end, if the client's log is another one."""


FetchStatus = dict[Place, FetchPartitionStatus]
"""In the order of reading; partitions that are not read are at the end, as in Kafka."""


async def find_session(broker: Broker, request: Request) -> FetchSession | ErrorCode | None:
    """Return the session of the request with its changes; one without an id that may begin; or None without one."""
    body, by_id = request.body, request.api_version >= FIRST_VERSION_WITH_IDS
    sessions = broker.fetch_sessions
    if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.remove(body.session_id)
        if body.session_epoch == FINAL_EPOCH:
            return None
        return FetchSession(uses_ids=by_id, is_of_replica=_replica_id(request) >= 0)
    session = sessions.resume(body.session_id, body.session_epoch, uses_ids=by_id)
    if isinstance(session, ErrorCode):
        return session
    for topic in body.topics:
        key, name = _resolve(broker, topic, by_id)
        for row in topic.partitions:
            session.put(key, name, row)
            await broker.turns.spend(ROW_US)
    for topic in body.forgotten_topics_data:
        key, _ = _resolve(broker, topic, by_id)
        for index in topic.partitions:
            session.forget(key, index)
            await broker.turns.spend(ROW_US)
    is_empty = not session.partitions
    if sessions.keep(session, broker.clock.monotonic_ms()):
        return session
    return None if is_empty else ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def check_request(broker: Broker, request: Request, session: FetchSession | None) -> FetchStatus:
    """Check the partitions that the request names. Add them to the session, if one begins."""
    turns, version, status, not_read = broker.turns, request.api_version, FetchStatus(), FetchStatus()
    by_id = version >= FIRST_VERSION_WITH_IDS
    done = 0
    for topic in request.body.topics:
        key, name = _resolve(broker, topic, by_id) if by_id else (topic.topic, topic.topic)  # no call: the usual case
        refusal = _refuse_topic(broker, request, name) if name is None or broker.authorizer is not None else NO_ERROR
        for row in topic.partitions:
            turns.charged_us += ROW_US
            done += 1
            if not done % ROWS_AT_ONCE:
                await turns.yield_if_due()
            if session is not None:
                session.put(key, name, row)
            if refusal or name is None:
                not_read[key, row.partition] = FetchPartitionStatus(row.fetch_offset, 0, None, refusal)
                continue
            if broker.cluster.is_unopened(name, row.partition):
                await broker.cluster.get_or_open(name, row.partition)
            found = _status_of(broker, version, key, name, row)
            (not_read if found.error in NOT_READ else status)[key, row.partition] = found
    return status | not_read if not_read else status


async def check_session(broker: Broker, request: Request, session: FetchSession) -> FetchStatus:
    """Check all partitions of a session."""
    turns, version, status, not_read = broker.turns, request.api_version, FetchStatus(), FetchStatus()
    refusals: dict[str | None, ErrorCode] = {}
    for done, (place, row) in enumerate([*session.partitions.items()], 1):
        turns.charged_us += ROW_US
        if not done % ROWS_AT_ONCE:
            await turns.yield_if_due()
        key, index = place
        if row.topic is None:
            row.topic = name_of(broker, key)
        name = row.topic
        if name not in refusals:
            is_known = name is not None and broker.authorizer is None
            refusals[name] = NO_ERROR if is_known else _refuse_topic(broker, request, name)
        refusal = refusals[name]
        if refusal or name is None:
            not_read[place] = FetchPartitionStatus(row.fetch_offset, 0, None, refusal)
            continue
        if broker.cluster.is_unopened(name, index):
            await broker.cluster.get_or_open(name, index)
        found = _status_of(broker, version, key, name, row)
        (not_read if found.error in NOT_READ else status)[place] = found
    return status | not_read if not_read else status


def _resolve(broker: Broker, topic: Any, by_id: bool) -> tuple[TopicKey, str | None]:
    """Return the key of a topic of the request, and its name; None of an unknown id."""
    if not by_id:
        return topic.topic, topic.topic
    topic_id: UUID | None = topic.topic_id
    key = ZERO_UUID if topic_id is None else topic_id.bytes
    return key, name_of(broker, key)


def name_of(broker: Broker, key: TopicKey) -> str | None:
    """Return the name of a topic with this name or id, or None if no topic has the id."""
    if isinstance(key, str):
        return key
    image = broker.cluster.topics_by_id.get(key)
    return None if image is None else image.name


def _refuse_topic(broker: Broker, request: Request, topic: str | None) -> ErrorCode:
    """Return the error for all partitions of a topic. Only a broker may have a replica id (CVE-2018-1288)."""
    is_replica = _replica_id(request) >= 0
    if is_replica and not broker.may(request, CLUSTER_ACTION):
        return READ_TOPIC.error
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return NO_ERROR if is_replica or broker.may(request, READ_TOPIC, topic) else READ_TOPIC.error


def _replica_id(request: Request) -> int:
    """Return the id of a replica that fetches, or -1 of a client."""
    body = request.body
    if request.api_version < FIRST_VERSION_WITH_REPLICA_STATE:
        return int(body.replica_id)
    return -1 if body.replica_state is None else int(body.replica_state.replica_id)


def _status_of(broker: Broker, version: int, key: TopicKey, topic: str, row: Any) -> FetchPartitionStatus:
    index, offset, max_bytes = row.partition, row.fetch_offset, row.partition_max_bytes
    partition = broker.cluster.partition(topic, index)
    follows = partition is None
    if partition is None:
        partition = broker.cluster.replica(topic, index)
    if partition is None:
        return FetchPartitionStatus(offset, max_bytes, None, broker.cluster.absence(topic, index))
    if key != topic and key != partition.topic_id:
        return FetchPartitionStatus(offset, max_bytes, None, ErrorCode.INCONSISTENT_TOPIC_ID)
    requested = row.current_leader_epoch if version >= 9 else -1
    error, diverging = leader_epoch_error(requested, partition.leader_epoch), None
    if partition.offline is not None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    elif not error and follows and version < FIRST_VERSION_FROM_FOLLOWERS:
        error = broker.cluster.absence(topic, index)
    elif not error:
        last_fetched = row.last_fetched_epoch if version >= FIRST_VERSION_WITH_LAST_EPOCH else -1
        if last_fetched >= 0:
            error, diverging = _compare_epochs(partition, offset, last_fetched)
        if diverging is None and not partition.log.log_start_offset <= offset <= partition.log.log_end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
    return FetchPartitionStatus(offset, max_bytes, partition, error, partition.leader_epoch, requested, diverging)


def _compare_epochs(
    partition: Partition, offset: int, last_fetched_epoch: int
) -> tuple[ErrorCode, tuple[int, int] | None]:
    """Return the place from which on the client's log is another one, or the error of an unknown epoch
    (`readRecords`)."""
    epoch, end_offset = end = partition.end_offset_for_epoch(last_fetched_epoch)
    if end == UNDEFINED:
        return ErrorCode.OFFSET_OUT_OF_RANGE, None
    return NO_ERROR, end if epoch < last_fetched_epoch or end_offset < offset else None


def check_again(broker: Broker, version: int, row: FetchPartitionStatus, partition: Partition) -> ErrorCode:
    """Return the error of a row whose partition has a new leader since its check."""
    follows = version >= FIRST_VERSION_FROM_FOLLOWERS
    if not broker.leads(partition) and not (follows and broker.cluster.replica(partition.topic, partition.index)):
        return broker.cluster.absence(partition.topic, partition.index)
    return leader_epoch_error(row.requested_epoch, partition.leader_epoch)


def leader_epoch_error(requested: int, current: int) -> ErrorCode:
    """Return the error for a client that has an older or newer leader epoch (KIP-320); -1 is no epoch."""
    if requested == -1 or requested == current:
        return NO_ERROR
    return ErrorCode.FENCED_LEADER_EPOCH if requested < current else ErrorCode.UNKNOWN_LEADER_EPOCH
