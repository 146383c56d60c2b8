"""Scripts of groups with members of both protocols: upgrade, classic members among consumers, downgrade (section 11).

The members choose their ids where they may, so that the range assignor gives the same on every broker.
"""

from consumer_group_requests import OWN, Member

from tests.subscriptions import assign, subscribe


class ClassicMember:
    """A member of the classic protocol. `owned` is what it was given last, and reports when it joins again."""

    def __init__(self, requests, member_id="", instance=None, names=None, protocols=("range",), version=3):
        self.requests, self.member_id, self.instance, self.names = requests, member_id, instance, names
        self.protocols, self.version = protocols, version
        self.generation, self.owned = -1, {}

    def rows(self, owned=OWN, names=None, **more):
        names = names or self.names or [self.requests.a]
        owned = self.owned if owned == OWN else owned
        content = subscribe(*names, owned=owned, version=self.version, **more)
        return [(name, content) for name in self.protocols]

    def join(self, owned=OWN, names=None, **more):
        reply = self.requests.join(self.member_id, self.instance, protocols=self.rows(owned, names), **more)
        if not reply.error_code:
            self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    def enter(self, **more):
        """Join with the id that the broker draws."""
        self.member_id = self.join(**more).member_id
        return self.join(**more)

    def sync(self, generation=None, given=(), **more):
        generation = self.generation if generation is None else generation
        more = {"protocol": self.protocols[0], **more}
        self.owned = self.requests.sync(self.member_id, generation, given, self.instance, **more) or self.owned

    def beat(self, generation=None):
        generation = self.generation if generation is None else generation
        self.requests.heartbeat(self.member_id, generation, self.instance)

    def leave(self):
        self.requests.leave((self.member_id, self.instance))

    def commit(self, epoch=None, partition=0, **more):
        epoch = self.generation if epoch is None else epoch
        rows = [(self.requests.a, [(partition, 7, "")])]
        self.requests.commit(rows, self.member_id, epoch, self.instance, **more)


def settle(requests, **fields):
    """Return a member that has all partitions of `a` in a classic group."""
    old = ClassicMember(requests, **fields)
    old.join() if old.instance else old.enter()
    old.sync(given=[(old.member_id, assign(version=old.version, **{requests.a: [0, 1, 2, 3, 4, 5]}))])
    return old


def mix(requests, **fields):
    """Return a member of each protocol that share `a`."""
    old, new = settle(requests, **fields), Member(requests, "m1", assignor="range")
    new.join()
    for _ in range(2):
        old.join()
        old.sync()
    new.beat({})
    return old, new


def finish(requests):
    requests.describe_consumer_group()
    requests.list_types()
    requests.read_records(ordered=False)


# -- upgrade -----------------------------------------------------------------------------------------------------------


def a_consumer_upgrades_a_classic_group(requests):
    old, new = settle(requests), Member(requests, "m1", assignor="range")
    new.beat(epoch=1)
    new.leave()
    new.join()
    requests.describe_consumer_group()
    requests.describe_as_classic()
    old.beat()
    old.sync()
    old.join()
    old.beat()
    old.sync()
    old.beat()
    new.beat({})
    old.join()
    old.beat()
    old.sync()
    old.beat()
    old.beat(1)
    new.beat({})
    new.beat(OWN)
    finish(requests)


def a_consumer_upgrades_a_group_with_the_partitions_that_it_does_not_want(requests):
    old = ClassicMember(requests, names=[requests.a, requests.b, "no-such-topic"], version=1)
    old.enter()
    given = {requests.a: [0, 3], requests.b: [1], "no-such-topic": [0]}
    old.sync(given=[(old.member_id, assign(version=1, **given))])
    new = Member(requests, "m1", requests.b, assignor="range")
    new.join()
    old.join({requests.a: [0, 3], requests.b: [1]})
    old.sync()
    old.join()
    old.sync()
    new.beat({})
    finish(requests)


def upgrades_with_refusals(requests):
    new = Member(requests, "m1", assignor="range")
    good, given = subscribe(requests.a), assign(**{requests.a: [0]})
    for content, assignment, more in (
        (good, given, {"protocol_type": "connect"}),
        (b"sub", given, {}),
        (b"", given, {}),
        (good, b"a", {}),
        (good, assign(user_data=b"u", **{requests.a: [0]}), {}),
        (b"sub", assign(user_data=b"u", **{requests.a: [0]}), {}),
        (subscribe(requests.a, version=0)[:-2], given, {}),
        (b"\xff\xff" + good[2:], given, {}),
        (good, b"\xff\xff" + given[2:], {}),
        (good, given[:-2], {}),
    ):
        member = requests.enter(protocols=[("range", content)], **more)
        more = {"protocol_type": more.get("protocol_type", "consumer")}
        requests.sync(member.member_id, member.generation_id, [(member.member_id, assignment)], **more)
        new.join()
        requests.heartbeat(member.member_id, member.generation_id)
        requests.leave((member.member_id, None))
    requests.list_types()


def upgrades_with_subscriptions_that_work(requests):
    for content, assignment in (
        (subscribe(requests.a, version=7), assign(version=9, **{requests.a: [0]})),
        (subscribe(requests.a, version=0) + b"more", assign(**{requests.a: [0]}) + b"more"),
        (subscribe(requests.a, user_data=b"u"), assign(user_data=b"", **{requests.a: [1, 1]})),
        (subscribe(requests.a, requests.a, rack="r"), b""),
        (subscribe(rack=""), assign()),
    ):
        member = requests.enter(protocols=[("range", content)])
        requests.sync(member.member_id, member.generation_id, [(member.member_id, assignment)])
        new = Member(requests, "m1", assignor="range")
        new.join()
        requests.describe_consumer_group()
        requests.leave((member.member_id, None))
        new.leave()
    requests.read_records(ordered=False)


def an_upgrade_finds_members_that_wait_to_join(requests):
    old = settle(requests, instance="i1")
    other = requests.post_join(instance="i2", protocols=old.rows({}))
    requests.wait_for("PreparingRebalance", 2)
    new = Member(requests, "m1", assignor="range")
    new.join()
    second = requests.read_join(other).member_id
    old.beat()
    requests.describe_consumer_group()
    requests.join(second, "i2", protocols=old.rows({}))
    old.join()
    old.sync()
    old.join()
    old.sync()
    finish(requests)


def an_upgrade_finds_members_that_wait_to_synchronize(requests):
    old = settle(requests, instance="i1")
    other = requests.post_join(instance="i2", protocols=old.rows({}))
    requests.wait_for("PreparingRebalance", 2)
    first = requests.post_join(old.member_id, "i1", protocols=old.rows())
    second = requests.read_join(other)
    requests.read_join(first)
    waiting = requests.post_sync(second.member_id, second.generation_id, instance="i2")
    Member(requests, "m1", assignor="range").join()
    requests.read_sync(waiting)
    finish(requests)


def a_static_consumer_takes_the_place_of_a_classic_member(requests):
    old = settle(requests, instance="i1")
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    old.beat()
    old.sync()
    old.join()
    old.leave()
    new.beat(OWN)
    finish(requests)


# -- classic members in a group of consumers ---------------------------------------------------------------------------


def classic_members_join_a_group_of_consumers(requests):
    requests.is_exact = False  # the ranges follow the order of the ids, of which the broker draws some
    new = Member(requests, "m1", assignor="range")
    new.join()
    good = [("range", subscribe(requests.a))]
    for version in (3, 4, 9):
        requests.join(version=version, protocols=good)
    requests.join("c1", protocol_type="connect", protocols=good)
    requests.join("c1", protocols=[])
    requests.join("c2", protocols=[("roundrobin", subscribe(requests.a))])
    for content in (b"sub", b"", b"\xff\xff" + good[0][1][2:]):
        requests.join("c3", protocols=[("range", content)])
    requests.join("c1", protocols=[("other", b"sub"), *good])
    requests.join("c1", protocols=[*good, ("other", b"sub")])
    requests.join("c1", "i", protocols=good)
    requests.describe_consumer_group()
    finish(requests)


def versions_of_the_messages_of_classic_members(requests):
    new = Member(requests, "m1", assignor="range")
    new.join()
    for version in (0, 1, 2, 3, 8):
        old = ClassicMember(requests, f"c{version}", version=version, names=[requests.b])
        old.join({})
        old.sync()
    requests.describe_consumer_group()
    finish(requests)


def requests_of_classic_members_with_refusals(requests):
    old, _ = mix(requests)
    for protocol_type, protocol in (("consumer", "other"), ("connect", "range")):
        requests.sync(old.member_id, old.generation, protocol_type=protocol_type, protocol=protocol)
    requests.sync(old.member_id, old.generation, version=4)
    for member_id, instance in ((old.member_id, "i"), ("who", None), ("m1", None), ("", None)):
        requests.sync(member_id, old.generation, instance=instance)
        requests.heartbeat(member_id, old.generation, instance)
        requests.join(member_id, instance, protocols=[("other", subscribe(requests.a))])
    for generation in (old.generation - 1, old.generation + 1, -1):
        old.beat(generation)
        old.sync(generation)
    requests.leave(("who", None), (old.member_id, "i"), ("", "i"))
    finish(requests)


def classic_members_commit_and_fetch(requests):
    old, new = mix(requests)
    for version in (7, 8, 9):
        for epoch in (old.generation, old.generation - 1, old.generation + 1, -1, 0):
            old.commit(epoch, version=version)
            old.commit(epoch, 5, version=version)
    requests.commit([(requests.a, [(0, 9, "")])], old.member_id, old.generation, "i")
    new.subscribe(requests.a, requests.b)
    old.join()
    old.commit(old.generation - 1)
    for epoch in (old.generation, old.generation - 1, -1):
        requests.fetch_as(old.member_id, epoch)
    requests.fetch_as("m1", 1)
    producer = requests.producer()
    requests.add_offsets(producer)
    rows = [(requests.a, [(0, 7, "")])]
    for epoch in (old.generation, old.generation - 1, old.generation + 1, 0, -1):
        requests.commit_in_transaction(producer, rows, (epoch, old.member_id, None))
    requests.end(producer, True)
    requests.fetch_as()
    finish(requests)


def a_classic_member_joins_after_its_removal_and_commits(requests):
    old, new = mix(requests)
    requests.leave((old.member_id, None))  # as at the end of its session, of which the client hears nothing
    new.beat({})
    requests.commit([(requests.a, [(0, 9, "")])], "m1", new.epoch)
    old.join()
    old.sync()
    old.commit()
    requests.fetch_as()
    requests.commit([(requests.a, [(0, 5, "")])], "m1", new.epoch)  # the owner, which has not seen the commit
    requests.fetch_as()
    finish(requests)


def a_topic_that_a_classic_member_owns_is_created_again(requests):
    later = f"{requests.group}-later"
    requests.create_later()
    old = ClassicMember(requests, names=[later])
    old.enter()
    old.sync(given=[(old.member_id, assign(version=3, **{later: [0, 1]}))])
    new = Member(requests, "m1", later, assignor="range")
    new.join()
    new.beat({})
    requests.delete_topic(later)
    requests.create_later()
    new.beat({})
    new.beat({})
    requests.commit([(later, [(1, 9, "")])], "m1", new.epoch)
    requests.commit([(later, [(1, 7, "")])], old.member_id, old.generation)
    requests.fetch([(later, [1])])
    old.join()
    old.sync()
    requests.describe_consumer_group()
    requests.read_records(ordered=False)


def a_classic_member_of_two_topics_changes_its_subscription(requests):
    old, new = mix(requests)
    old.join(names=[requests.a, requests.b])
    old.sync()
    old.join(names=[requests.b])
    old.sync()
    old.join(names=[requests.b])
    old.sync()
    old.beat()
    new.beat(OWN)
    new.beat(OWN)
    new.leave(-2)
    finish(requests)


def static_classic_members_come_back(requests):
    old, new = settle(requests, instance="i1"), Member(requests, "m1", assignor="range")
    new.join()
    old.join()
    again = ClassicMember(requests, "", "i1")
    again.join()
    old.beat()
    old.sync()
    old.join()
    again.sync()
    again.join()
    again.sync()
    requests.join("who", "i1", protocols=again.rows())
    requests.join(again.member_id, "i2", protocols=again.rows())
    requests.join("", "i2", protocols=again.rows({}))
    requests.leave(("", "i2"))
    finish(requests)


# -- downgrade ---------------------------------------------------------------------------------------------------------


def the_last_consumer_leaves_a_classic_member(requests):
    old, new = mix(requests)
    old.commit()
    new.leave()
    requests.list_types()
    requests.describe_consumer_group()
    old.beat()
    old.sync()
    old.commit()
    new.beat()
    old.join()
    old.beat()
    old.sync(given=[(old.member_id, assign(**{requests.a: [0, 1, 2, 3, 4, 5]}))])
    old.beat()
    requests.fetch_as()
    new = Member(requests, "m2", assignor="range")
    new.join()
    old.join()
    old.sync()
    old.join()
    new.beat({})
    new.leave()
    old.leave()
    requests.list_types()
    requests.read_records(ordered=False)


def the_last_consumer_leaves_two_static_members(requests):
    old, new = mix(requests, instance="i1", protocols=("range", "roundrobin"))
    other = ClassicMember(requests, "", "i2", protocols=("roundrobin",), names=[requests.b])
    other.join({})
    other.sync()
    new.beat(OWN)
    new.leave()
    requests.list_types()
    old.beat()
    other.beat()
    requests.read_records(ordered=False)


def an_administrator_removes_the_last_consumer(requests):
    old, new = settle(requests), Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    requests.leave(("", "i1"), ("", "i1"), ("who", None))
    requests.list_types()
    old.beat()
    new.beat()
    old.join()
    old.leave()
    requests.read_records(ordered=False)


def an_administrator_removes_everybody(requests):
    old, _ = mix(requests)
    requests.leave((old.member_id, None), ("m1", None))
    requests.list_types()
    requests.describe_consumer_group()


def a_classic_member_takes_the_place_of_the_last_consumer(requests):
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    old = ClassicMember(requests, "", "i1")
    old.join({})
    requests.list_types()
    old.sync()
    old.beat()
    new.beat(OWN)
    old.join()
    old.sync(given=[(old.member_id, assign(**{requests.a: [1]}))])
    old.leave()
    requests.read_records(ordered=False)


def a_classic_member_with_other_topics_takes_the_place_of_the_last_consumer(requests):
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    old = ClassicMember(requests, "", "i1", names=[requests.b])
    old.join({})
    requests.list_types()
    old.sync()
    old.beat()
    old.join({})
    old.leave()
    requests.read_records(ordered=False)


def a_classic_member_takes_the_place_of_one_of_two_consumers(requests):
    new = Member(requests, "m1", instance="i1", assignor="range")
    stays = Member(requests, "m2", assignor="range")
    new.join()
    stays.join()
    old = ClassicMember(requests, "", "i1")
    old.join({})
    old.sync()
    stays.beat({})
    finish(requests)


def a_static_consumer_that_is_away_is_replaced_by_a_classic_member(requests):
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    new.leave(-2)
    old = ClassicMember(requests, "", "i1")
    old.join({})
    old.sync()
    old.beat()
    requests.list_types()
    requests.read_records(ordered=False)


def a_dynamic_consumer_changes_its_protocol_and_back(requests):
    new = Member(requests, "m1", assignor="range")
    new.join()
    old = ClassicMember(requests, "m1")
    old.join({})
    old.sync()
    requests.describe_consumer_group()
    new.join()
    requests.describe_consumer_group()
    old.beat()
    new.beat(OWN)
    finish(requests)


SCRIPTS = [
    a_consumer_upgrades_a_classic_group,
    a_consumer_upgrades_a_group_with_the_partitions_that_it_does_not_want,
    upgrades_with_refusals,
    upgrades_with_subscriptions_that_work,
    an_upgrade_finds_members_that_wait_to_join,
    an_upgrade_finds_members_that_wait_to_synchronize,
    a_static_consumer_takes_the_place_of_a_classic_member,
    classic_members_join_a_group_of_consumers,
    versions_of_the_messages_of_classic_members,
    requests_of_classic_members_with_refusals,
    classic_members_commit_and_fetch,
    a_classic_member_joins_after_its_removal_and_commits,
    a_topic_that_a_classic_member_owns_is_created_again,
    a_classic_member_of_two_topics_changes_its_subscription,
    static_classic_members_come_back,
    the_last_consumer_leaves_a_classic_member,
    the_last_consumer_leaves_two_static_members,
    an_administrator_removes_the_last_consumer,
    an_administrator_removes_everybody,
    a_classic_member_takes_the_place_of_the_last_consumer,
    a_classic_member_with_other_topics_takes_the_place_of_the_last_consumer,
    a_classic_member_takes_the_place_of_one_of_two_consumers,
    a_static_consumer_that_is_away_is_replaced_by_a_classic_member,
    a_dynamic_consumer_changes_its_protocol_and_back,
]
