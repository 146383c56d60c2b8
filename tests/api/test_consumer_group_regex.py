"""ConsumerGroupHeartbeat 1 with regular expressions: topics that match are found after the heartbeat."""

import logging

import pytest

from lab.metadata import create_topic
from ottla.broker import pattern
from ottla.broker.cluster.image import TopicImage
from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.broker.group.consumer import coordinator, regular_expressions
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.consumer_groups import GroupBroker, Member

pytestmark = pytest.mark.skipif(not pattern.AVAILABLE, reason="google-re2 is not installed")

RESOLVED_AGAIN_MS = 10_001.0
REFRESHED_MS = 600_001.0


class RegexMember(Member):
    """A member that subscribes with a regular expression alone."""

    def join(self, regex="t.*", **fields):
        fields = {"rebalance_timeout_ms": 5_000, "subscribed_topic_regex": regex, **fields}
        return self.read(self.beat(0, [], **fields))

    def read(self, reply):
        """Return (error, epoch, partitions by topic; None: unchanged)."""
        topics = self.broker.assembly.broker.cluster.topics_by_id
        rows = None if reply.assignment is None else reply.assignment.topic_partitions
        owned = rows and {topics[row.topic_id.bytes].name: sorted(row.partitions) for row in rows}
        return E(reply.error_code), reply.member_epoch, {} if rows == [] else owned


@pytest.fixture
def broker():
    broker = GroupBroker(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)
    broker.create_topic("t2", 1)
    broker.create_topic("other", 1)
    return broker


def next_reply(member, epoch, *owned, **fields):
    member.broker.advance(100.0)
    return member.read(member.beat(epoch, list(owned), **fields))


def describe(broker):
    (group,) = broker.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False).groups
    return group


def test_member_gets_the_topics_that_match_with_a_later_heartbeat(broker):
    m = RegexMember(broker, "m")
    assert m.join() == (E.NONE, 1, {})
    assert next_reply(m, 1) == (E.NONE, 2, {"t": [0, 1, 2, 3], "t2": [0]})
    group = describe(broker)
    assert (group.group_state, group.group_epoch) == ("Stable", 2)
    (member,) = group.members
    assert (member.subscribed_topic_regex, [*member.subscribed_topic_names]) == ("t.*", [])
    assert {topic.topic_name for topic in member.assignment.topic_partitions} == {"t", "t2"}


def test_whole_name_must_match(broker):
    m = RegexMember(broker, "m")
    m.join("t")
    assert next_reply(m, 1) == (E.NONE, 2, {"t": [0, 1, 2, 3]})


def test_heartbeat_is_answered_before_its_expression_is_resolved(broker):
    fields = {"instance_id": None, "rack_id": None, "rebalance_timeout_ms": 5_000, "topic_partitions": []}
    fields |= {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*", "server_assignor": None}
    client = broker.client()
    client.post(K.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=0, **fields)
    for number in range(20_000):
        broker.assembly.broker.cluster.image.add_topic(TopicImage(f"other-{number}", number.to_bytes(16, "big")))
    while not client.replies:
        broker.schedule.run_next()
    group = broker.assembly.broker.groups.describe("g")[0].group
    assert (group.is_resolving, group.regexes) == (True, {})
    broker.advance(1_000.0)
    assert (group.is_resolving, group.regexes["t.*"].topics) == (False, ("t", "t2"))


@pytest.mark.parametrize("regex", ["(", "a{1001}", "x" * 32_767, "(.?){1000}" * 20, "(?:[^x]{1000}){1000}"])
def test_expression_that_is_invalid_or_too_large_is_refused(broker, regex):
    m = RegexMember(broker, "m")
    assert m.join(regex)[0] is E.INVALID_REGULAR_EXPRESSION
    assert describe(broker).error_code == E.GROUP_ID_NOT_FOUND
    m.join()
    next_reply(m, 1)
    assert next_reply(m, 2, subscribed_topic_regex=regex)[0] is E.INVALID_REGULAR_EXPRESSION
    assert next_reply(m, 2) == (E.NONE, 2, None)


def test_expressions_of_a_group_are_limited():
    broker = GroupBroker(group_member_max_metadata_bytes=100)
    assert RegexMember(broker, "m1").join("t" * 60)[0] is E.NONE
    assert RegexMember(broker, "m2").join("t" * 60)[0] is E.NONE
    assert RegexMember(broker, "m3").join("u" * 41)[0] is E.INVALID_REGULAR_EXPRESSION
    assert RegexMember(broker, "m3").join("u" * 40)[0] is E.NONE


def test_expression_that_the_group_has_resolved_counts_at_once(broker):
    m1, m2 = RegexMember(broker, "m1"), RegexMember(broker, "m2")
    m1.join()
    next_reply(m1, 1)
    assert m2.join()[:2] == (E.NONE, 3)
    assert {len(member.target_assignment.topic_partitions) for member in describe(broker).members} <= {1, 2}
    targets = [
        (topic.topic_name, index)
        for member in describe(broker).members
        for topic in member.target_assignment.topic_partitions
        for index in topic.partitions
    ]
    assert sorted(targets) == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("t2", 0)]


def test_member_that_drops_its_expression_gives_its_topics_up(broker):
    m = RegexMember(broker, "m")
    m.join()
    next_reply(m, 1)
    assert m.read(m.beat(2, subscribed_topic_regex="")) == (E.NONE, 2, {})
    assert next_reply(m, 2) == (E.NONE, 3, None)


def test_names_and_an_expression_are_united(broker):
    m = RegexMember(broker, "m")
    assert m.join("t2", subscribed_topic_names=["t"]) == (E.NONE, 2, {"t": [0, 1, 2, 3]})
    assert next_reply(m, 2) == (E.NONE, 3, {"t": [0, 1, 2, 3], "t2": [0]})


def test_new_topic_is_found_ten_seconds_after_the_last_resolution(broker):
    m = RegexMember(broker, "m")
    m.join()
    assert next_reply(m, 1)[1] == 2
    create_topic(broker.assembly.broker.cluster, "t3", 1)
    for _ in range(2):
        assert next_reply(m, 2) == (E.NONE, 2, None)
    broker.advance(RESOLVED_AGAIN_MS)
    assert next_reply(m, 2) == (E.NONE, 2, None)
    assert next_reply(m, 2) == (E.NONE, 3, {"t": [0, 1, 2, 3], "t2": [0], "t3": [0]})


def count_resolutions(broker):
    group = broker.assembly.broker.groups.describe("g")[0].group
    return {regex.timestamp_ms for regex in group.regexes.values()}


def test_expressions_stay_resolved_while_no_topic_is_created_and_the_interval_lasts(broker):
    m = RegexMember(broker, "m")
    m.join()
    next_reply(m, 1)
    first = count_resolutions(broker)
    broker.advance(RESOLVED_AGAIN_MS)
    next_reply(m, 2)
    next_reply(m, 2)
    assert count_resolutions(broker) == first
    for _ in range(30):
        broker.advance(REFRESHED_MS / 30)
        next_reply(m, 2)
    next_reply(m, 2)
    assert count_resolutions(broker) != first
    assert next_reply(m, 2) == (E.NONE, 2, None)


def test_resolved_expression_is_there_after_a_restart_and_gone_with_its_last_member(broker):
    m = RegexMember(broker, "m")
    m.join()
    next_reply(m, 1)
    broker.restart()
    group = broker.assembly.broker.groups.describe("g")[0].group
    assert group.regexes["t.*"].topics == ("t", "t2")
    assert group.is_subscribed("t2")
    assert not group.is_subscribed("other")
    assert next_reply(m, 2) == (E.NONE, 2, None)
    m.beat(-1)
    assert (group.regexes, group.is_subscribed("t2")) == ({}, False)


def test_offsets_of_a_topic_that_matches_are_not_deleted(broker):
    m = RegexMember(broker, "m")
    m.join()
    next_reply(m, 1)
    rows = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t2", "other")]
    reply = broker.call(K.OFFSET_DELETE, 0, group_id="g", topics=rows)
    errors = {topic.name: topic.partitions[0].error_code for topic in reply.topics}
    assert errors == {"t2": E.GROUP_SUBSCRIBED_TO_TOPIC, "other": E.NONE}


def test_expression_of_version_0_is_left_as_it_is(broker):
    m = RegexMember(broker, "m")
    m.join()
    next_reply(m, 1)
    assert m.read(m.beat(2, version=0)) == (E.NONE, 2, None)
    assert describe(broker).members[0].subscribed_topic_regex == "t.*"


def test_more_topics_than_a_group_may_have_leave_it_as_it_is(caplog):
    broker = GroupBroker(group_consumer_assignment_interval_ms=0, group_member_max_metadata_bytes=500)
    for number in range(3):
        create_topic(broker.assembly.broker.cluster, f"{'n' * 200}{number}", 1)
    m = RegexMember(broker, "m")
    m.join("n.*")
    with caplog.at_level(logging.WARNING, "ottla"):
        for _ in range(3):
            assert next_reply(m, 1) == (E.NONE, 1, None)
    (line,) = caplog.messages
    assert line.startswith("Group g: the topics of its regular expressions stay as they are, because the topics")
    assert "group.member.max.metadata.bytes" in line
    assert next_reply(m, 1, subscribed_topic_regex="t") == (E.NONE, 1, None)
    broker.advance(RESOLVED_AGAIN_MS)
    next_reply(m, 1)
    assert next_reply(m, 1) == (E.NONE, 2, {"t": [0, 1, 2, 3]})


def test_missing_package_is_named_once_in_the_log_and_names_still_work(broker, monkeypatch, caplog):
    monkeypatch.setattr(regular_expressions, "AVAILABLE", False)
    monkeypatch.setattr(coordinator, "AVAILABLE", False)
    m = RegexMember(broker, "m")
    with caplog.at_level(logging.WARNING, "ottla"):
        for _ in range(3):
            reply = m.beat(0, [], rebalance_timeout_ms=5_000, subscribed_topic_regex="t.*")
    assert reply.error_code == E.INVALID_REGULAR_EXPRESSION
    assert "google-re2" in reply.error_message
    (line,) = caplog.messages
    assert line.startswith("Group g: member m from /")
    assert "google-re2" in line
    assert Member(broker, "m").join().member_epoch == 2


def test_only_topics_that_the_client_may_describe_match():
    broker = GroupBroker(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    broker.create_topic("t2", 1)
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation")
    rows = [
        (ResourceType.GROUP, "g", PatternType.LITERAL, "User:a", "*", AclOperation.READ),
        (ResourceType.TOPIC, "t2", PatternType.LITERAL, "User:a", "*", AclOperation.DESCRIBE),
    ]
    creations = [dict(zip(names, row, strict=True)) | {"permission_type": PermissionType.ALLOW} for row in rows]
    broker.call(K.CREATE_ACLS, 3, creations=creations)
    client = broker.client("a", "User:a")
    fields = {"instance_id": None, "rack_id": None, "rebalance_timeout_ms": 5_000, "topic_partitions": []}
    fields |= {"subscribed_topic_names": None, "subscribed_topic_regex": ".*", "server_assignor": None}
    client.send(K.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=0, **fields)
    broker.advance(100.0)
    assert [reply.error_code for reply in client.replies] == [E.NONE]
    assert broker.assembly.broker.groups.describe("g")[0].group.regexes[".*"].topics == ("t2",)
