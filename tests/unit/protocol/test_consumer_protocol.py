"""Subscriptions and assignments of consumers of the classic protocol: golden bytes, real clients, malformed bytes."""

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.consumer_protocol import (
    INDEX_US,
    Assignment,
    Subscription,
    encode_assignment,
    read_assignment,
    read_first_partitions,
    read_subscription,
    read_version,
)
from ottla.protocol.steps import ENTRY_US, to_the_end
from tests.subscriptions import assign, subscribe

OWNED = {"a": [0, 2], "b": [1]}
# Versions 0 to 3 of a subscription to a and b that owns a-0, a-2 and b-1, in rack r.
GOLDEN = [
    "0000 00000002 0001 61 0001 62 ffffffff",
    "0001 00000002 0001 61 0001 62 ffffffff 00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001",
    "0002 00000002 0001 61 0001 62 ffffffff 00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001"
    "ffffffff",
    "0003 00000002 0001 61 0001 62 ffffffff 00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001"
    "ffffffff 0001 72",
]
ASSIGNMENT = "00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 ffffffff"


@pytest.mark.parametrize("version", range(4))
def test_subscription_is_read_in_each_version(version):
    content = bytes.fromhex(GOLDEN[version])
    assert subscribe("a", "b", owned=OWNED, rack="r", version=version) == content
    expected = Subscription(("a", "b"), OWNED if version else {}, "r" if version == 3 else None)
    assert to_the_end(read_subscription(content)) == expected
    assert to_the_end(read_subscription(content + b"more")) == expected


def test_later_version_is_read_as_the_latest():
    content = bytes.fromhex("0009" + GOLDEN[3][4:])
    assert read_version(content) == 3
    assert to_the_end(read_subscription(content)).rack_id == "r"


@pytest.mark.parametrize("version", range(4))
def test_assignment_is_written_and_read_in_each_version(version):
    content = to_the_end(encode_assignment([("a", (0, 2)), ("b", (1,))], version))
    assert content == bytes.fromhex(f"000{version}" + ASSIGNMENT)
    assert to_the_end(read_assignment(content)) == Assignment(OWNED, False)


@pytest.mark.parametrize(("user_data", "has_some"), [(b"", False), (b"u", True)])
def test_data_of_an_assignor_is_noticed(user_data, has_some):
    assert to_the_end(read_assignment(assign(user_data=user_data, a=[0]))).has_user_data is has_some


def test_long_arrays_are_read_and_written_in_steps():
    topics = {f"topic-{number}": list(range(2_500)) for number in range(20)}
    steps = encode_assignment([(name, tuple(rows)) for name, rows in topics.items()], 3)
    costs = []
    try:
        while True:
            costs.append(next(steps))
    except StopIteration as done:
        content = done.value
    assert max(costs) <= 100.0 < sum(costs)
    assert to_the_end(read_assignment(content)).partitions == topics


@pytest.mark.parametrize(
    ("most", "found"),
    [
        (0, {}),
        (1, {"a": [0]}),
        (2, {"a": [0, 2]}),
        (3, {"a": [0, 2], "b": [1]}),
        (9, {"a": [0, 2], "b": [1], "c": [], "d": [5]}),
    ],
)
def test_first_partitions_are_read_up_to_a_bound(most, found):
    content = assign(a=[0, 2], b=[1], c=[], d=[5])
    assert to_the_end(read_first_partitions(content, most)) == found


def test_bytes_after_the_first_partitions_are_not_read():
    content = assign(a=[0, 2], b=[1])
    assert to_the_end(read_first_partitions(content[:-4], 9)) == OWNED  # without the data of the assignor
    head = content.removesuffix(bytes.fromhex("00000002 0001 62 00000001 00000001 ffffffff"))
    assert to_the_end(read_first_partitions(head + b"\xff" * 11, 1)) == {"a": [0]}
    with pytest.raises(ProtocolError):
        to_the_end(read_first_partitions(head + b"\xff" * 11, 3))


def test_cost_of_the_first_partitions_is_that_of_the_bound():
    topics = {f"topic-{number}": list(range(2_500)) for number in range(100)}
    content = to_the_end(encode_assignment([(name, tuple(rows)) for name, rows in topics.items()], 3))
    assert sum(read_first_partitions(content, 500)) == ENTRY_US + 500 * INDEX_US
    empty = to_the_end(encode_assignment([(name, ()) for name in topics], 3))
    assert sum(read_first_partitions(empty, 50)) == 50 * ENTRY_US


@pytest.mark.parametrize("version", range(4))
def test_another_library_reads_and_writes_the_same(version):
    theirs = ConsumerProtocolAssignment.decode(assign(version, a=[0, 2], b=[1]))
    assert [(row.topic, list(row.partitions)) for row in theirs.assigned_partitions] == [("a", [0, 2]), ("b", [1])]
    theirs = ConsumerProtocolSubscription(version, topics=["a", "b"], user_data=b"u")
    assert to_the_end(read_subscription(bytes(theirs.encode()))).topics == ("a", "b")


@pytest.mark.parametrize("content", [bytes.fromhex(row) for row in GOLDEN] + [b"", b"\xff\xff", b"sub"])
def test_every_shorter_subscription_is_malformed(content):
    for end in range(len(content)):
        with pytest.raises(ProtocolError):
            to_the_end(read_subscription(content[:end]))


@pytest.mark.parametrize(
    "content",
    [
        "ffff 00000000 ffffffff",  # a negative version
        "0003 ffffffff ffffffff",  # null topics
        "0003 7fffffff",  # more topics than bytes
        "0003 00000001 0001 ff",  # no UTF-8
        "0003 00000000 00000005 01",  # user data cut short
        "0001 00000000 ffffffff 00000001 0001 61 80000000",  # a negative number of partitions
        "0001 00000000 ffffffff 00000001 0001 61 7fffffff 00000000",
    ],
)
def test_hostile_subscription_is_malformed(content):
    with pytest.raises(ProtocolError):
        to_the_end(read_subscription(bytes.fromhex(content)))
