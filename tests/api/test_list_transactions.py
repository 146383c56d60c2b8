"""ListTransactions: patterns of ids, and what they cost. Every filter is tested in `tests/tables`."""

import pytest

from ottla.broker.costs import PATTERN_STEP_US
from ottla.broker.pattern import AVAILABLE
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import Producer, coordinating

with_patterns = pytest.mark.skipif(not AVAILABLE, reason="google-re2 is not installed")


def list_ids(broker, pattern, states=()):
    """Send ListTransactions and return (error, ids, unknown states)."""
    filters = {"state_filters": [*states], "producer_id_filters": [], "transactional_id_pattern": pattern}
    reply = broker.call(K.LIST_TRANSACTIONS, 2, **filters)
    return E(reply.error_code), {row.transactional_id for row in reply.transaction_states}, reply.unknown_state_filters


@with_patterns
def test_a_pattern_may_ignore_case_and_have_alternatives():
    broker = coordinating()
    for name in ("empty", "open", "done", "b\u00fccher-1"):
        Producer(broker, name)
    assert list_ids(broker, "(?i)OPEN|done") == (E.NONE, {"open", "done"}, [])
    assert list_ids(broker, "(?i)B\u00dcCHER-\\d") == (E.NONE, {"b\u00fccher-1"}, [])


@with_patterns
def test_an_invalid_pattern_is_refused_before_the_states_are_read():
    assert list_ids(coordinating(), "(", ["Sleeping"]) == (E.INVALID_REGULAR_EXPRESSION, set(), [])


@with_patterns
def test_a_pattern_that_costs_too_much_for_an_id_is_refused():
    broker = coordinating()
    pattern = r"(?:\b?a?)" * 110  # 440 instructions
    for number in (1, 20, 200):
        Producer(broker, "a" * number)
    assert list_ids(broker, pattern) == (E.NONE, {"a", "a" * 20}, [])
    Producer(broker, "a" * 20_000)
    assert list_ids(broker, pattern)[0] is E.INVALID_REGULAR_EXPRESSION
    assert len(list_ids(broker, "a*")[1]) == 4


@with_patterns
def test_each_id_that_is_matched_is_charged_for():
    broker = coordinating()
    for number in range(20):
        Producer(broker, "a" * 200 + str(number))
    before_us = broker.turns.charged_us
    list_ids(broker, "a?" * 500)
    assert broker.turns.charged_us - before_us > 20 * 200 * 1_000 * PATTERN_STEP_US
