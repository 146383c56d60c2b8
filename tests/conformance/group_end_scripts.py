"""Scripts of the begin and the end of groups, and of their records in the log. Each function is one script."""

from group_scripts import LONG


def subscription(*topics):
    """Return a subscription as Kafka's consumers send it: version 0, topics, no user data."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff" * 4


def groups_begin(stage):
    stage.join(protocol_type="")
    stage.describe()
    stage.list()
    stage.read_log()
    stage.commit(member_id="who", generation=3)
    stage.heartbeat("who", 0)
    asked = stage.join()
    stage.leave((asked.member_id, None))
    stage.describe()
    first = stage.enter().member_id
    stage.read_log()
    stage.sync(first, 1, [(first, b"A")])
    stage.leave((first, None))
    stage.commit()
    stage.describe()
    stage.read_log()


def group_of_a_reserved_id(stage):
    stage.join()
    stage.describe()
    stage.list()
    stage.read_log()
    stage.commit(generation=0)
    stage.commit()
    stage.read_log()


def group_of_a_static_member(stage):
    stage.join(instance="i")
    stage.read_log()
    stage.leave(("", "i"))
    stage.read_log()


def group_of_commits_that_failed(stage):
    """Kafka's DescribeGroups does not see it before something is written to the same partition."""
    stage.commit([(stage.topic, [(0, 1, LONG + "x")])])
    stage.commit(generation=0)
    stage.commit(member_id="who", generation=0)
    stage.read_log()


def group_of_an_aborted_commit(stage):
    producer = stage.producer()
    stage.add_offsets(producer)
    stage.commit_in_transaction(producer)
    stage.describe()
    stage.end(producer, False)
    stage.describe()
    stage.list()
    stage.commit(generation=0)
    stage.add_offsets(producer)
    stage.commit_in_transaction(producer, caller=(0, "", None))
    stage.commit_in_transaction(producer, caller=(1, "who", None))
    stage.end(producer, False)
    stage.read_log()


def group_of_a_commit_that_was_refused(stage):
    producer = stage.producer()
    stage.commit_in_transaction(producer)
    stage.describe()
    stage.commit(generation=0)
    stage.read_log()


def delete_what_is_not_there(stage):
    for version in range(3):
        stage.delete_group(version=version)
    stage.delete_group("", stage.group, stage.group, "another")
    stage.delete_offsets()
    stage.delete_offsets(group="")
    stage.delete_offsets([("no-such-topic", [0])])
    stage.read_log()


def delete_groups_of_nobody(stage):
    topic = stage.topic
    stage.commit([(topic, [(0, 5, ""), (1, 6, "")])])
    stage.delete_group("another", stage.group, stage.group)
    stage.delete_group()
    stage.describe()
    stage.list()
    stage.fetch(None)
    stage.commit(generation=0)
    stage.read_log(ordered=False)
    stage.commit([(topic, [(1, 7, "")])])
    stage.fetch()
    for version in range(3):
        stage.delete_group(version=version)
        stage.commit()
    stage.read_log(ordered=False)


def delete_groups_of_members(stage):
    asked = stage.join()
    stage.delete_group()
    stage.join(asked.member_id)
    first = stage.enter().member_id
    stage.delete_group()
    stage.sync(first, 1, [(first, b"A")])
    stage.commit(member_id=first, generation=1)
    stage.delete_group()
    stage.join(instance="i", protocol_type="connect")
    stage.leave((first, None))
    stage.delete_group()
    stage.heartbeat(first, 1)
    stage.read_log(ordered=False)


def delete_a_group_of_pending_offsets(stage):
    topic = stage.topic
    producer = stage.producer()
    stage.add_offsets(producer)
    stage.commit([(topic, [(0, 1, "")])])
    stage.commit_in_transaction(producer, [(topic, [(0, 7, ""), (1, 8, "")])])
    stage.delete_group()
    stage.describe()
    stage.fetch(None)
    stage.fetch(stable=True)
    stage.end(producer, True)
    stage.fetch(None, stable=True)
    stage.describe()
    stage.commit(generation=0)
    stage.read_log(ordered=False)


def delete_offsets_of_nobody(stage):
    topic = stage.topic
    producer = stage.producer()
    stage.add_offsets(producer)
    stage.commit([(topic, [(0, 5, ""), (1, 6, "")])])
    stage.delete_offsets([(topic, [0, 7]), ("no-such-topic", [0])])
    stage.fetch()
    stage.delete_offsets([(topic, [0])])
    stage.delete_offsets([("no-such-topic", [0])])
    stage.delete_offsets([(topic, [])])
    stage.delete_offsets([])
    stage.commit_in_transaction(producer, [(topic, [(0, 7, ""), (1, 8, "")])])
    stage.delete_offsets([(topic, [0])])
    stage.fetch(stable=True)
    stage.end(producer, True)
    stage.fetch(stable=True)
    stage.delete_offsets()
    stage.describe()
    stage.commit(generation=0)
    stage.read_log(ordered=False)


def delete_offsets_of_consumers(stage):
    other = f"other-of-{stage.group}"
    stage.create_topic(other)
    topics = [(stage.topic, [0]), (other, [0, 1])]
    rows = [(stage.topic, [(0, 5, "")]), (other, [(0, 6, ""), (1, 7, "")])]
    ours = [("range", subscription(stage.topic))]
    asked = stage.join(protocols=ours)
    stage.commit(rows)
    stage.delete_offsets(topics)
    first = stage.join(asked.member_id, protocols=ours).member_id
    stage.delete_offsets(topics)
    stage.sync(first, 1, [(first, b"A")])
    stage.commit(rows, member_id=first, generation=1)
    stage.delete_offsets(topics)
    stage.fetch(None)
    waiting = stage.post_join(first, protocols=[("range", subscription(other))])
    stage.read_join(waiting)
    stage.delete_offsets(topics)
    stage.sync(first, 2, [(first, b"A")])
    stage.commit(rows, member_id=first, generation=2)
    stage.delete_offsets(topics)
    stage.leave((first, None))
    stage.delete_offsets(topics)
    stage.fetch(None)
    stage.read_log(ordered=False)


def delete_offsets_of_members_of_whom_one_cannot_tell(stage):
    first = stage.enter().member_id
    stage.sync(first, 1, [(first, b"A")])
    stage.commit(member_id=first, generation=1)
    stage.delete_offsets()
    stage.fetch()
    stage.leave((first, None))
    stage.delete_offsets()
    stage.fetch()


def delete_offsets_of_members_that_are_no_consumers(stage):
    first = stage.enter(protocol_type="connect").member_id
    stage.delete_offsets()
    stage.sync(first, 1, [(first, b"A")], protocol_type="connect")
    stage.commit(member_id=first, generation=1)
    stage.delete_offsets()
    stage.leave((first, None))
    stage.delete_offsets()
    stage.fetch()


SCRIPTS = [
    groups_begin,
    group_of_a_reserved_id,
    group_of_a_static_member,
    group_of_commits_that_failed,
    group_of_an_aborted_commit,
    group_of_a_commit_that_was_refused,
    delete_what_is_not_there,
    delete_groups_of_nobody,
    delete_groups_of_members,
    delete_a_group_of_pending_offsets,
    delete_offsets_of_nobody,
    delete_offsets_of_consumers,
    delete_offsets_of_members_of_whom_one_cannot_tell,
    delete_offsets_of_members_that_are_no_consumers,
]
