"""Error replies: the same error in every row of the reply, as in Kafka's `getErrorResponse`. pure

The response has a row for each row of the request. The tables below map their arrays; the rest comes from the schemas.
If the version has a top-level error, only that is set and there are no rows, except for Fetch and Metadata, whose
clients read the rows.
"""

from collections.abc import Iterator
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import response_prefix
from ottla.protocol.requests.structs import ERROR_FIELDS

_K: Final = ApiKey
_BY_ROWS: Final = frozenset({_K.FETCH, _K.METADATA})

_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "partition_responses": ("partition_data",),
    "coordinators": ("coordinator_keys",),
    "partitions": ("partitions", "partition_indexes"),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "transaction_states": ("transactional_ids",),
}
"""Arrays of responses and the request arrays that they mirror. Other arrays mirror the one of the same name."""
_SOURCES_OF_API: Final[dict[tuple[int, str], tuple[str, ...]]] = {
    (_K.PRODUCE, "responses"): ("topic_data",),
    (_K.FETCH, "responses"): ("topics",),
    (_K.DELETE_TOPICS, "responses"): ("topics", "topic_names"),
    (_K.ALTER_CONFIGS, "responses"): ("resources",),
    (_K.INCREMENTAL_ALTER_CONFIGS, "responses"): ("resources",),
    (_K.DESCRIBE_CONFIGS, "results"): ("resources",),
    (_K.CREATE_ACLS, "results"): ("creations",),
    (_K.DELETE_ACLS, "filter_results"): ("filters",),
    (_K.CREATE_PARTITIONS, "results"): ("topics",),
    (_K.DELETE_GROUPS, "results"): ("groups_names",),
    (_K.ALTER_REPLICA_LOG_DIRS, "results"): ("dirs.topics",),
    (_K.ELECT_LEADERS, "replica_election_results"): ("topic_partitions",),
    (_K.ELECT_LEADERS, "partition_result"): ("partitions",),
    (_K.CONSUMER_GROUP_DESCRIBE, "groups"): ("group_ids",),
    (_K.DESCRIBE_USER_SCRAM_CREDENTIALS, "results"): ("users",),
    (_K.ALTER_USER_SCRAM_CREDENTIALS, "results"): ("deletions", "upsertions"),
}
_PLAIN: Final = {
    "coordinators": "key",
    "groups": "group_id",
    "partitions": "partition_index",
    "partition_result": "partition_id",
    "results_by_partition": "partition_index",
    "results": "group_id",
    "transaction_states": "transactional_id",
    "responses": "name",
}
"""For a mirrored array of plain values: the field of the response row that gets the value."""
_SAME: Final = {
    "partition_index": ("partition_index", "partition", "index"),
    "index": ("index",),
    "topic_name": ("topic_name", "name"),
    "user": ("name",),
}
"""Response fields that requests have under other names."""
_NOTHING: Final = frozenset(
    {
        *("base_offset", "log_append_time_ms", "log_start_offset", "high_watermark", "last_stable_offset"),
        *("committed_offset", "node_id", "offset", "timestamp", "end_offset", "low_watermark"),
    }
)
"""Fields that are -1, whatever the value in the request and the default of the schema."""


def error_reply(api_key: int, version: int, correlation_id: int, request: Any, error: ErrorCode) -> bytes:
    """Return the reply frame, with its size, to a decoded request."""
    response = _made(codec.response_class(api_key), api_key, version, request, error)
    body = response.encode(version=version)
    return response_prefix(api_key, version, correlation_id, len(body)) + bytes(body)


def _made(struct: Any, api_key: int, version: int, request: Any, error: ErrorCode) -> Any:
    """Build a response or a struct of it from `request`, the matching struct of the request, or None."""
    served = {name: field for name, field in struct.fields.items() if field.for_version_q(version)}
    values: dict[str, Any] = {}
    whole = "error_code" in served and isinstance(request, codec.request_class(api_key)) and api_key not in _BY_ROWS
    for name, field in served.items():
        if name in ERROR_FIELDS:
            values[name] = int(error)
        elif field.is_array():
            values[name] = [] if whole else list(_rows(name, field, api_key, version, request, error))
        elif name in _NOTHING:
            values[name] = -1
        elif not whole and (found := _found(name, request)) is not None:
            values[name] = found
    if isinstance(request, codec.request_class(api_key)) and api_key in _BY_ROWS and "error_code" in values:
        rows = values.get("responses") or values.get("topics")
        values["error_code"] = 0 if rows else int(error)
    return struct(version=version, **values)


def _rows(name: str, field: Any, api_key: int, version: int, request: Any, error: ErrorCode) -> Iterator[Any]:
    if not field.is_struct_array() or not _has_error(field):
        return
    sources = _SOURCES_OF_API.get((api_key, name), _SOURCES.get(name, (name,)))
    for source in sources:
        for row in _rows_at(request, source):
            if hasattr(type(row), "fields"):
                yield _made(field.data_class, api_key, version, row, error)
            elif name in _PLAIN:
                made = _made(field.data_class, api_key, version, None, error)
                setattr(made, _PLAIN[name], row)
                yield made


def _rows_at(request: Any, source: str) -> Iterator[Any]:
    """Yield the rows of an array of the request, or for `outer.inner` those of an array in each of its rows."""
    outer, _, inner = source.partition(".")
    for row in getattr(request, outer, None) or ():
        yield from _rows_at(row, inner) if inner else (row,)


def _has_error(field: Any) -> bool:
    return any(
        name in ERROR_FIELDS or (inner.is_array() and inner.is_struct_array() and _has_error(inner))
        for name, inner in field.fields.items()
    )


def _found(name: str, request: Any) -> Any:
    """Return the value of this field in the request, or None."""
    if request is None:
        return None
    fields = type(request).fields
    for known in _SAME.get(name, (name,)):
        if known in fields:
            return getattr(request, known)
    return None
