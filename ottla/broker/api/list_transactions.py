"""ListTransactions 0-2: the transactional ids of this broker, filtered by state, producer id, age and pattern. free

While a partition of the transaction log is being loaded the whole answer is COORDINATOR_LOAD_IN_PROGRESS. State names
that do not exist are given back; ids that are being forgotten are left out.

Version notes: 1 has the ids whose transaction began longer ago than a duration; one that never began a transaction
counts as older than any. 2 has the ids that match a regular expression as a whole (RE2's syntax, KIP-1152);
INVALID_REGULAR_EXPRESSION for what is none.
"""

from collections.abc import Callable

from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.broker.api.pattern import Pattern, PatternError, compile_pattern
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.reply_wire import encode_transaction_list, write_listed_transaction

FIRST_VERSION_WITH_DURATION = 1
FIRST_VERSION_WITH_PATTERN = 2
SLICE_MS = 5.0
CHECK_EVERY = 256
PIECE_BYTES = 1_000_000

_BY_NAME = {status.wire_name: status for status in TransactionStatus}

Keep = Callable[[str, TransactionState], bool]


async def handle(broker: Broker, request: Request) -> Reply:
    """Every id that passes the filters, a few ms of them per turn."""
    unknown = [name for name in dict.fromkeys(request.body.state_filters) if name not in _BY_NAME]
    rows: list[bytearray] = []
    count = 0
    error = ErrorCode.NONE
    pattern = None
    if broker.transactions.loading:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    else:
        try:
            pattern = _pattern(request)
        except PatternError:
            error = ErrorCode.INVALID_REGULAR_EXPRESSION
    if error:
        unknown = []
    else:
        rows, count = await _rows(broker, _filter(broker, request, pattern))
    return Encoded(encode_transaction_list(request.api_version, request.correlation_id, error, unknown, rows, count))


def _pattern(request: Request) -> Pattern | None:
    if request.api_version < FIRST_VERSION_WITH_PATTERN or not request.body.transactional_id_pattern:
        return None
    return compile_pattern(request.body.transactional_id_pattern)


def _filter(broker: Broker, request: Request, pattern: Pattern | None) -> Keep:
    body = request.body
    states = {_BY_NAME[name] for name in body.state_filters if name in _BY_NAME} if body.state_filters else None
    producer_ids = set(body.producer_id_filters) or None
    duration_ms = body.duration_filter if request.api_version >= FIRST_VERSION_WITH_DURATION else -1
    latest_start_ms = broker.clock.now_ms() - duration_ms

    def keep(transactional_id: str, state: TransactionState) -> bool:
        return (
            (states is None or state.status in states)
            and (producer_ids is None or state.producer_id in producer_ids)
            and (duration_ms < 0 or state.start_ms < latest_start_ms)
            and (pattern is None or pattern.matches(transactional_id))
        )

    return keep


async def _rows(broker: Broker, keep: Keep) -> tuple[list[bytearray], int]:
    """The rows as they are sent, in pieces, and how many: a million of them are no million objects."""
    piece = bytearray()
    pieces = [piece]
    kept = 0
    until_ms = broker.clock.monotonic_ms() + SLICE_MS
    for shard in broker.transactions.shards():
        for count, transactional_id in enumerate(list(shard.states)):
            state = shard.states.get(transactional_id)
            if state is not None and keep(transactional_id, state) and not shard.is_dying(transactional_id):
                kept += 1
                write_listed_transaction(piece, transactional_id, state.producer_id, state.status.wire_name)
            if count % CHECK_EVERY == 0 and broker.clock.monotonic_ms() > until_ms:
                if len(piece) > PIECE_BYTES:
                    piece = bytearray()
                    pieces.append(piece)
                await broker.turns.pause()
                until_ms = broker.clock.monotonic_ms() + SLICE_MS
    return pieces, kept
