"""Transactional requests and their outcomes, from the journal of an Ottla broker or a proxy. pure"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import HEADER_SIZE, read_header
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests.structs import error_codes
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.history.calls import Call, read_calls

K: Final = ApiKey
_CALLS: Final = frozenset(
    {K.INIT_PRODUCER_ID, K.ADD_PARTITIONS_TO_TXN, K.ADD_OFFSETS_TO_TXN, K.PRODUCE, K.TXN_OFFSET_COMMIT, K.END_TXN}
)


class LedgerEntry(NamedTuple):
    """A transactional request and its outcome.

    `outcome` is the error of the reply (NONE for a success). Without a readable reply it is "lost", "connection closed"
    or "unanswered". `commit` is None except for EndTxn. `broker` is the id of the broker that
    received it, if the process has several.
    """

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
    broker: int | None = None


def read_ledger(entries: Iterable[JournalEntry]) -> Iterator[LedgerEntry]:
    """Yield an entry for each transactional request."""
    for call in read_calls(entries):
        ids = call.subject.transactional_ids if call.api_key in _CALLS and call.message is not None else ()
        if ids:
            yield _entry(call, min(ids))


def _entry(call: Call, transactional_id: str) -> LedgerEntry:
    return LedgerEntry(
        call.title,
        transactional_id,
        *_producer(call),
        _outcome(call),
        bool(call.message.committed) if call.api_key == K.END_TXN else None,
        tuple(sorted(call.subject.partitions, key=str)),
        call.client_id,
        call.entry.began_ms,
        tuple(call.entry.faults),
        call.entry.broker,
    )


def _producer(call: Call) -> tuple[int, int]:
    """Return (producer id, epoch): from the reply of InitProducerId, the first batch of Produce, else the request."""
    message = call.message
    if call.api_key == K.PRODUCE:
        return _first_batch(message)
    if call.api_key == K.ADD_PARTITIONS_TO_TXN and message.transactions:
        message = message.transactions[0]
    elif call.api_key == K.INIT_PRODUCER_ID and call.reply is not None:
        message = call.reply
    return (
        _number(message, "producer_id", "v3_and_below_producer_id"),
        _number(message, "producer_epoch", "v3_and_below_producer_epoch"),
    )


def _first_batch(request: Any) -> tuple[int, int]:
    for topic in request.topic_data or ():
        for row in topic.partition_data or ():
            if row.records is not None and len(row.records) >= HEADER_SIZE:
                header = read_header(bytes(row.records), 0)
                return header.producer_id, header.producer_epoch
    return NO_PRODUCER_ID, NO_PRODUCER_EPOCH


def _outcome(call: Call) -> str:
    if call.reply is not None:
        return next((ErrorCode(error).name for error in error_codes(call.reply) if error), "NONE")
    if call.entry.reason:
        return "connection closed"
    return "unanswered" if call.entry.reply is None else "lost"


def _number(message: Any, *names: str) -> int:
    return next((int(getattr(message, name)) for name in names if getattr(message, name, None) is not None), -1)
