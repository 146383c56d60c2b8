"""Requests and replies as JSON objects: Kafka's names of fields, errors by name, records as counts, no secrets. pure

Only the important fields by default: absent values, zero throttle times and the error code 0 are left out, and of
arrays all but the first `FEW_ROWS` rows. Bytes are shown as their size, because the data of group members and of SASL
is confidential. The value of a config is shown where Kafka would log it, not where it may be a password.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from ottla.admin.trace.traced import MOST_ROWS, Records, Rows, TracedReply, TracedRequest
from ottla.broker.config.describe import loggable_value
from ottla.broker.config.option import HIDDEN
from ottla.protocol.api_keys import api_title
from ottla.protocol.batch_header import HEADER_SIZE, read_header
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.compression import NAMES
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.structs import ERROR_FIELDS, structs
from ottla.protocol.steps import Steps
from ottla.protocol.subject import NameOf
from ottla.protocol.values import NO_PRODUCER_ID
from ottla.protocol.walker import STEP_ENTRIES, STEP_US

FEW_ROWS: Final = 10
MOST_CHARS: Final = 1_000
_TOPIC_NAMES: Final = ("name", "topic")
_SECRET: Final = frozenset({"auth_bytes", "salt", "salted_password", "hmac", "token"})
_ABSENT: Final[tuple[Any, ...]] = (None, "", [], -1)

AT_ONCE_BYTES: Final = 512
"""A larger body may have many entries, and is decoded in steps."""
DESCRIBE_US: Final = 60.0
"""Cost of a request or reply without its rows: decoding it if it is small, and writing it as JSON."""
ROW_US: Final = 15.0
"""Cost of a row, with its fields by their names."""

Described = dict[str, Any]


def describe_steps(passed: TracedRequest | TracedReply, verbose: bool, name_of: NameOf) -> Steps[Described]:
    """Return a request or its reply as an object. Yields the cost of each step in microseconds. `name_of` returns the
    name of a topic's id."""
    described = _head(passed)
    if isinstance(passed, TracedReply) and passed.reason:
        return described | {"reason": passed.reason[:MOST_CHARS]}
    describer = _Describer(verbose, name_of)
    yield DESCRIBE_US
    try:
        described |= yield from _fields_of(passed, describer)
    except ProtocolError as error:
        described |= {"fields": None, "unreadable": str(error)}
    yield describer.count_rows * ROW_US
    return described | describer.left_out


def request_steps(request: TracedRequest) -> Steps[Any]:
    """Return the decoded request; None for a Produce or one that is too large. ProtocolError if it is malformed."""
    if request.body is None:
        return None
    key, version = request.header.api_key, request.header.api_version
    if len(request.body) <= AT_ONCE_BYTES:
        return codec.decode_request(key, version, request.body)
    message, _, _ = yield from codec.read_request_in_steps(key, version, request.body)
    return message


def _fields_of(passed: TracedRequest | TracedReply, describer: "_Describer") -> Steps[Described]:
    """Return the keys after the head: the fields, and of a reply its errors."""
    if isinstance(passed, TracedRequest):
        if passed.produced is not None:
            return {"fields": describer.rows(passed.produced, "topic_data", "name", "partition_data")}
        message = yield from request_steps(passed)
        return {"fields": None if message is None else describer.struct(message, passed.header.api_version)}
    if passed.fetched is not None:
        codes: set[int] = {row.fields["error_code"] for row in passed.fetched.rows} | {
            passed.fetched.fields.get("error_code", 0)
        }
        fields: Described | None = describer.rows(passed.fetched, "responses", "topic", "partitions")
    elif passed.data:
        message = yield from _reply_steps(passed, passed.data)
        codes = yield from _code_steps(message)
        fields = describer.struct(message, passed.request.header.api_version)
    else:
        codes, fields = set(), None
    return {"errors": sorted(error_name(code) for code in codes if code), "fields": fields}


def _reply_steps(answered: TracedReply, frame: bytes) -> Steps[Any]:
    key, version = answered.request.header.api_key, answered.request.header.api_version
    if len(frame) <= AT_ONCE_BYTES:
        return codec.decode_response(key, version, frame)[1]
    return (yield from codec.read_response_in_steps(key, version, frame))


def _code_steps(message: Any) -> Steps[set[int]]:
    """Return the error codes of all rows, also of those that are left out."""
    codes: set[int] = set()
    for at, struct in enumerate(structs(message)):
        codes.update(getattr(struct, name) for name in ERROR_FIELDS & type(struct).fields.keys())
        if at & (STEP_ENTRIES - 1) == STEP_ENTRIES - 1:
            yield STEP_US
    return codes


def error_name(code: int) -> str:
    """Return Kafka's name of an error, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _head(passed: TracedRequest | TracedReply) -> Described:
    request = passed if isinstance(passed, TracedRequest) else passed.request
    key, version, correlation_id, client_id = request.header
    described: Described = {
        "kind": "request",
        "time_ms": passed.time_ms,
        "peer": request.peer,
        "client_id": client_id[:MOST_CHARS],
        "correlation_id": correlation_id,
        "api": api_title(key),
        "version": version,
    } | ({} if request.broker is None else {"broker": request.broker})
    if isinstance(passed, TracedReply):
        described |= {"kind": "closed" if passed.reason else "reply", "took_ms": round(passed.at_ms - request.at_ms, 3)}
        if passed.reason:
            return described
    return described | {"size_bytes": passed.size_bytes}


class _Describer:
    """The conversion of a message to JSON, with the number of rows that it may still have."""

    def __init__(self, verbose: bool, name_of: NameOf) -> None:
        self._verbose = verbose
        self._name_of = name_of
        self._left = MOST_ROWS if verbose else FEW_ROWS
        self._left_out = 0

    @property
    def count_rows(self) -> int:
        """Return the number of rows in the result."""
        return (MOST_ROWS if self._verbose else FEW_ROWS) - self._left

    @property
    def left_out(self) -> Described:
        """The number of rows left out, if any."""
        return {"rows_left_out": self._left_out} if self._left_out else {}

    def struct(self, struct: Any, version: int) -> Described:
        described: Described = {}
        for name, field in type(struct).fields.items():
            if not field.for_version_q(version):
                continue
            value = getattr(struct, name, None)
            if value and _is_secret(struct, name):
                described[name] = HIDDEN
            elif isinstance(value, UUID):
                described[name] = encode_id(value.bytes)
                if name == "topic_id" and not any(getattr(struct, other, None) for other in _TOPIC_NAMES):
                    self._add(described, "topic", self._name_of(value))
            else:
                self._add(described, name, self._value(value, version))
        return described

    def rows(self, rows: Rows, topics: str, topic_name: str, partitions: str) -> Described:
        """Return the rows of a Produce request or a Fetch reply, under the names of their schemas."""
        described: Described = {}
        for name, value in rows.fields.items():
            self._add(described, name, value)
        described[topics] = groups = []
        named: dict[str | UUID, Described] = {}
        for row in rows.rows[: self._left]:
            if row.topic not in named:
                named[row.topic] = {topic_name: self._topic(row.topic), partitions: []}
                groups.append(named[row.topic])
            partition: Described = {}
            for name, value in row.fields.items():
                self._add(partition, name, value)
            self._add(partition, "records", self._records(row.records))
            named[row.topic][partitions].append(partition)
        described_rows = min(self._left, len(rows.rows))
        self._left -= described_rows
        self._left_out += rows.left_out + len(rows.rows) - described_rows
        return described

    def _topic(self, topic: str | UUID) -> str:
        return topic if isinstance(topic, str) else self._name_of(topic) or encode_id(topic.bytes)

    def _add(self, described: Described, name: str, value: Any) -> None:
        if name.endswith("error_code") and isinstance(value, int):
            if value or self._verbose:
                described[name] = error_name(value)
        elif self._verbose or name == "acks" or not (value in _ABSENT or (name == "throttle_time_ms" and not value)):
            described[name] = value  # -1 is a meaningful value of acks

    def _value(self, value: Any, version: int) -> Any:
        if isinstance(value, str):
            return value if len(value) <= MOST_CHARS else f"{value[:MOST_CHARS]}..."
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return f"{len(value)} bytes"
        if isinstance(value, UUID):
            return encode_id(value.bytes)
        if isinstance(value, Sequence | set | frozenset):
            return self._items([*value], version)
        return self.struct(value, version) if hasattr(type(value), "fields") else str(value)

    def _items(self, items: list[Any], version: int) -> list[Any]:
        """Return structs up to the limit of rows, and the first few of other items."""
        described: list[Any] = []
        for at, item in enumerate(items):
            is_struct = hasattr(type(item), "fields")
            if self._left <= 0 or (not is_struct and at == FEW_ROWS and not self._verbose):
                self._left_out += len(items) - at
                break
            left = self._left
            described.append(self._value(item, version))
            if is_struct and self._left == left:  # a struct with rows in it is counted by its rows
                self._left -= 1
        return described

    def _records(self, records: Records | None) -> Any:
        if records is None:
            return None
        described: Described = {"size_bytes": records.size_bytes}
        if len(records.head) < HEADER_SIZE:
            return described
        header = read_header(records.head)
        if header.size_bytes < records.size_bytes:  # a Fetch of several batches: only the first header is known
            return described | {"base_offset": header.base_offset}
        described |= {"records": header.record_count}
        if header.base_offset or self._verbose:
            described["base_offset"] = header.base_offset
        if header.producer_id != NO_PRODUCER_ID or self._verbose:
            described |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
            described |= {"base_sequence": header.base_sequence, "transactional": header.is_transactional}
        if header.is_control:
            described["control"] = True
        if header.compression or self._verbose:
            described["compression"] = NAMES.get(header.compression, str(header.compression))
        return described


def _is_secret(struct: Any, name: str) -> bool:
    return name in _SECRET or (name == "value" and "name" in type(struct).fields and _is_hidden(struct))


def _is_hidden(config: Any) -> bool:
    return bool(loggable_value(config.name, config.value) != config.value)
