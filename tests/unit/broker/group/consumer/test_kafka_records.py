"""Records of consumer groups that Apache Kafka 4.3.1 wrote (`tests/conformance/consumer_group_clients.py`)."""

import pytest

from ottla.broker.group.consumer.consumer_group import ConsumerGroupState
from ottla.broker.group.log import CoordinatorRecord
from ottla.broker.group.shard import GroupStore
from ottla.protocol.internal_topics.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupRecordType,
    MemberMetadata,
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
    read_consumer_group_key,
)
from tests.consumer_group_records import read_records


@pytest.fixture(scope="module")
def groups():
    """Return the groups of a replay by id."""
    store = GroupStore()
    for offset, (key_bytes, content) in enumerate(read_records()):
        if (key := read_consumer_group_key(key_bytes)) is not None:
            value = None if content is None else decode_consumer_group_value(key.record_type, content)
            store.apply(CoordinatorRecord(-1, offset, key, value), 0)
    return {group_id: metadata.group for group_id, metadata in store.groups.items()}


def by_client(group):
    """Return the members by client id."""
    return {member.metadata.client_id: member for member in group.members.values()}


def list_epochs(member):
    """Return the assignment epochs of a member's partitions, a tuple for each topic."""
    return sorted(tuple(epochs.values()) for epochs in member.current.assigned.values())


def test_each_record_is_encoded_as_kafka_wrote_it():
    seen = set()
    for key_bytes, content in read_records():
        key = read_consumer_group_key(key_bytes)
        assert encode_consumer_group_key(key) == key_bytes
        seen.add((key.record_type, content is None))
        if content is not None:
            value = decode_consumer_group_value(key.record_type, content)
            assert encode_consumer_group_value(value) == content
    types = set(ConsumerGroupRecordType)
    values = types - {ConsumerGroupRecordType.PARTITION_METADATA}
    tombstones = types - {ConsumerGroupRecordType.REGULAR_EXPRESSION}
    assert seen == {(kind, False) for kind in values} | {(kind, True) for kind in tombstones}


def test_replay_of_kafkas_records_has_its_groups(groups):
    assert {name: (group.epoch, group.assignment_epoch) for name, group in groups.items()} == {
        "auditors": (5, 5),
        "billing": (2, 2),
        "watchers": (2, 2),
        "mixed": (3, 3),
    }
    assert {group.state for group in groups.values()} == {ConsumerGroupState.STABLE}


def test_replay_of_kafkas_records_has_its_members_and_what_they_own(groups):
    auditors = by_client(groups["auditors"])
    assert {name: (member.epoch, list_epochs(member)) for name, member in auditors.items()} == {
        "one": (5, [(2, 2), (5,)]),
        "two": (5, [(3, 3)]),
    }
    assert groups["auditors"].static_members == {"instance-2": auditors["two"].member_id}
    assert auditors["two"].metadata.rack_id == "rack-b"
    for group in groups.values():
        for member_id, member in group.members.items():
            wanted = {topic_id: tuple(epochs) for topic_id, epochs in member.current.assigned.items()}
            assert wanted == group.targets[member_id]
            for topic_id, indexes in wanted.items():
                assert all(group.partition_epoch(topic_id, index) == member.epoch for index in indexes)


def test_replay_of_kafkas_records_has_the_assignor_the_expression_and_the_classic_member(groups):
    assert (groups["billing"].preferred_assignor, groups["auditors"].preferred_assignor) == ("range", None)
    assert by_client(groups["watchers"])["regex"].metadata.topic_regex == "(^pay.*)"
    assert groups["watchers"].regexes["(^pay.*)"].topics == ("payments",)
    mixed = by_client(groups["mixed"])
    assert mixed["new"].metadata.classic is None
    assert mixed["classic"].metadata.classic.session_timeout_ms == 45_000
    assert [name for name, _ in mixed["classic"].metadata.classic.protocols] == ["range", "roundrobin"]


def test_member_without_the_field_of_classic_members_is_one_without_protocols():
    member = MemberMetadata(None, None, "c", "/127.0.0.1", ("orders",), None, 300_000, None, None)
    kind = ConsumerGroupRecordType.MEMBER_METADATA
    without = encode_consumer_group_value(member)[:-4] + b"\0"
    classic = decode_consumer_group_value(kind, without)
    assert classic == member._replace(classic=ClassicMemberMetadata(0, ()))
    assert encode_consumer_group_value(classic) == without
