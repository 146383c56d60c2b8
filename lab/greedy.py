"""The largest possible requests of every API, built from the schemas. pure

    for ask in greedy(api_key, 0, 8, state): ask.message() is a request of version `ask.version`

Each array of a request is filled once in each way of `Fill`, to the limit of entries or of bytes, whichever comes
first. The other arrays stay empty, and those in its rows have one entry, or are null where null means all. The
module names no API: the schema's entity type gives the meaning of a string, and the field's name that of a number.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import MAX_ENTRIES, MAX_SMALL_REQUEST_BYTES


class Fill(StrEnum):
    """Content of a filled array."""

    ROWS = "rows"
    """Different names that exist, then invented ones."""
    NEW = "new"
    """Names that do not exist."""
    LONG = "long"
    """The longest names and texts."""
    REPEATED = "repeated"
    """One name that exists."""
    ALL = "all"
    """No array is filled: each is null if null means all, else it has one row."""


class State(NamedTuple):
    """State of the broker. The first entry of each list is the largest."""

    topics: Sequence[str]
    topic_ids: Sequence[UUID]
    groups: Sequence[str]
    transactional_ids: Sequence[str]
    producer_ids: Sequence[int]
    timestamp_ms: int
    """Timestamp of a record near the end of its batch."""
    batch: bytes
    large_batch: bytes


LONGEST_TEXT: Final = 32_767
LONGEST_BY_ENTITY: Final = {"topicName": 249}
LONGEST_BY_NAME: Final = {"committed_metadata": 4_096, "protocol_type": 8}
PARTITIONS_CREATED: Final = 10_000
_SAMPLE: Final = 33
_PARTITIONS: Final = ("partition", "partition_index", "partition_indexes", "partitions", "index")
_EMPTY: Final = frozenset(("assignments", "configs"))
_NUMBERS: Final = {
    "acks": -1,
    "config_operation": 0,
    "endpoint_type": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "key_type": 0,
    "max_bytes": 2**31 - 1,
    "max_version_level": 2,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "partition_max_bytes": 2**31 - 1,
    "producer_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "replica_id": -1,
    "replication_factor": 1,
    "replicas": 1,
    "resource_type": 2,
    "retention_time_ms": -1,
    "session_id": 0,
    "session_timeout_ms": 30_000,
    "timeout_ms": 30_000,
    "transaction_timeout_ms": 60_000,
    "upgrade_type": 1,
}
_TEXTS: Final = {"protocol_type": "consumer", "member_id": "", "value": "1"}


class GreedyRequest(NamedTuple):
    """A request. `array` is the path of the filled array, empty for none; `flags` is the value of every boolean."""

    api_key: int
    version: int
    fill: Fill
    array: str
    flags: bool
    message: Callable[[], Any]


def greedy(
    api_key: int,
    lowest: int,
    highest: int,
    state: State,
    max_entries: int = MAX_ENTRIES,
    max_bytes: int = MAX_SMALL_REQUEST_BYTES - 1_024,
) -> Iterator[GreedyRequest]:
    """Yield every greedy request of an API: in its highest version, and in the lowest if its fields differ."""
    request = codec.request_class(api_key)
    lowest, highest = max(lowest, request.min_version), min(highest, request.max_version)
    versions = [highest] if _names(request, lowest) == _names(request, highest) else [highest, lowest]
    for version in versions:
        for flags in (True, False) if _has_flags(request, version) else (True,):
            maker = _Maker(request, version, flags, state, max_entries, max_bytes)
            yield GreedyRequest(api_key, version, Fill.ALL, "", flags, maker.make_one)
            for path, field in _arrays(request, version):
                for fill in _fills(field, version):
                    yield GreedyRequest(api_key, version, fill, path, flags, maker.filling(path, fill))


def _present(struct: Any, version: int) -> list[Any]:
    return [field for field in struct.fields.values() if field.for_version_q(version)]


def _names(struct: Any, version: int) -> list[Any]:
    return [
        (field.name, _names(field, version) if field.is_struct() or _is_table(field) else None)
        for field in _present(struct, version)
    ]


def _is_table(field: Any) -> bool:
    return bool(field.is_array() and field.is_struct_array())


def _has_flags(struct: Any, version: int) -> bool:
    return any(
        field.type_str == "bool" or ((field.is_struct() or _is_table(field)) and _has_flags(field, version))
        for field in _present(struct, version)
    )


def _arrays(struct: Any, version: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, field) of every array; the parts of a path are joined by dots."""
    for field in _present(struct, version):
        if field.is_array():
            yield f"{prefix}{field.name}", field
        if _is_table(field) or field.is_struct():
            yield from _arrays(field, version, f"{prefix}{field.name}.")


def _fills(field: Any, version: int) -> tuple[Fill, ...]:
    rows = _present(field, version) if _is_table(field) else [field.array_of]
    if any(row.type_str in ("string", "bytes", "records") and not row.is_array() for row in rows):
        return Fill.ROWS, Fill.NEW, Fill.LONG, Fill.REPEATED
    return Fill.ROWS, Fill.REPEATED


class _Maker:
    """Builder of the messages of one version."""

    def __init__(self, request: Any, version: int, flags: bool, state: State, max_entries: int, max_bytes: int) -> None:
        self._request = request
        self._version = version
        self._flags = flags
        self._state = state
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries = 0
        self._filled = ""
        self._count = 0
        self._way = Fill.ALL
        self._pools: dict[str, Sequence[str]] = {
            "topicName": state.topics,
            "groupId": state.groups,
            "transactionalId": state.transactional_ids,
        }

    def make_one(self) -> Any:
        return self._make("", Fill.ALL, 1)

    def filling(self, path: str, fill: Fill) -> Callable[[], Any]:
        return lambda: self._fill(path, fill)

    def _fill(self, path: str, fill: Fill) -> Any:
        """Return as many rows as the limits allow, by the size of a row."""
        one, entries_of_one = self._size(path, fill, 1)
        many, entries = self._size(path, fill, _SAMPLE)
        row_bytes, row_entries = (
            max(1, (many - one) / (_SAMPLE - 1)),
            max(1, (entries - entries_of_one) // (_SAMPLE - 1)),
        )
        more_by_entries = (self._max_entries - entries_of_one) // row_entries
        count = 1 + max(0, min(more_by_entries, int((self._max_bytes - one) / row_bytes)))
        while True:
            message = self._make(path, fill, count)
            if count == 1 or len(message.encode(version=self._version)) <= self._max_bytes:
                return message
            count = count * 19 // 20

    def _size(self, path: str, fill: Fill, count: int) -> tuple[int, int]:
        """Return (bytes, entries of all arrays)."""
        return len(self._make(path, fill, count).encode(version=self._version)), self._entries

    def _make(self, path: str, fill: Fill, count: int) -> Any:
        self._filled, self._way, self._count, self._entries = path, fill, count, 0
        return self._struct(self._request, "", 0)

    def _struct(self, struct: Any, prefix: str, number: int) -> Any:
        data_class = struct.data_class if hasattr(struct, "data_class") else struct
        fields = _present(struct, self._version)
        named = any(field.type_str == "string" and not field.is_array() for field in fields)
        return data_class(
            version=self._version,
            **{field.name: self._value(field, f"{prefix}{field.name}", number, named) for field in fields},
        )

    def _value(self, field: Any, path: str, number: int, named: bool = True) -> Any:
        if field.is_array():
            return self._array(field, path)
        if field.is_struct():
            nullable = field.nullable_for_version_q(self._version) or field.tagged_field_q(self._version)
            return field.default if nullable else self._struct(field, f"{path}.", number)
        match field.type_str:
            case "bool":
                return self._flags
            case "string":
                return self._text(field, number)
            case "bytes":
                return b"x" * (LONGEST_TEXT if self._way is Fill.LONG else 8)
            case "records":
                return self._state.large_batch if self._way in (Fill.LONG, Fill.ALL) else self._state.batch
            case "uuid":
                return field.default if named else self._topic_id(number)
        return self._number(field, number)

    def _array(self, field: Any, path: str) -> Any:
        filled = path == self._filled
        above = self._filled.startswith(f"{path}.")
        within = not self._filled or path.startswith(f"{self._filled}.")
        if filled:
            count = self._count
        elif within and field.nullable_for_version_q(self._version):
            return None
        else:
            count = int(above or (within and field.name not in _EMPTY))
        self._entries += count
        if _is_table(field):
            return [self._struct(field, f"{path}.", number) for number in range(count)]
        return [self._entry(field, number) for number in range(count)]

    def _entry(self, field: Any, number: int) -> Any:
        """Return an entry of an array of plain values, never null."""
        text = field.array_of.type_str == "string"
        return self._text(field, number) or "" if text else self._value(field.array_of, field.name, number)

    def _text(self, field: Any, number: int) -> str | None:
        if self._way is Fill.LONG:
            longest = LONGEST_BY_NAME.get(field.name, LONGEST_BY_ENTITY.get(field._entity_type, LONGEST_TEXT))
            return f"{number:08d}".ljust(longest, "n")
        if field.name in _TEXTS:
            return _TEXTS[field.name]
        if field._entity_type is None and field.nullable_for_version_q(self._version) and not field.is_array():
            return None
        pool = self._pools.get(field._entity_type, self._state.topics)
        if self._way is Fill.NEW or (self._way is Fill.ROWS and number >= len(pool)):
            return f"new-{number:07d}"
        return pool[number if self._way is Fill.ROWS else 0]

    def _topic_id(self, number: int) -> UUID:
        ids = self._state.topic_ids
        if self._way is Fill.NEW or (self._way is Fill.ROWS and number >= len(ids)):
            return UUID(int=number + 1)
        return ids[number if self._way is Fill.ROWS else 0]

    def _number(self, field: Any, number: int) -> Any:
        name, repeated = field.name, self._way is Fill.REPEATED
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name in ("num_partitions", "count"):
            return max(1, PARTITIONS_CREATED // self._count)
        if name in _PARTITIONS:
            return 0 if repeated else number
        if field._entity_type == "producerId":
            ids = self._state.producer_ids
            return ids[0 if repeated else number % len(ids)]
        if name == "timestamp":
            return self._state.timestamp_ms
        if name.endswith("epoch"):
            return -1
        return field.default
