"""Scripts of raw requests to groups of the consumer protocol: heartbeats, assignments, and the end of members.

Numbers are the sections of KIP-848 in Kafka 4.3.1: checks (3), epochs (4), assignors (5), reconciliation (6), static
members (8), topics (9), leaving (10).
"""

from consumer_group_requests import OWN, Member

LONG_ID = "m" * 40


# -- 3: checks before the group is looked at ---------------------------------------------------------------------------


def heartbeats_that_are_invalid(requests):
    m = Member(requests, "m")
    for fields in (
        {"member_id": ""},
        {"member_id": "  "},
        {"member_id": "", "epoch": 3},
        {"group_id": ""},
        {"group_id": " \t"},
        {"instance_id": ""},
        {"instance_id": " "},
        {"rack_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"member_epoch": -(2**31)},
        {"server_assignor": "x"},
        {"server_assignor": ""},
        {"server_assignor": "Range"},
        {"member_epoch": -1},
        {"member_epoch": -2, "instance_id": "i"},
        {"member_epoch": 5},
        {"member_epoch": 5, "instance_id": "i"},
        {"member_id": "", "group_id": ""},
        {"group_id": "", "instance_id": ""},
        {"instance_id": "", "rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": -1, "server_assignor": "x"},
        {"member_epoch": 5, "server_assignor": "x"},
        {"member_epoch": -1, "server_assignor": "x"},
        {"member_epoch": -1, "rack_id": ""},
    ):
        fields = dict(fields)
        if "epoch" in fields:
            fields["member_epoch"] = fields.pop("epoch")
        requests.tell("with", str(fields))
        m.join(**fields)
    m.beat({requests.a: [0]}, 0, rebalance_timeout_ms=1, subscribed_topic_names=[requests.a])
    requests.describe_consumer_group()
    requests.list_types()


def heartbeats_of_version_0(requests):
    m = Member(requests, "")
    m.join(version=0)
    m.beat(version=0)
    m.beat(OWN, version=0)
    m.beat(version=1)
    for epoch in (1, -1):
        Member(requests, "").beat(None, epoch, version=0)
    Member(requests, "").join(version=0, subscribed_topic_names=None)
    Member(requests, "own id").join(version=0)
    m.leave(version=0)
    requests.describe_consumer_group(version=0)
    requests.read_records()


# -- 4: epochs ---------------------------------------------------------------------------------------------------------


def epochs_of_a_member(requests):
    m = Member(requests, LONG_ID)
    m.join()
    m.beat()
    m.beat(OWN)
    m.beat({})
    m.beat(epoch=1)
    m.beat(epoch=3)
    m.beat(epoch=2**31 - 1)
    Member(requests, "zz").beat(epoch=2)
    m.join()
    m.beat({}, 0, rebalance_timeout_ms=1)
    m.join()
    m.beat(OWN, subscribed_topic_names=m.names, rebalance_timeout_ms=30_000)
    m.beat(OWN, subscribed_topic_names=m.names)
    m.beat({requests.a: [99]})
    m.beat({requests.b: [0]})
    m.leave()
    m.leave()
    m.leave(-2)
    m.beat(epoch=2)
    m.join()
    requests.describe_consumer_group()
    requests.read_records()


def an_answer_is_lost(requests):
    m = Member(requests, "m", assignor="range")
    m.join()
    m.subscribe(requests.a, requests.b)
    m.beat(OWN)
    m.beat(OWN, epoch=2)
    m.beat(epoch=2)
    m.beat({}, epoch=2)
    m.beat({requests.a: [0, 1]}, epoch=2)
    m.beat({requests.a: [6]}, epoch=2)
    m.beat({requests.a: [0], requests.b: [7]}, epoch=2)
    m.beat({requests.a: [0]}, epoch=1)
    m.beat(OWN, epoch=2, subscribed_topic_names=[requests.b])
    m.beat(epoch=3)
    m.beat({requests.b: [0, 1]}, epoch=3)
    m.beat({requests.b: [0, 1]}, epoch=2)
    requests.read_records()


def a_member_changes_what_it_says_of_itself(requests):
    m = Member(requests, "m")
    m.join()
    m.beat(rack_id="r")
    m.beat(server_assignor="range")
    m.beat(server_assignor="uniform")
    m.beat(rebalance_timeout_ms=7)
    m.beat(instance_id="i")
    requests.describe_consumer_group()
    m.beat(subscribed_topic_names=[requests.a, requests.a])
    m.beat(subscribed_topic_names=[])
    m.beat({})
    m.subscribe(requests.b)
    m.subscribe(requests.a, "no-such-topic")
    m.beat({})
    m.beat(subscribed_topic_regex="")
    requests.describe_consumer_group()
    requests.read_records()


# -- 5 and 6: assignors and reconciliation -----------------------------------------------------------------------------


def range_with_one_two_and_three_members(requests):
    both = (requests.a, requests.b)
    m1, m2, m3 = (Member(requests, name, *both, assignor="range") for name in ("m1", "m2", "m3"))
    m1.join()
    m2.join()
    m1.beat()
    requests.describe_consumer_group()
    m1.beat(OWN)
    m2.beat({})
    m3.join()
    requests.describe_consumer_group()
    requests.list_types()
    for member in (m1, m2, m3):
        member.beat(OWN)
    for member in (m1, m2, m3):
        member.beat(OWN)
    for member in (m1, m2, m3):
        member.beat(OWN)
    requests.describe_consumer_group()
    requests.list_types()
    m2.leave()
    requests.describe_consumer_group()
    for member in (m1, m3, m1, m3):
        member.beat(OWN)
    requests.describe_consumer_group()
    m3.leave()
    m1.beat(OWN)
    m1.leave()
    requests.describe_consumer_group()
    requests.read_records()


def range_puts_static_members_first(requests):
    later = Member(requests, "a-dynamic", assignor="range")
    second = Member(requests, "z", instance="2", assignor="range")
    first = Member(requests, "y", instance="10", assignor="range")
    for member in (later, second, first):
        member.join()
    for member in (later, second, first) * 3:
        member.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def range_of_different_subscriptions(requests):
    m1 = Member(requests, "m1", requests.a, assignor="range")
    m2 = Member(requests, "m2", requests.a, requests.b, assignor="range")
    m3 = Member(requests, "m3", requests.b, "no-such-topic", assignor="range")
    for member in (m1, m2, m3):
        member.join()
    for member in (m1, m2, m3) * 3:
        member.beat(OWN)
    requests.describe_consumer_group()
    m2.subscribe(requests.b)
    m2.beat({requests.b: m2.owned.get(requests.b, [])})
    for member in (m1, m2, m3) * 2:
        member.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def uniform_with_one_two_and_three_members(requests):
    requests.is_exact = False
    m1, m2, m3 = (Member(requests, name) for name in ("m1", "m2", "m3"))
    m1.join()
    m2.join()
    m1.beat()
    m1.beat(OWN)
    m2.beat(OWN)
    m3.join()
    for member in (m1, m2, m3) * 3:
        member.beat(OWN)
    requests.describe_consumer_group()
    m1.leave()
    for member in (m2, m3) * 2:
        member.beat(OWN)
    requests.describe_consumer_group()
    requests.list_types()
    requests.read_records()


def uniform_of_different_subscriptions(requests):
    requests.is_exact = False
    m1 = Member(requests, "m1", requests.a)
    m2 = Member(requests, "m2", requests.a, requests.b)
    for member in (m1, m2, m1, m2, m1, m2):
        member.join() if not member.epoch else member.beat(OWN)
    requests.describe_consumer_group()
    m1.leave()
    m2.beat(OWN)
    m2.subscribe(requests.b)
    m2.beat({requests.b: [0, 1]})
    requests.describe_consumer_group()
    requests.read_records()


def most_members_choose_the_assignor(requests):
    m1 = Member(requests, "m1", assignor="uniform")
    m2, m3 = (Member(requests, name, assignor="range") for name in ("m2", "m3"))
    m1.join()
    requests.describe_consumer_group()
    m2.join()
    m3.join()
    requests.describe_consumer_group()
    for member in (m1, m2, m3) * 3:
        member.beat(OWN)
    requests.describe_consumer_group()


def partitions_are_given_up_late(requests):
    m1, m2 = (Member(requests, name, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat()
    m1.beat()
    m2.beat({})
    m2.beat({}, epoch=2)
    m1.beat({requests.a: [0, 1, 2, 3]})
    m1.beat({requests.a: [0, 1, 2, 3, 4, 5]})
    requests.describe_consumer_group()
    m1.join()
    m1.beat({requests.a: [0, 1]})
    m2.beat({})
    m2.beat(OWN)
    m1.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def a_group_changes_while_partitions_are_given_up(requests):
    m1, m2, m3 = (Member(requests, name, assignor="range") for name in ("m1", "m2", "m3"))
    m1.join()
    m2.join()
    m1.beat()
    m3.join()
    m1.beat()
    m1.beat(OWN)
    m1.beat(OWN)
    m2.beat(OWN)
    m3.beat(OWN)
    m2.leave()
    m1.beat(OWN)
    m3.beat(OWN)
    m1.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def subscriptions_shrink_while_partitions_are_given_up(requests):
    both = (requests.a, requests.b)
    m1, m2 = (Member(requests, name, *both, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat()
    m1.subscribe(requests.a)
    m1.beat({requests.a: [0, 1, 2], requests.b: [0]})
    m1.beat({requests.a: [0, 1, 2]})
    m2.beat({})
    m1.beat(OWN)
    m2.beat(OWN)
    m1.subscribe(requests.a, requests.b)
    m1.beat(OWN)
    m2.beat(OWN)
    m2.beat(OWN)
    m1.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def a_member_joins_without_topics_while_an_assignment_is_due(requests):
    m1, m2, m3 = (Member(requests, name, assignor="range") for name in ("m1", "m2", "m3"))
    m1.join()
    m2.join()
    m2.leave()
    m3.join(subscribed_topic_names=[])
    m1.beat()
    requests.describe_consumer_group()


def members_join_while_an_assignment_is_due(requests):
    m1, m2, m3 = (Member(requests, name, assignor="range") for name in ("m1", "m2", "m3"))
    m1.join()
    m2.join(subscribed_topic_names=[])
    m1.leave()
    m3.join()
    m1.join()
    m3.leave()
    m2.subscribe(requests.a)
    m1.beat()
    requests.describe_consumer_group()
    requests.read_records()


def assignments_wait_for_their_interval(requests):
    requests.configure(consumer_assignment_interval_ms="15000", consumer_heartbeat_interval_ms="6000")
    m1, m2 = (Member(requests, name, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat(OWN)
    requests.describe_consumer_group()
    requests.list_types()
    m1.subscribe(requests.b)
    m1.beat({})
    m2.leave()
    m1.beat({})
    requests.describe_consumer_group()
    requests.read_records()


# -- 8: static members -------------------------------------------------------------------------------------------------


def a_static_member_returns(requests):
    s1 = Member(requests, "s1", instance="i", assignor="range")
    s2 = Member(requests, "s2", instance="i", assignor="range")
    other = Member(requests, "m", assignor="range")
    s1.join()
    other.join()
    s1.beat()
    s1.beat(OWN)
    other.beat({})
    s1.join()
    s2.join()
    s2.beat(epoch=2)
    s2.leave()
    s2.leave(-2)
    Member(requests, "s3", instance="j").beat(epoch=2)
    Member(requests, "s3", instance="j").leave()
    Member(requests, "s3", instance="j").leave(-2)
    s1.leave(-2)
    requests.describe_consumer_group()
    s1.beat(epoch=3)
    other.beat(OWN)
    s2.join()
    requests.describe_consumer_group()
    s1.beat(epoch=3)
    s1.join()
    s1.leave()
    s2.beat(OWN)
    s2.beat(epoch=0)
    s2.leave(-2)
    s2.leave(-2)
    s2.join()
    s2.leave(-1)
    s2.join()
    other.beat(OWN)
    requests.describe_consumer_group()
    requests.read_records()


def a_static_member_returns_with_another_subscription(requests):
    s1 = Member(requests, "s1", instance="i", assignor="range")
    s1.join()
    s1.leave(-2)
    s2 = Member(requests, "s2", requests.b, instance="i", rack="r")
    s2.join()
    s2.beat({requests.b: [0, 1]})
    s2.beat({requests.b: [0, 1]})
    requests.describe_consumer_group()
    s2.leave(-2)
    s2.leave()
    requests.describe_consumer_group()
    requests.read_records()


def a_member_gives_its_instance_id_later(requests):
    m = Member(requests, "m")
    m.join()
    m.beat(instance_id="i")
    m.join(instance_id="i")
    m.beat(instance_id="i")
    m.join(instance_id="j")
    m.beat(instance_id="j")
    m.beat()
    m.leave()
    requests.describe_consumer_group()


# -- 9: topics ---------------------------------------------------------------------------------------------------------


def topics_grow_and_appear(requests):
    m = Member(requests, "m", requests.a, f"{requests.group}-later", assignor="range")
    m.join()
    requests.add_partitions(requests.a, 8)
    m.beat()
    m.beat(OWN)
    requests.create_later()
    m.beat(OWN)
    requests.describe_consumer_group()
    requests.add_partitions(requests.b, 4)
    m.beat(OWN)
    requests.read_records()


def delete_a_topic(requests):
    m1, m2 = (Member(requests, name, requests.a, requests.b, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat()
    m1.beat(OWN)
    m2.beat({})
    requests.delete_topic(requests.a)
    requests.describe_consumer_group()
    m1.beat()
    m1.beat(OWN)
    m1.beat({requests.b: [0]})
    m2.beat(OWN)
    m2.beat({requests.b: [1]})
    requests.describe_consumer_group()
    requests.read_records()


def the_only_topic_is_deleted_and_made_anew(requests):
    later = f"{requests.group}-later"
    requests.create_later()
    m = Member(requests, "m", later, assignor="range")
    m.join()
    requests.delete_topic(later)
    m.beat(OWN)
    requests.create_later()
    m.beat(OWN)
    m.beat({})
    requests.describe_consumer_group()


SCRIPTS = [
    heartbeats_that_are_invalid,
    heartbeats_of_version_0,
    epochs_of_a_member,
    an_answer_is_lost,
    a_member_changes_what_it_says_of_itself,
    range_with_one_two_and_three_members,
    range_puts_static_members_first,
    range_of_different_subscriptions,
    uniform_with_one_two_and_three_members,
    uniform_of_different_subscriptions,
    most_members_choose_the_assignor,
    partitions_are_given_up_late,
    a_group_changes_while_partitions_are_given_up,
    subscriptions_shrink_while_partitions_are_given_up,
    a_member_joins_without_topics_while_an_assignment_is_due,
    members_join_while_an_assignment_is_due,
    assignments_wait_for_their_interval,
    a_static_member_returns,
    a_static_member_returns_with_another_subscription,
    a_member_gives_its_instance_id_later,
    topics_grow_and_appear,
    delete_a_topic,
    the_only_topic_is_deleted_and_made_anew,
]
