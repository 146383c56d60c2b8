"""Faults are parsed strictly, count the requests that they match, and describe themselves."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.faults.fault import FaultError, parse_fault
from ottla.testkit.faults.plan import Named, Plan


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([], "a fault must be an object"),
        ({"do": "drop", "apii": "EndTxn"}, "did you mean api?"),
        ({"do": "drop", "api": "EndTxm"}, "did you mean EndTxn?"),
        ({"do": "drop", "at": "markers"}, "did you mean marker?"),
        ({}, "is missing"),
        ({"do": "fail", "at": "request", "error": "EIO"}, "is an unknown action at 'request'"),
        ({"do": "reply"}, "'reply' needs 'error'"),
        ({"do": "reply", "error": "NOT_COORDINATER"}, "did you mean NOT_COORDINATOR?"),
        ({"do": "drop", "error": "NONE"}, "'drop' takes no 'error'"),
        ({"do": "delay"}, "'delay' needs 'ms'"),
        ({"do": "delay", "ms": -1}, "above 0"),
        ({"do": "delay", "ms": True}, "above 0"),
        ({"do": "drop", "nth": 0}, "nth must be a whole number from 1"),
        ({"do": "drop", "times": 1.5}, "times must be a whole number"),
        ({"do": "drop", "where": {"partition": -1}}, "partition must be a whole number from 0"),
        ({"do": "drop", "where": {"topic": 3}}, "topic must be a string"),
        ({"do": "drop", "where": {"topics": "a"}}, "did you mean topic?"),
        ({"do": "lose", "at": "marker", "api": "EndTxn"}, "has no API"),
        ({"do": "lose", "at": "marker", "where": {"client_id": "c"}}, "is an unknown condition at 'marker'"),
        ({"do": "fail", "at": "append", "error": "EWRONG"}, "is an unknown errno"),
    ],
)
def test_an_invalid_fault_is_refused_with_the_reason(given, complaint):
    with pytest.raises(FaultError, match=complaint.replace("?", r"\?")):
        parse_fault(given)


def test_a_fault_is_described_and_written_as_it_was_parsed():
    given = {"at": "reply", "api": "endtxn", "where": {"transactional_id": "t"}, "nth": 2, "times": None, "do": "lose"}
    fault = parse_fault(given)
    assert fault.api is ApiKey.END_TXN
    assert parse_fault({name: value for name, value in fault.to_json().items() if name in given}) == fault
    assert fault.describe() == "lose at reply of EndTxn transactional_id=t from number 2, always"
    assert parse_fault({"do": "reply", "error": "not_coordinator"}).error is ErrorCode.NOT_COORDINATOR


def test_the_nth_occasion_is_struck_and_so_many_from_then_on():
    plan = Plan()
    fault = plan.add(parse_fault({"do": "drop", "api": "EndTxn", "where": {"topic": "t"}, "nth": 2, "times": 2}))
    here, elsewhere = Named({"topic": "t"}), Named({"topic": "u"})
    struck = [bool(plan.find_firing("request", each, ApiKey.END_TXN)) for each in (here, elsewhere, here, here, here)]
    assert struck == [False, False, True, True, False]
    assert (fault.seen, fault.hits, fault.is_spent) == (4, 2, True)
    assert not plan.find_firing("request", here, ApiKey.PRODUCE)
    assert not plan.watches("request", ApiKey.END_TXN)


def test_a_release_resumes_held_requests_in_order_and_ends_the_fault():
    plan, gone = Plan(), []
    fault = plan.add(parse_fault({"do": "hold", "times": None}))
    plan.hold(fault, lambda: gone.append("first"))
    leave = plan.hold(fault, lambda: gone.append("left"))
    plan.hold(fault, lambda: gone.append("last"))
    leave()
    assert plan.count_held(fault.id) == 2
    assert plan.release(fault.id) == 2
    assert gone == ["first", "last"]
    assert not plan.find_firing("request", Named({}))


def test_clearing_the_faults_releases_held_requests():
    plan, gone = Plan(), []
    fault = plan.add(parse_fault({"do": "hold"}))
    plan.hold(fault, lambda: gone.append(1))
    assert plan.clear() == [fault]
    assert gone == [1]
    assert plan.remove(fault.id) is None
