"""ListTransactions: every transactional id, or those of some states, producers, ages and names."""

import pytest

from ottla.broker.api.list_transactions import LAST_VERSION
from ottla.broker.api.pattern import AVAILABLE
from ottla.broker.costs import PATTERN_STEP_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, Producer, coordinating

VERSIONS = range(LAST_VERSION + 1)
with_patterns = pytest.mark.skipif(not AVAILABLE, reason="google-re2 is not installed")


def list_rows(broker, version, states=(), producer_ids=(), **more):
    """Send ListTransactions and return (error, {id: state}, unknown states)."""
    reply = broker.call(
        K.LIST_TRANSACTIONS, version, state_filters=[*states], producer_id_filters=[*producer_ids], **more
    )
    rows = {row.transactional_id: row.transaction_state for row in reply.transaction_states}
    return E(reply.error_code), rows, reply.unknown_state_filters


def names(broker, version, **more):
    error, rows, _ = list_rows(broker, version, **more)
    assert error is E.NONE
    return {*rows} - {"anybody"}


@pytest.fixture(scope="module")
def broker():
    """Return a broker with the ids `empty`, `open` and `done`, and `anybody`, which made the coordinator ready."""
    broker = coordinating()
    broker.producers = {name: Producer(broker, name) for name in ("empty", "open", "done")}
    for name in ("open", "done"):
        broker.producers[name].add((LEDGER, [0]))
    broker.producers["done"].end()
    return broker


STATES = {"anybody": "Empty", "empty": "Empty", "open": "Ongoing", "done": "CompleteCommit"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_id_is_listed_with_its_producer_and_its_state(broker, version):
    assert list_rows(broker, version) == (E.NONE, STATES, [])
    reply = broker.call(K.LIST_TRANSACTIONS, version, state_filters=[], producer_id_filters=[])
    ids = {row.transactional_id: row.producer_id for row in reply.transaction_states}
    assert all(ids[name] == producer.producer_id for name, producer in broker.producers.items())


@pytest.mark.parametrize(
    ("states", "found", "unknown"),
    [
        (["Ongoing"], {"open"}, []),
        (["Ongoing", "CompleteCommit", "Ongoing"], {"open", "done"}, []),
        (["Ongoing", "Sleeping", "ongoing", "Sleeping"], {"open"}, ["Sleeping", "ongoing"]),
        (["Sleeping"], set(), ["Sleeping"]),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_states_filter_and_unknown_states_are_returned(broker, version, states, found, unknown):
    error, rows, told = list_rows(broker, version, states)
    assert (error, {*rows}, told) == (E.NONE, found, unknown)


@pytest.mark.parametrize("version", VERSIONS)
def test_producer_ids_filter_and_all_filters_must_hold(broker, version):
    done, opened = (broker.producers[name].producer_id for name in ("done", "open"))
    assert {*list_rows(broker, version, producer_ids=[done, 99])[1]} == {"done"}
    assert list_rows(broker, version, ["Ongoing"], [done]) == (E.NONE, {}, [])
    assert {*list_rows(broker, version, ["Ongoing"], [done, opened])[1]} == {"open"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_duration_filters_from_version_1_on(version):
    """KIP-994. A transaction that never began passes every duration."""
    broker = coordinating()
    Producer(broker, "never")
    for name in ("old", "new"):
        Producer(broker, name).add((LEDGER, [0]))
        broker.advance(500.0)
    for duration_ms, found in ((-1, "never new old"), (0, "never new old"), (700, "never old"), (5_000, "never")):
        expected = found.split() if version else ["never", "new", "old"]
        assert names(broker, version, duration_filter=duration_ms) == {*expected}


@with_patterns
def test_a_pattern_must_match_the_whole_id():
    broker = coordinating()
    for name in ("empty", "open", "done"):
        Producer(broker, name)
    for pattern, found in ((None, 4), ("", 4), ("open", 1), ("ope", 0), ("pen", 0), (".*en", 1), ("(?i)OPEN|done", 2)):
        assert len(list_rows(broker, 2, transactional_id_pattern=pattern)[1]) == found, pattern
    Producer(broker, "b\u00fccher-1")
    assert names(broker, 2, transactional_id_pattern="(?i)B\u00dcCHER-\\d") == {"b\u00fccher-1"}
    assert list_rows(broker, 2, ["Sleeping"], transactional_id_pattern="(") == (E.INVALID_REGULAR_EXPRESSION, {}, [])


@with_patterns
def test_a_pattern_that_costs_too_much_for_an_id_is_refused():
    broker = coordinating()
    pattern = r"(?:\b?a?)" * 110  # 440 instructions
    for number in (1, 20, 200):
        Producer(broker, "a" * number)
    assert names(broker, 2, transactional_id_pattern=pattern) == {"a", "a" * 20}
    Producer(broker, "a" * 20_000)
    assert list_rows(broker, 2, transactional_id_pattern=pattern)[0] is E.INVALID_REGULAR_EXPRESSION
    assert len(names(broker, 2, transactional_id_pattern="a*")) == 4


@with_patterns
def test_each_id_that_is_matched_is_charged_for():
    broker = coordinating()
    for number in range(20):
        Producer(broker, "a" * 200 + str(number))
    before_us = broker.turns.charged_us
    names(broker, 2, transactional_id_pattern="a?" * 500)
    assert broker.turns.charged_us - before_us > 20 * 200 * 1_000 * PATTERN_STEP_US


@pytest.mark.parametrize("version", VERSIONS)
def test_while_ids_are_loaded_nothing_is_listed(version):
    broker = coordinating()
    broker.assembly.broker.transactions.states.loading.add(0)
    assert list_rows(broker, version, ["Sleeping"]) == (E.COORDINATOR_LOAD_IN_PROGRESS, {}, [])
