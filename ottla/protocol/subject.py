"""Subject of a request: its transactional ids, groups, topics and partitions. pure"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import MAGIC, iter_batches
from ottla.protocol.requests.structs import ERROR_FIELDS, structs

_GROUPS, _TRANSACTIONS = 0, 1  # key types of FindCoordinator
_IDS: Final = frozenset({"transactional_id", "v3_and_below_transactional_id", "transactional_ids"})
_GROUP_IDS: Final = frozenset({"group_id", "group_ids", "groups_names"})
_TOPIC_NAMES: Final = ("name", "topic")
_PARTITION_ARRAYS: Final = ("partitions", "partition_data", "partition_indexes")
_PARTITION_NUMBERS: Final = ("partition_index", "partition", "index")

NameOf = Callable[[UUID], str | None]
Place = tuple[str, int | None]
"""A topic and a partition; the partition is None for requests that name only topics."""
SessionOf = Callable[[int], Iterable[Place]]
"""Returns the partitions of a fetch session by its id."""


class Subject(NamedTuple):
    """Names in a request."""

    transactional_ids: frozenset[str]
    groups: frozenset[str]
    partitions: frozenset[Place]


def no_session(session_id: int) -> Iterable[Place]:
    return ()


def subject_of(api_key: int, message: Any, name_of: NameOf, session_of: SessionOf = no_session) -> Subject:
    """Return the subject of a decoded request. `name_of` returns the name of a topic id. A Fetch of a session reads the
    partitions of the session, too."""
    ids: set[str] = set()
    groups: set[str] = set()
    partitions: set[Place] = set()
    for name, value in _values(message):
        if name in _IDS:
            ids.update(_strings(value))
        elif name in _GROUP_IDS or (name == "groups" and api_key == ApiKey.DESCRIBE_GROUPS):
            groups.update(_strings(value))
    if api_key == ApiKey.FIND_COORDINATOR:
        keys = {*_strings(message.key), *_strings(message.coordinator_keys)}
        (ids if message.key_type == _TRANSACTIONS else groups).update(keys)
    elif api_key == ApiKey.DELETE_TOPICS:
        partitions.update((name, None) for name in _strings(message.topic_names))
    elif api_key == ApiKey.FETCH and message.session_epoch > 0:
        partitions.update(session_of(message.session_id))
    partitions.update(places_of((each for each in structs(message) if each is not message), name_of))
    return Subject(frozenset(ids), frozenset(groups), frozenset(partitions))


def places_of(rows: Iterable[Any], name_of: NameOf) -> Iterator[Place]:
    """Yield the partitions of rows for topics."""
    for struct in rows:
        topic = _topic(struct, name_of)
        if topic is not None:
            yield from _rows(topic, struct)


def producer_ids_of(message: Any) -> frozenset[int]:
    """Return the producer ids of a decoded request: its own, those of its rows, and those of its batches.
    Raises ProtocolError if its records are no batches."""
    found: set[int] = set()
    for name, value in _values(message):
        if name == "producer_id":
            found.add(value)
        elif name == "records" and value:
            found.update(header.producer_id for _, header in iter_batches(value) if header.magic == MAGIC)
    return frozenset(producer_id for producer_id in found if producer_id >= 0)


def partition_errors(reply: Any, name_of: NameOf) -> Iterator[tuple[str, int, int]]:
    """Yield (topic, partition, error code) of each row of a decoded reply that has an error."""
    for struct in structs(reply):
        topic = _topic(struct, name_of)
        for name, field in type(struct).fields.items():
            if topic is not None and field.is_array() and field.is_struct_array():
                for row in getattr(struct, name, None) or ():
                    found = _number_and_error(row)
                    if found is not None and found[1]:
                        yield topic, *found


def _number_and_error(row: Any) -> tuple[int, int] | None:
    """Return the partition and the error code of a row; None for rows without them."""
    fields = type(row).fields
    number = next((name for name in _PARTITION_NUMBERS if name in fields), None)
    error = next((name for name in ERROR_FIELDS if name in fields), None)
    return None if number is None or error is None else (getattr(row, number), getattr(row, error))


def _values(message: Any) -> Iterator[tuple[str, Any]]:
    for struct in structs(message):
        for name in type(struct).fields:
            yield name, getattr(struct, name, None)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, str))


def _topic(struct: Any, name_of: NameOf) -> str | None:
    fields = type(struct).fields
    for name in _TOPIC_NAMES:
        if name in fields and (value := getattr(struct, name)):
            return str(value)
    topic_id = getattr(struct, "topic_id", None) if "topic_id" in fields else None
    return name_of(topic_id) if isinstance(topic_id, UUID) else None


def _rows(topic: str, struct: Any) -> Iterator[Place]:
    fields = type(struct).fields
    for array in _PARTITION_ARRAYS:
        if array not in fields:
            continue
        for row in getattr(struct, array, None) or ():
            if isinstance(row, int):
                yield topic, row
            else:
                number = next(name for name in _PARTITION_NUMBERS if name in type(row).fields)
                yield topic, getattr(row, number)
        return
    if "topic_id" in fields or "num_partitions" in fields or "count" in fields:
        yield topic, None
