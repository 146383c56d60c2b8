"""Scripts of group requests, in right and in wrong order, for both brokers. Each function is one script."""

LONG = "x" * 4096


def nobody_there(stage):
    for version in (0, 4):
        stage.heartbeat("who", 1, version=version)
    for version in (0, 5):
        stage.sync("who", 1, version=version)
    for version in (0, 2, 3, 5):
        stage.leave(("who", None), version=version)
    stage.leave()
    for version in (0, 4, 9):
        stage.join("who", version=version)
    for version in (2, 8, 9):
        stage.commit(member_id="who", generation=3, version=version)
    for version in (0, 3, 5):
        stage.describe(version=version)
    stage.describe(operations=True)
    stage.list()
    for version in (1, 2, 5, 7, 8):
        stage.fetch(version=version)
    for version in (2, 7, 8):
        stage.fetch(None, version=version)


def empty_group_id(stage):
    stage.join(group="")
    stage.sync("who", 1, group="")
    stage.heartbeat("who", 1, group="")
    for version in (0, 5):
        stage.leave(("who", None), group="", version=version)
    stage.describe("")
    stage.fetch(group="", version=7)
    stage.commit(group="")
    stage.fetch(group="", version=8)
    producer = stage.producer()
    stage.commit_in_transaction(producer, group="")


def bad_joins(stage):
    stage.join(session_ms=5_999)
    stage.join(session_ms=1_800_001)
    first = stage.enter()
    stage.join(protocol_type="connect")
    stage.join(protocols=[("sticky", b"")])
    stage.join(protocols=[])
    stage.join("who", protocols=[("sticky", b"")])
    stage.join("who")
    stage.join("who", "instance")
    stage.join(first.member_id, "instance")
    stage.join(first.member_id, protocol_type="connect")
    asked = stage.join()
    stage.join(asked.member_id, "instance")
    stage.heartbeat(asked.member_id, 1)
    stage.commit(member_id=asked.member_id, generation=1)
    stage.sync(asked.member_id, 1)


def joins_below_v4_need_no_id(stage):
    first = stage.join(version=0)
    stage.sync(first.member_id, 1, [(first.member_id, b"A")], version=0)
    stage.describe()
    waiting = stage.post_join(version=3)
    stage.wait_for("PreparingRebalance", 2)
    stage.heartbeat(first.member_id, 1, version=0)
    again = stage.join(first.member_id, version=1)
    stage.read_join(waiting)
    stage.leave((again.member_id, None), version=0)


def life_of_a_dynamic_group(stage):
    first = stage.enter(protocols=[("range", b"r"), ("sticky", b"s")])
    member = first.member_id
    stage.describe()
    stage.list()
    stage.heartbeat(member, 1)
    stage.commit(member_id=member, generation=1)
    stage.sync(member, 0)
    stage.sync(member, 2)
    stage.sync("who", 1)
    stage.sync(member, 1, protocol="sticky")
    stage.sync(member, 1, protocol=None)
    stage.sync(member, 1, protocol_type=None)
    stage.sync(member, 1, protocol_type="connect")
    stage.sync(member, 1, instance="instance")
    stage.sync(member, 1, [(member, b"A"), ("who", b"B")])
    stage.sync(member, 1, version=3)
    for version in (0, 3, 5):
        stage.describe(version=version)
    stage.describe(operations=True)
    for states in ((), ("Stable",), ("stable", "Empty"), (" STABLE ",), ("Empty",), ("nonsense",)):
        stage.list(*states)
    stage.list(version=0)
    for generation, who in ((1, member), (0, member), (2, member), (-1, member), (1, "who"), (1, ""), (-1, "")):
        stage.heartbeat(who, generation)
        stage.commit(member_id=who, generation=generation)
    stage.commit(member_id=member, generation=1, instance="instance")
    stage.heartbeat(member, 1, "instance")
    stage.fetch()


def two_members_come_and_go(stage):
    first = stage.enter().member_id
    stage.sync(first, 1, [(first, b"A")])
    second = stage.join().member_id
    stage.heartbeat(first, 1)
    waiting = stage.post_join(second)
    stage.wait_for("PreparingRebalance", 2)
    stage.describe()
    stage.heartbeat(first, 1)
    stage.sync(first, 1, [(first, b"A")])
    stage.commit(member_id=first, generation=1)
    stage.join(first)
    stage.read_join(waiting)
    stage.heartbeat(second, 2)
    stage.join(second, label="unchanged follower before the assignment")
    stage.join(first, label="unchanged leader before the assignment")
    following = stage.post_sync(second, 2)
    stage.sync(first, 2, [(first, b"A2"), (second, b"B2")])
    stage.read_sync(following)
    stage.describe()
    stage.join(second, label="unchanged follower")
    waiting = stage.post_join(first)
    stage.wait_for("PreparingRebalance", 2)
    stage.leave((second, None), version=2)
    stage.read_join(waiting)
    following = stage.post_sync(first, 3, [(first, b"A3")])
    stage.read_sync(following)
    stage.leave((first, None), (first, None), ("", None), ("", "instance"), ("who", None), ("who", "instance"))
    stage.describe()
    stage.list()
    stage.heartbeat(first, 4)
    stage.sync(first, 4)
    stage.commit(member_id=first, generation=3)
    stage.commit(member_id=first, generation=-1)
    stage.commit()
    stage.fetch()
    stage.join(first)


def followers_wait_for_a_leader_that_leaves(stage):
    first = stage.enter().member_id
    asked = stage.join().member_id
    waiting = stage.post_join(asked)
    stage.wait_for("PreparingRebalance", 2)
    stage.join(first)
    stage.read_join(waiting)
    following = stage.post_sync(asked, 2)
    stage.leave((first, None))
    stage.read_sync(following)
    stage.describe()
    stage.join(asked)


def whoever_waits_to_join_can_leave(stage):
    first = stage.enter().member_id
    stage.sync(first, 1, [(first, b"A")])
    second = stage.join().member_id
    waiting = stage.post_join(second)
    stage.wait_for("PreparingRebalance", 2)
    stage.leave((second, None))
    stage.read_join(waiting)
    stage.describe()
    stage.join(first)


def reserved_ids_can_leave(stage):
    first = stage.enter().member_id
    stage.sync(first, 1, [(first, b"A")])
    asked = stage.join().member_id
    stage.leave((asked, None))
    stage.describe()
    stage.heartbeat(first, 1)
    stage.join(asked)


def changed_protocols_rebalance(stage):
    both = [("range", b"r"), ("sticky", b"s")]
    first = stage.enter(protocols=both).member_id
    asked = stage.join(protocols=both).member_id
    waiting = stage.post_join(asked, protocols=both)
    stage.wait_for("PreparingRebalance", 2)
    stage.join(first, protocols=both)
    stage.read_join(waiting)
    following = stage.post_sync(asked, 2)
    waiting = stage.post_join(asked, protocols=[("sticky", b"new")])
    stage.read_sync(following)
    stage.join(first, protocols=both)
    stage.read_join(waiting)
    stage.join(first, protocols=[("range", b"r")])


def life_of_a_static_group(stage):
    first = stage.join(instance="i").member_id
    stage.sync(first, 1, [(first, b"A")], "i")
    stage.describe(version=4)
    stage.heartbeat(first, 1, "i")
    restarted = stage.join(instance="i", label="leader restarts").member_id
    stage.describe()
    stage.heartbeat(first, 1, "i")
    stage.heartbeat(first, 1)
    stage.heartbeat(restarted, 1, "i")
    stage.heartbeat(restarted, 1, "j")
    stage.sync(first, 1, instance="i")
    stage.sync(restarted, 1, instance="i")
    stage.commit(member_id=first, generation=1, instance="i")
    stage.commit(member_id=first, generation=1)
    stage.commit(member_id=restarted, generation=1, instance="i")
    stage.commit(generation=-1, instance="i")
    stage.join(first, "i", label="fenced")
    stage.leave((first, "i"), (first, None), ("", "j"))
    older = stage.join(instance="i", version=5, label="leader restarts").member_id
    stage.heartbeat(older, 1, "i")
    renamed = stage.read_join(stage.post_join(instance="i", connection=stage.connect("other")), "restarts elsewhere")
    stage.describe()
    stage.join(instance="i", protocols=[("range", b"other")], label="restarts with another subscription")
    stage.describe()
    stage.join(instance="i", protocols=[("sticky", b"")], label="restarts with another protocol")
    stage.leave((renamed.member_id, "i"))
    stage.leave(("", "i"))
    stage.describe()


def static_followers_and_rebalances(stage):
    first = stage.enter().member_id
    waiting = stage.post_join(instance="i")
    stage.wait_for("PreparingRebalance", 2)
    stage.join(first)
    follower = stage.read_join(waiting).member_id
    following = stage.post_sync(follower, 2, instance="i")
    stage.sync(first, 2, [(first, b"A"), (follower, b"B")])
    stage.read_sync(following)
    restarted = stage.join(instance="i", label="follower restarts").member_id
    stage.sync(restarted, 2, instance="i")
    older = stage.join(instance="i", version=6, label="follower restarts").member_id
    waiting = stage.post_join(older, "i", protocols=[("range", b"new")])
    stage.wait_for("PreparingRebalance", 2)
    fencing = stage.post_join(instance="i")
    stage.read_join(waiting, "fenced while it waits")
    stage.join(first)
    last = stage.read_join(fencing).member_id
    waiting = stage.post_sync(last, 3, instance="i")
    stage.heartbeat(last, 3, "i")
    fencing = stage.post_join(instance="i")
    stage.read_sync(waiting, "fenced while it syncs")
    stage.heartbeat(first, 3)
    stage.join(first)
    stage.read_join(fencing)


def members_commit_in_every_state(stage):
    asked = stage.join().member_id
    stage.commit(member_id=asked, generation=0)
    stage.commit()
    first = stage.join(asked).member_id
    stage.commit()
    stage.sync(first, 1, [(first, b"A")])
    stage.commit()
    stage.commit(member_id=first, generation=1, version=2)
    stage.commit(member_id=first, generation=1, version=7)
    stage.leave((first, None))
    stage.commit()


def offsets_of_nobody_in_particular(stage):
    topic = stage.topic
    for version in range(2, 10):
        stage.commit([(topic, [(0, version, f"v{version}")])], version=version)
        stage.fetch(version=max(version - 1, 1))
    stage.describe()
    stage.list()
    stage.list("Empty")
    stage.commit([(topic, [(0, 1, LONG), (1, 2, LONG + "x")])])
    stage.commit([(topic, [(0, 1, "é" * 4096), (1, 2, "\U0001f600" * 2049)])])
    stage.commit([(topic, [(0, 3, "\U0001f600" * 2048)])])
    stage.commit([(topic, [(0, 1, None), (1, 2, ""), (2, 3, ""), (-1, 4, "")]), ("no-such-topic", [(0, 1, "")])])
    stage.commit([("no-such-topic", [(0, 1, "")])], generation=7)
    stage.commit([(topic, [(0, -1, "")])])
    stage.commit([(topic, [(0, -5, "")])])
    stage.commit([(topic, [])])
    stage.fetch()
    stage.fetch(None)
    stage.fetch([])
    stage.fetch([("no-such-topic", [0]), (topic, [0, 5])])
    stage.fetch(None, version=2)
    stage.commit([(topic, [(0, 9, "")])], version=4, retention_ms=60_000)
    stage.commit([(topic, [(1, 9, "")])], version=2, retention_ms=60_000)
    stage.fetch()


def offsets_named_three_times(stage):
    stage.commit([(stage.topic, [(0, 1, "")])])
    stage.fetch([(stage.topic, [0, 0]), (stage.topic, [0])])


def offsets_in_transactions(stage):
    topic = stage.topic
    producer = stage.producer()
    stage.commit_in_transaction(producer)
    stage.add_offsets(producer)
    for version in range(4):
        stage.commit_in_transaction(producer, [(topic, [(0, version, "")])], version=version)
    stage.describe()
    for stable in (False, True):
        stage.fetch(stable=stable)
        stage.fetch(None, stable=stable)
        stage.fetch(version=7, stable=stable)
    stage.end(producer, True)
    stage.fetch(stable=True)
    stage.add_offsets(producer)
    stage.commit_in_transaction(producer, [(topic, [(0, 40, "")])])
    stage.commit([(topic, [(0, 50, "")])])
    stage.fetch()
    stage.fetch(None, stable=True)
    stage.end(producer, True)
    stage.fetch(stable=True)
    stage.add_offsets(producer)
    stage.commit_in_transaction(producer, [(topic, [(0, 60, ""), (1, 61, "")])])
    stage.end(producer, False)
    stage.fetch(None, stable=True)
    stage.add_offsets(producer)
    name, producer_id, epoch = producer
    stage.commit_in_transaction((name, producer_id, epoch + 1))
    stage.commit_in_transaction((name, producer_id, epoch - 1))
    stage.commit_in_transaction((name, producer_id + 999, epoch))
    stage.commit_in_transaction(("t-nobody", producer_id, epoch))
    stage.commit_in_transaction(("", producer_id, epoch))
    stage.commit_in_transaction(producer, [("no-such-topic", [(0, 1, "")]), (topic, [(9, 1, ""), (0, 1, LONG + "x")])])
    stage.commit_in_transaction(producer, [("no-such-topic", [(0, 1, "")])])
    stage.end(producer, True)


def members_commit_in_transactions(stage):
    producer = stage.producer()
    stage.add_offsets(producer)
    stage.commit_in_transaction(producer, caller=(1, "who", None))
    first = stage.join(instance="i").member_id
    stage.commit_in_transaction(producer, caller=(1, first, "i"))
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
        stage.commit_in_transaction(producer, caller=caller)
    stage.end(producer, True)
    stage.fetch(stable=True)


def deleted_topic_takes_its_offsets_along(stage):
    topic = f"topic-of-{stage.group}"
    stage.create_topic(topic)
    stage.commit([(topic, [(0, 5, ""), (1, 6, "")]), (stage.topic, [(0, 7, "")])])
    stage.fetch([(topic, [0, 1])])
    stage.delete_topic(topic)
    stage.fetch([(topic, [0, 1])])
    stage.commit([(topic, [(0, 5, "")])])
    stage.fetch(None)


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
