"""Scripts of the begin and the end of groups, and of their records in the log. Each function is one script."""

from group_scripts import LONG


def subscription(*topics):
    """Return a subscription as Kafka's consumers send it: version 0, topics, no user data."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff" * 4


def groups_begin(requests):
    requests.join(protocol_type="")
    requests.describe()
    requests.list()
    requests.read_log()
    requests.commit(member_id="who", generation=3)
    requests.heartbeat("who", 0)
    asked = requests.join()
    requests.leave((asked.member_id, None))
    requests.describe()
    first = requests.enter().member_id
    requests.read_log()
    requests.sync(first, 1, [(first, b"A")])
    requests.leave((first, None))
    requests.commit()
    requests.describe()
    requests.read_log()


def group_of_a_reserved_id(requests):
    requests.join()
    requests.describe()
    requests.list()
    requests.read_log()
    requests.commit(generation=0)
    requests.commit()
    requests.read_log()


def group_of_a_static_member(requests):
    requests.join(instance="i")
    requests.read_log()
    requests.leave(("", "i"))
    requests.read_log()


def fail_commits_to_a_new_group(requests):
    """Kafka's DescribeGroups does not see it before something is written to the same partition."""
    requests.commit([(requests.topic, [(0, 1, LONG + "x")])])
    requests.commit(generation=0)
    requests.commit(member_id="who", generation=0)
    requests.read_log()


def group_of_an_aborted_commit(requests):
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer)
    requests.describe()
    requests.end(producer, False)
    requests.describe()
    requests.list()
    requests.commit(generation=0)
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer, caller=(0, "", None))
    requests.commit_in_transaction(producer, caller=(1, "who", None))
    requests.end(producer, False)
    requests.read_log()


def refuse_a_commit_outside_of_a_transaction(requests):
    producer = requests.producer()
    requests.commit_in_transaction(producer)
    requests.describe()
    requests.commit(generation=0)
    requests.read_log()


def delete_what_is_not_there(requests):
    for version in range(3):
        requests.delete_group(version=version)
    requests.delete_group("", requests.group, requests.group, "another")
    requests.delete_offsets()
    requests.delete_offsets(group="")
    requests.delete_offsets([("no-such-topic", [0])])
    requests.read_log()


def delete_groups_of_nobody(requests):
    topic = requests.topic
    requests.commit([(topic, [(0, 5, ""), (1, 6, "")])])
    requests.delete_group("another", requests.group, requests.group)
    requests.delete_group()
    requests.describe()
    requests.list()
    requests.fetch(None)
    requests.commit(generation=0)
    requests.read_log(ordered=False)
    requests.commit([(topic, [(1, 7, "")])])
    requests.fetch()
    for version in range(3):
        requests.delete_group(version=version)
        requests.commit()
    requests.read_log(ordered=False)


def delete_groups_of_members(requests):
    asked = requests.join()
    requests.delete_group()
    requests.join(asked.member_id)
    first = requests.enter().member_id
    requests.delete_group()
    requests.sync(first, 1, [(first, b"A")])
    requests.commit(member_id=first, generation=1)
    requests.delete_group()
    requests.join(instance="i", protocol_type="connect")
    requests.leave((first, None))
    requests.delete_group()
    requests.heartbeat(first, 1)
    requests.read_log(ordered=False)


def delete_a_group_of_pending_offsets(requests):
    topic = requests.topic
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit([(topic, [(0, 1, "")])])
    requests.commit_in_transaction(producer, [(topic, [(0, 7, ""), (1, 8, "")])])
    requests.delete_group()
    requests.describe()
    requests.fetch(None)
    requests.fetch(stable=True)
    requests.end(producer, True)
    requests.fetch(None, stable=True)
    requests.describe()
    requests.commit(generation=0)
    requests.read_log(ordered=False)


def delete_offsets_of_nobody(requests):
    topic = requests.topic
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit([(topic, [(0, 5, ""), (1, 6, "")])])
    requests.delete_offsets([(topic, [0, 7]), ("no-such-topic", [0])])
    requests.fetch()
    requests.delete_offsets([(topic, [0])])
    requests.delete_offsets([("no-such-topic", [0])])
    requests.delete_offsets([(topic, [])])
    requests.delete_offsets([])
    requests.commit_in_transaction(producer, [(topic, [(0, 7, ""), (1, 8, "")])])
    requests.delete_offsets([(topic, [0])])
    requests.fetch(stable=True)
    requests.end(producer, True)
    requests.fetch(stable=True)
    requests.delete_offsets()
    requests.describe()
    requests.commit(generation=0)
    requests.read_log(ordered=False)


def delete_offsets_of_consumers(requests):
    other = f"other-of-{requests.group}"
    requests.create_topic(other)
    topics = [(requests.topic, [0]), (other, [0, 1])]
    rows = [(requests.topic, [(0, 5, "")]), (other, [(0, 6, ""), (1, 7, "")])]
    ours = [("range", subscription(requests.topic))]
    asked = requests.join(protocols=ours)
    requests.commit(rows)
    requests.delete_offsets(topics)
    first = requests.join(asked.member_id, protocols=ours).member_id
    requests.delete_offsets(topics)
    requests.sync(first, 1, [(first, b"A")])
    requests.commit(rows, member_id=first, generation=1)
    requests.delete_offsets(topics)
    requests.fetch(None)
    waiting = requests.post_join(first, protocols=[("range", subscription(other))])
    requests.read_join(waiting)
    requests.delete_offsets(topics)
    requests.sync(first, 2, [(first, b"A")])
    requests.commit(rows, member_id=first, generation=2)
    requests.delete_offsets(topics)
    requests.leave((first, None))
    requests.delete_offsets(topics)
    requests.fetch(None)
    requests.read_log(ordered=False)


def delete_offsets_of_members_of_whom_one_cannot_tell(requests):
    first = requests.enter().member_id
    requests.sync(first, 1, [(first, b"A")])
    requests.commit(member_id=first, generation=1)
    requests.delete_offsets()
    requests.fetch()
    requests.leave((first, None))
    requests.delete_offsets()
    requests.fetch()


def delete_offsets_of_members_that_are_no_consumers(requests):
    first = requests.enter(protocol_type="connect").member_id
    requests.delete_offsets()
    requests.sync(first, 1, [(first, b"A")], protocol_type="connect")
    requests.commit(member_id=first, generation=1)
    requests.delete_offsets()
    requests.leave((first, None))
    requests.delete_offsets()
    requests.fetch()


SCRIPTS = [
    groups_begin,
    group_of_a_reserved_id,
    group_of_a_static_member,
    fail_commits_to_a_new_group,
    group_of_an_aborted_commit,
    refuse_a_commit_outside_of_a_transaction,
    delete_what_is_not_there,
    delete_groups_of_nobody,
    delete_groups_of_members,
    delete_a_group_of_pending_offsets,
    delete_offsets_of_nobody,
    delete_offsets_of_consumers,
    delete_offsets_of_members_of_whom_one_cannot_tell,
    delete_offsets_of_members_that_are_no_consumers,
]
