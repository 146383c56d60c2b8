"""Every call of a transaction and its answer, as a broker of ours has seen them. free"""

from base64 import b64decode
from typing import Any, Final, NamedTuple

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import HEADER_SIZE, read_header
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.kit.admin import Admin

K: Final = ApiKey
_CALLS: Final = frozenset(
    {K.INIT_PRODUCER_ID, K.ADD_PARTITIONS_TO_TXN, K.ADD_OFFSETS_TO_TXN, K.PRODUCE, K.TXN_OFFSET_COMMIT, K.END_TXN}
)
_ERRORS: Final = ("error_code", "partition_error_code")


class LedgerEntry(NamedTuple):
    """One call. `outcome` is the error of its answer (NONE for a success), or what became of it without one:
    "lost", "connection closed", "unanswered". `commit` is None but for EndTxn."""

    api: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    outcome: str
    commit: bool | None
    partitions: tuple[tuple[str, int | None], ...]
    client_id: str
    began_ms: int
    faults: tuple[int, ...]


def read_ledger(admin: Admin, since: int) -> list[LedgerEntry]:
    """The entries behind a number of the journal."""
    entries = []
    while True:
        page = admin.get(f"/v1/journal?since={since}")
        for passage in page["passages"]:
            since = passage["number"]
            entry = _entry(passage)
            if entry is not None:
                entries.append(entry)
        if since >= page["last"] or not page["passages"]:
            return entries


def _entry(passage: dict[str, Any]) -> LedgerEntry | None:
    exchange = Exchange(b64decode(passage["request"]), lambda _topic_id: None)
    ids = exchange.subject.transactional_ids if exchange.api_key in _CALLS else ()
    if not ids:
        return None
    request = exchange.message
    named = request.transactions[0] if exchange.api_key == K.ADD_PARTITIONS_TO_TXN and request.transactions else request
    reply = _reply(exchange, passage)
    told = reply if exchange.api_key == K.INIT_PRODUCER_ID and reply is not None else named
    identity = (
        _number(told, "producer_id", "v3_and_below_producer_id"),
        _number(told, "producer_epoch", "v3_and_below_producer_epoch"),
    )
    return LedgerEntry(
        exchange.title,
        sorted(ids)[0],
        *(_producer_of(request) if exchange.api_key == K.PRODUCE else identity),
        _outcome(reply, passage),
        bool(request.committed) if exchange.api_key == K.END_TXN else None,
        tuple(sorted(exchange.subject.partitions, key=str)),
        exchange.client_id,
        passage["began_ms"],
        tuple(passage["faults"]),
    )


def _producer_of(request: Any) -> tuple[int, int]:
    """Who has sent a Produce, as its first batch says."""
    for topic in request.topic_data or ():
        for row in topic.partition_data or ():
            if row.records is not None and len(row.records) >= HEADER_SIZE:
                header = read_header(bytes(row.records), 0)
                return header.producer_id, header.producer_epoch
    return NO_PRODUCER_ID, NO_PRODUCER_EPOCH


def _reply(exchange: Exchange, passage: dict[str, Any]) -> Any:
    frame = b64decode(passage["reply"] or "")
    if not frame:
        return None
    try:
        return codec.decode_response(exchange.api_key, exchange.api_version, frame[4:])[1]
    except ProtocolError:
        return None


def _outcome(reply: Any, passage: dict[str, Any]) -> str:
    if reply is not None:
        return next((ErrorCode(error).name for error in _errors(reply) if error), "NONE")
    if passage["closed"]:
        return "connection closed"
    return "unanswered" if passage["reply"] is None else "lost"


def _errors(message: Any) -> Any:
    for name, field in type(message).fields.items():
        value = getattr(message, name, None)
        if name in _ERRORS and value is not None:
            yield value
        elif field.is_array() and field.is_struct_array():
            for row in value or ():
                yield from _errors(row)


def _number(message: Any, *names: str) -> int:
    return next((int(getattr(message, name)) for name in names if getattr(message, name, None) is not None), -1)
