"""Scripts of raw requests of members that subscribe with regular expressions (section 7 of KIP-848 in Kafka 4.3.1).

The broker resolves an expression after the heartbeat that brings it: a script waits for the record.
"""

import time

from consumer_group_requests import OWN, Member

NEXT_RESOLUTION_S = 10.5  # a group's expressions are resolved every ten seconds at most


def _ab(requests):
    return f"{requests.group}-[ab]"


def _member(requests, name, regex=None, **fixed):
    """Return a member that joins with a regular expression alone."""
    member = Member(requests, name, assignor="range", **fixed)
    member.names = None
    member.fixed["subscribed_topic_regex"] = None
    member.join(subscribed_topic_regex=_ab(requests) if regex is None else regex)
    return member


def _first(requests):
    """Return a member whose expression is resolved, with its partitions."""
    member = _member(requests, "m1")
    requests.await_resolutions(1)
    member.beat({})
    return member


def subscribe_with_a_regular_expression(requests):
    m = _member(requests, "m")
    requests.await_resolutions(1)
    requests.describe_consumer_group()
    requests.list_types()
    m.beat({})
    m.beat(OWN)
    m.beat(OWN, rebalance_timeout_ms=30_000, subscribed_topic_regex=_ab(requests))
    for version in (0, 1):
        requests.describe_consumer_group(version=version)
    requests.commit([(requests.a, [(0, 5, "")])], "m", 2)
    requests.delete_offsets([(requests.a, [0]), (requests.b, [0])])
    m.beat(version=0)
    m.leave()
    requests.delete_offsets([(requests.a, [0])])
    requests.describe_consumer_group()
    requests.read_records()


def expressions_that_are_invalid(requests):
    for regex in ("(", ")", "[", "*", "a**", "\\", "(?=a)", r"(a)\1", "a{2,1}", "a{1001}", "(?P<n>a)(?P<n>b)", r"\Z"):
        _member(requests, "m", regex)
    m = _first(requests)
    m.beat(OWN, subscribed_topic_regex="(")
    m.beat(OWN, subscribed_topic_names=[requests.b], subscribed_topic_regex="(")
    m.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def an_expression_matches_whole_names(requests):
    m = _member(requests, "m", f"^{requests.group}-A$|(?i){requests.group}-B")
    requests.await_resolutions(1)
    m.beat({})
    m.beat({}, subscribed_topic_regex=requests.group)
    m.beat({})
    requests.await_resolutions(2)
    m.beat({})
    requests.describe_consumer_group()
    requests.read_records()


def an_expression_matches_nothing(requests):
    m = _member(requests, "m", "no-such-topic.*")
    requests.await_resolutions(1)
    m.beat({})
    requests.describe_consumer_group()
    m.leave()
    requests.read_records()


def a_member_changes_its_expression(requests):
    m = _first(requests)
    m.beat(subscribed_topic_regex=requests.b)
    m.beat({requests.a: [0]})
    requests.await_resolutions(2)
    m.beat({requests.b: [0, 1]})
    m.beat(OWN)
    m.beat(OWN, subscribed_topic_regex="")
    m.beat({})
    requests.describe_consumer_group()
    m.beat({}, subscribed_topic_regex=_ab(requests))
    requests.await_resolutions(3)
    m.beat({})
    requests.describe_consumer_group()
    requests.read_records()


def members_share_an_expression(requests):
    m1 = _first(requests)
    m2 = _member(requests, "m2")
    for member in (m1, m1, m2, m1, m2):
        member.beat(OWN)
    requests.describe_consumer_group()
    m1.leave()
    m2.beat(OWN)
    m2.leave()
    requests.describe_consumer_group()
    m3 = _member(requests, "m3")
    requests.await_resolutions(2)
    m3.beat({})
    requests.read_records()


def uniform_shares_an_expression(requests):
    requests.is_exact = False
    m1, m2 = (Member(requests, name) for name in ("m1", "m2"))
    m1.join(subscribed_topic_names=None, subscribed_topic_regex=requests.a)
    requests.await_resolutions(1)
    m1.beat({})
    m2.join(subscribed_topic_names=None, subscribed_topic_regex=requests.a)
    for member in (m1, m1, m2, m1, m2):
        member.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def names_and_an_expression(requests):
    m1 = Member(requests, "m1", requests.a, assignor="range")
    m1.join(subscribed_topic_regex=requests.b)
    requests.await_resolutions(1)
    m1.beat(OWN)
    requests.describe_consumer_group()
    m2 = _member(requests, "m2", requests.b)
    for member in (m1, m1, m2, m1, m2):
        member.beat(OWN)
    requests.describe_consumer_group()
    m1.beat(OWN, subscribed_topic_names=[])
    m1.beat({requests.b: [0]})
    m2.beat(OWN, subscribed_topic_names=[requests.a], subscribed_topic_regex="")
    m2.beat({})
    m2.beat(OWN)
    m1.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def a_member_changes_from_names_to_an_expression(requests):
    m = Member(requests, "m", requests.a, requests.b, assignor="range")
    m.join()
    m.beat(OWN, subscribed_topic_names=[], subscribed_topic_regex=_ab(requests))
    requests.await_resolutions(1)
    m.beat({})
    m.beat({})
    requests.describe_consumer_group()
    m.beat(OWN, subscribed_topic_names=[requests.a], subscribed_topic_regex="")
    m.beat({requests.a: [0, 1, 2, 3, 4, 5]})
    requests.describe_consumer_group()
    requests.read_records()


def a_static_member_returns_with_its_expression(requests):
    s1 = _member(requests, "s1", instance="i")
    requests.await_resolutions(1)
    s1.beat({})
    s1.leave(-2)
    s2 = _member(requests, "s2", instance="i")
    s2.beat(OWN)
    s2.leave(-2)
    requests.describe_consumer_group()
    s3 = _member(requests, "s3", requests.b, instance="i")
    s3.beat({})
    requests.await_resolutions(2)
    s3.beat(OWN)
    requests.describe_consumer_group()
    s3.leave(-1)
    requests.describe_consumer_group()
    requests.read_records()


def topics_that_match_come_and_go(requests):
    later = f"{requests.group}-later"
    m1 = _member(requests, "m1", f"{requests.group}-(a|later)")
    requests.await_resolutions(1)
    m1.beat({})
    m2 = _member(requests, "m2", requests.b)
    m2.beat({})
    requests.create_later()
    m1.beat(OWN)
    requests.describe_consumer_group()
    time.sleep(NEXT_RESOLUTION_S)
    m1.beat(OWN)
    requests.await_resolutions(3)
    for member in (m1, m2, m1, m2):
        member.beat(OWN)
    requests.describe_consumer_group()
    requests.delete_topic(later)
    m1.beat(OWN)
    m1.beat({requests.a: [0, 1, 2, 3, 4, 5]})
    requests.describe_consumer_group()
    requests.read_records()


SCRIPTS = [
    subscribe_with_a_regular_expression,
    expressions_that_are_invalid,
    an_expression_matches_whole_names,
    an_expression_matches_nothing,
    a_member_changes_its_expression,
    members_share_an_expression,
    uniform_shares_an_expression,
    names_and_an_expression,
    a_member_changes_from_names_to_an_expression,
    a_static_member_returns_with_its_expression,
    topics_that_match_come_and_go,
]
