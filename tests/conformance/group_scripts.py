"""Scripts of group requests, in right and in wrong order, for both brokers. Each function is one script."""

LONG = "x" * 4096


def nobody_there(requests):
    for version in (0, 4):
        requests.heartbeat("who", 1, version=version)
    for version in (0, 5):
        requests.sync("who", 1, version=version)
    for version in (0, 2, 3, 5):
        requests.leave(("who", None), version=version)
    requests.leave()
    for version in (0, 4, 9):
        requests.join("who", version=version)
    for version in (2, 8, 9):
        requests.commit(member_id="who", generation=3, version=version)
    for version in (0, 3, 5):
        requests.describe(version=version)
    requests.describe(operations=True)
    requests.list()
    for version in (1, 2, 5, 7, 8):
        requests.fetch(version=version)
    for version in (2, 7, 8):
        requests.fetch(None, version=version)


def empty_group_id(requests):
    requests.join(group="")
    requests.sync("who", 1, group="")
    requests.heartbeat("who", 1, group="")
    for version in (0, 5):
        requests.leave(("who", None), group="", version=version)
    requests.describe("")
    requests.fetch(group="", version=7)
    requests.commit(group="")
    requests.fetch(group="", version=8)
    producer = requests.producer()
    requests.commit_in_transaction(producer, group="")


def bad_joins(requests):
    requests.join(session_ms=5_999)
    requests.join(session_ms=1_800_001)
    first = requests.enter()
    requests.join(protocol_type="connect")
    requests.join(protocols=[("sticky", b"")])
    requests.join(protocols=[])
    requests.join("who", protocols=[("sticky", b"")])
    requests.join("who")
    requests.join("who", "instance")
    requests.join(first.member_id, "instance")
    requests.join(first.member_id, protocol_type="connect")
    asked = requests.join()
    requests.join(asked.member_id, "instance")
    requests.heartbeat(asked.member_id, 1)
    requests.commit(member_id=asked.member_id, generation=1)
    requests.sync(asked.member_id, 1)


def joins_below_v4_need_no_id(requests):
    first = requests.join(version=0)
    requests.sync(first.member_id, 1, [(first.member_id, b"A")], version=0)
    requests.describe()
    waiting = requests.post_join(version=3)
    requests.wait_for("PreparingRebalance", 2)
    requests.heartbeat(first.member_id, 1, version=0)
    again = requests.join(first.member_id, version=1)
    requests.read_join(waiting)
    requests.leave((again.member_id, None), version=0)


def life_of_a_dynamic_group(requests):
    first = requests.enter(protocols=[("range", b"r"), ("sticky", b"s")])
    member = first.member_id
    requests.describe()
    requests.list()
    requests.heartbeat(member, 1)
    requests.commit(member_id=member, generation=1)
    requests.sync(member, 0)
    requests.sync(member, 2)
    requests.sync("who", 1)
    requests.sync(member, 1, protocol="sticky")
    requests.sync(member, 1, protocol=None)
    requests.sync(member, 1, protocol_type=None)
    requests.sync(member, 1, protocol_type="connect")
    requests.sync(member, 1, instance="instance")
    requests.sync(member, 1, [(member, b"A"), ("who", b"B")])
    requests.sync(member, 1, version=3)
    for version in (0, 3, 5):
        requests.describe(version=version)
    requests.describe(operations=True)
    for states in ((), ("Stable",), ("stable", "Empty"), (" STABLE ",), ("Empty",), ("nonsense",)):
        requests.list(*states)
    requests.list(version=0)
    for generation, who in ((1, member), (0, member), (2, member), (-1, member), (1, "who"), (1, ""), (-1, "")):
        requests.heartbeat(who, generation)
        requests.commit(member_id=who, generation=generation)
    requests.commit(member_id=member, generation=1, instance="instance")
    requests.heartbeat(member, 1, "instance")
    requests.fetch()


def two_members_come_and_go(requests):
    first = requests.enter().member_id
    requests.sync(first, 1, [(first, b"A")])
    second = requests.join().member_id
    requests.heartbeat(first, 1)
    waiting = requests.post_join(second)
    requests.wait_for("PreparingRebalance", 2)
    requests.describe()
    requests.heartbeat(first, 1)
    requests.sync(first, 1, [(first, b"A")])
    requests.commit(member_id=first, generation=1)
    requests.join(first)
    requests.read_join(waiting)
    requests.heartbeat(second, 2)
    requests.join(second, label="unchanged follower before the assignment")
    requests.join(first, label="unchanged leader before the assignment")
    following = requests.post_sync(second, 2)
    requests.sync(first, 2, [(first, b"A2"), (second, b"B2")])
    requests.read_sync(following)
    requests.describe()
    requests.join(second, label="unchanged follower")
    waiting = requests.post_join(first)
    requests.wait_for("PreparingRebalance", 2)
    requests.leave((second, None), version=2)
    requests.read_join(waiting)
    following = requests.post_sync(first, 3, [(first, b"A3")])
    requests.read_sync(following)
    requests.leave((first, None), (first, None), ("", None), ("", "instance"), ("who", None), ("who", "instance"))
    requests.describe()
    requests.list()
    requests.heartbeat(first, 4)
    requests.sync(first, 4)
    requests.commit(member_id=first, generation=3)
    requests.commit(member_id=first, generation=-1)
    requests.commit()
    requests.fetch()
    requests.join(first)


def followers_wait_for_a_leader_that_leaves(requests):
    first = requests.enter().member_id
    asked = requests.join().member_id
    waiting = requests.post_join(asked)
    requests.wait_for("PreparingRebalance", 2)
    requests.join(first)
    requests.read_join(waiting)
    following = requests.post_sync(asked, 2)
    requests.leave((first, None))
    requests.read_sync(following)
    requests.describe()
    requests.join(asked)


def whoever_waits_to_join_can_leave(requests):
    first = requests.enter().member_id
    requests.sync(first, 1, [(first, b"A")])
    second = requests.join().member_id
    waiting = requests.post_join(second)
    requests.wait_for("PreparingRebalance", 2)
    requests.leave((second, None))
    requests.read_join(waiting)
    requests.describe()
    requests.join(first)


def reserved_ids_can_leave(requests):
    first = requests.enter().member_id
    requests.sync(first, 1, [(first, b"A")])
    asked = requests.join().member_id
    requests.leave((asked, None))
    requests.describe()
    requests.heartbeat(first, 1)
    requests.join(asked)


def changed_protocols_rebalance(requests):
    both = [("range", b"r"), ("sticky", b"s")]
    first = requests.enter(protocols=both).member_id
    asked = requests.join(protocols=both).member_id
    waiting = requests.post_join(asked, protocols=both)
    requests.wait_for("PreparingRebalance", 2)
    requests.join(first, protocols=both)
    requests.read_join(waiting)
    following = requests.post_sync(asked, 2)
    waiting = requests.post_join(asked, protocols=[("sticky", b"new")])
    requests.read_sync(following)
    requests.join(first, protocols=both)
    requests.read_join(waiting)
    requests.join(first, protocols=[("range", b"r")])


def life_of_a_static_group(requests):
    first = requests.join(instance="i").member_id
    requests.sync(first, 1, [(first, b"A")], "i")
    requests.describe(version=4)
    requests.heartbeat(first, 1, "i")
    restarted = requests.join(instance="i", label="leader restarts").member_id
    requests.describe()
    requests.heartbeat(first, 1, "i")
    requests.heartbeat(first, 1)
    requests.heartbeat(restarted, 1, "i")
    requests.heartbeat(restarted, 1, "j")
    requests.sync(first, 1, instance="i")
    requests.sync(restarted, 1, instance="i")
    requests.commit(member_id=first, generation=1, instance="i")
    requests.commit(member_id=first, generation=1)
    requests.commit(member_id=restarted, generation=1, instance="i")
    requests.commit(generation=-1, instance="i")
    requests.join(first, "i", label="fenced")
    requests.leave((first, "i"), (first, None), ("", "j"))
    older = requests.join(instance="i", version=5, label="leader restarts").member_id
    requests.heartbeat(older, 1, "i")
    renamed = requests.read_join(
        requests.post_join(instance="i", connection=requests.connect("other")), "restarts elsewhere"
    )
    requests.describe()
    requests.join(instance="i", protocols=[("range", b"other")], label="restarts with another subscription")
    requests.describe()
    requests.join(instance="i", protocols=[("sticky", b"")], label="restarts with another protocol")
    requests.leave((renamed.member_id, "i"))
    requests.leave(("", "i"))
    requests.describe()


def static_followers_and_rebalances(requests):
    first = requests.enter().member_id
    waiting = requests.post_join(instance="i")
    requests.wait_for("PreparingRebalance", 2)
    requests.join(first)
    follower = requests.read_join(waiting).member_id
    following = requests.post_sync(follower, 2, instance="i")
    requests.sync(first, 2, [(first, b"A"), (follower, b"B")])
    requests.read_sync(following)
    restarted = requests.join(instance="i", label="follower restarts").member_id
    requests.sync(restarted, 2, instance="i")
    older = requests.join(instance="i", version=6, label="follower restarts").member_id
    waiting = requests.post_join(older, "i", protocols=[("range", b"new")])
    requests.wait_for("PreparingRebalance", 2)
    fencing = requests.post_join(instance="i")
    requests.read_join(waiting, "fenced while it waits")
    requests.join(first)
    last = requests.read_join(fencing).member_id
    waiting = requests.post_sync(last, 3, instance="i")
    requests.heartbeat(last, 3, "i")
    fencing = requests.post_join(instance="i")
    requests.read_sync(waiting, "fenced while it syncs")
    requests.heartbeat(first, 3)
    requests.join(first)
    requests.read_join(fencing)


def members_commit_in_every_state(requests):
    asked = requests.join().member_id
    requests.commit(member_id=asked, generation=0)
    requests.commit()
    first = requests.join(asked).member_id
    requests.commit()
    requests.sync(first, 1, [(first, b"A")])
    requests.commit()
    requests.commit(member_id=first, generation=1, version=2)
    requests.commit(member_id=first, generation=1, version=7)
    requests.leave((first, None))
    requests.commit()


def offsets_of_nobody_in_particular(requests):
    topic = requests.topic
    for version in range(2, 10):
        requests.commit([(topic, [(0, version, f"v{version}")])], version=version)
        requests.fetch(version=max(version - 1, 1))
    requests.describe()
    requests.list()
    requests.list("Empty")
    requests.commit([(topic, [(0, 1, LONG), (1, 2, LONG + "x")])])
    requests.commit([(topic, [(0, 1, "é" * 4096), (1, 2, "\U0001f600" * 2049)])])
    requests.commit([(topic, [(0, 3, "\U0001f600" * 2048)])])
    requests.commit([(topic, [(0, 1, None), (1, 2, ""), (2, 3, ""), (-1, 4, "")]), ("no-such-topic", [(0, 1, "")])])
    requests.commit([("no-such-topic", [(0, 1, "")])], generation=7)
    requests.commit([(topic, [(0, -1, "")])])
    requests.commit([(topic, [(0, -5, "")])])
    requests.commit([(topic, [])])
    requests.fetch()
    requests.fetch(None)
    requests.fetch([])
    requests.fetch([("no-such-topic", [0]), (topic, [0, 5])])
    requests.fetch(None, version=2)
    requests.commit([(topic, [(0, 9, "")])], version=4, retention_ms=60_000)
    requests.commit([(topic, [(1, 9, "")])], version=2, retention_ms=60_000)
    requests.fetch()


def offsets_named_three_times(requests):
    requests.commit([(requests.topic, [(0, 1, "")])])
    requests.fetch([(requests.topic, [0, 0]), (requests.topic, [0])])


def offsets_in_transactions(requests):
    topic = requests.topic
    producer = requests.producer()
    requests.commit_in_transaction(producer)
    requests.add_offsets(producer)
    for version in range(4):
        requests.commit_in_transaction(producer, [(topic, [(0, version, "")])], version=version)
    requests.describe()
    for stable in (False, True):
        requests.fetch(stable=stable)
        requests.fetch(None, stable=stable)
        requests.fetch(version=7, stable=stable)
    requests.end(producer, True)
    requests.fetch(stable=True)
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer, [(topic, [(0, 40, "")])])
    requests.commit([(topic, [(0, 50, "")])])
    requests.fetch()
    requests.fetch(None, stable=True)
    requests.end(producer, True)
    requests.fetch(stable=True)
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer, [(topic, [(0, 60, ""), (1, 61, "")])])
    requests.end(producer, False)
    requests.fetch(None, stable=True)
    requests.add_offsets(producer)
    name, producer_id, epoch = producer
    requests.commit_in_transaction((name, producer_id, epoch + 1))
    requests.commit_in_transaction((name, producer_id, epoch - 1))
    requests.commit_in_transaction((name, producer_id + 999, epoch))
    requests.commit_in_transaction(("t-nobody", producer_id, epoch))
    requests.commit_in_transaction(("", producer_id, epoch))
    requests.commit_in_transaction(
        producer, [("no-such-topic", [(0, 1, "")]), (topic, [(9, 1, ""), (0, 1, LONG + "x")])]
    )
    requests.commit_in_transaction(producer, [("no-such-topic", [(0, 1, "")])])
    requests.end(producer, True)


def members_commit_in_transactions(requests):
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer, caller=(1, "who", None))
    first = requests.join(instance="i").member_id
    requests.commit_in_transaction(producer, caller=(1, first, "i"))
    for caller in (
        (0, first, "i"),
        (1, "who", None),
        (1, "who", "i"),
        (1, first, "j"),
        (-1, first, None),
        (-1, "", None),
        (-1, "", "i"),
        (1, "", None),
    ):
        requests.commit_in_transaction(producer, caller=caller)
    requests.end(producer, True)
    requests.fetch(stable=True)


def deleted_topic_takes_its_offsets_along(requests):
    topic = f"topic-of-{requests.group}"
    requests.create_topic(topic)
    requests.commit([(topic, [(0, 5, ""), (1, 6, "")]), (requests.topic, [(0, 7, "")])])
    requests.fetch([(topic, [0, 1])])
    requests.delete_topic(topic)
    requests.fetch([(topic, [0, 1])])
    requests.commit([(topic, [(0, 5, "")])])
    requests.fetch(None)


SCRIPTS = [
    nobody_there,
    empty_group_id,
    bad_joins,
    joins_below_v4_need_no_id,
    life_of_a_dynamic_group,
    two_members_come_and_go,
    followers_wait_for_a_leader_that_leaves,
    whoever_waits_to_join_can_leave,
    reserved_ids_can_leave,
    changed_protocols_rebalance,
    life_of_a_static_group,
    static_followers_and_rebalances,
    members_commit_in_every_state,
    offsets_of_nobody_in_particular,
    offsets_in_transactions,
    members_commit_in_transactions,
    deleted_topic_takes_its_offsets_along,
]
