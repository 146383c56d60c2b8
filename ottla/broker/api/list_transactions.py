"""ListTransactions 0-2: the transactional ids of this broker, filtered by state, producer id, age and pattern. free

While a partition of the transaction log is being loaded the whole answer is COORDINATOR_LOAD_IN_PROGRESS. Unknown state
names are returned; ids whose tombstone is being logged, or that the client may not DESCRIBE, are left out.

Version notes: 1 selects ids whose transaction began longer ago than a duration; an id that never began a transaction
counts as older than any. 2 selects ids that match a regular expression completely (RE2's syntax, KIP-1152);
INVALID_REGULAR_EXPRESSION if it is invalid or costs too much. 2 is not served where RE2 is not installed.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.api.authorization import SEE_ID
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US, PATTERN_BYTE_US, ROW_US
from ottla.broker.pattern import MAX_BYTES, Pattern, PatternError, compile_pattern
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from ottla.protocol.errors import ErrorCode

FIRST_VERSION_WITH_DURATION: Final = 1
FIRST_VERSION_WITH_PATTERN: Final = 2

_BY_NAME: Final = {status.wire_name: status for status in TransactionStatus}

Keep = Callable[[TransactionState], bool]


async def handle(broker: Broker, request: Request) -> Reply:
    """List every id that passes the filters."""
    unknown = [name for name in dict.fromkeys(request.body.state_filters) if name not in _BY_NAME]
    reply = ReplyBuilder(broker, request)
    rows = reply.rows("transaction_states")
    error = ErrorCode.NONE
    if broker.transactions.loading:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    else:
        try:
            pattern = _pattern(broker, request)
            await _write(broker, request, rows, _filter(broker, request), pattern)
        except PatternError:
            error = ErrorCode.INVALID_REGULAR_EXPRESSION
    if error:
        unknown, rows = [], reply.rows("transaction_states")
    broker.turns.charge(len(unknown) * LOOKUP_US)
    return reply.finish(error_code=error, unknown_state_filters=unknown, transaction_states=rows)


def _pattern(broker: Broker, request: Request) -> Pattern | None:
    if request.api_version < FIRST_VERSION_WITH_PATTERN or not request.body.transactional_id_pattern:
        return None
    text = request.body.transactional_id_pattern
    broker.turns.charge(min(len(text), MAX_BYTES) * PATTERN_BYTE_US)
    return compile_pattern(text)


def _filter(broker: Broker, request: Request) -> Keep:
    body = request.body
    states = {_BY_NAME[name] for name in body.state_filters if name in _BY_NAME} if body.state_filters else None
    producer_ids = set(body.producer_id_filters) or None
    duration_ms = body.duration_filter if request.api_version >= FIRST_VERSION_WITH_DURATION else -1
    latest_start_ms = broker.clock.now_ms() - duration_ms

    def keep(state: TransactionState) -> bool:
        return (
            (states is None or state.status in states)
            and (producer_ids is None or state.producer_id in producer_ids)
            and (duration_ms < 0 or state.start_ms < latest_start_ms)
        )

    return keep


async def _write(broker: Broker, request: Request, rows: ReplyRows, keep: Keep, pattern: Pattern | None) -> None:
    for shard in broker.transactions.shards():
        for transactional_id in list(shard.states):
            await broker.turns.yield_if_due()
            broker.turns.charge(pattern.cost_us(transactional_id) if pattern else ROW_US)
            state = shard.states.get(transactional_id)
            if state is None or not keep(state) or shard.is_dying(transactional_id):
                continue
            if pattern is not None and not pattern.matches(transactional_id):
                continue
            if broker.may(request, SEE_ID, transactional_id):
                await rows.add(transactional_id, state.producer_id, state.status.wire_name)
