"""Scripts of requests of other APIs to groups of the consumer protocol: commits, looks, ends, and classic clients.

Numbers are the sections of KIP-848 in Kafka 4.3.1: classic clients (11), offsets (12), looks (13).
"""

from consumer_group_requests import OWN, Member


def _two_members(requests):
    m1, m2 = (Member(requests, name, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat()
    return m1, m2


# -- 12: commits and fetches -------------------------------------------------------------------------------------------


def members_commit_with_their_epochs(requests):
    a = requests.a
    m1, m2 = _two_members(requests)
    for epoch in (2, 3, 1, 0, -1):
        requests.commit([(a, [(0, 5, "m"), (5, 6, "")])], "m1", epoch)
    m1.beat(OWN)
    for version in (8, 9):
        for epoch in (3, 2):
            requests.commit([(a, [(0, 7, "")])], "m1", epoch, version=version)
    requests.commit([(a, [(0, 8, ""), (4, 9, "")])], "m1", 2)
    requests.commit([(a, [(4, 9, "")])], "m1", 3)
    requests.commit([(a, [(4, 9, "")])], "m2", 3)
    m2.beat({})
    requests.commit([(a, [(4, 10, "")])], "m2", 3)
    requests.commit([(a, [(4, 10, "")])], "m2", 2)
    requests.commit([("no-such-topic", [(0, 1, "")]), (a, [(77, 1, "")])], "m2", 3)
    requests.commit([("no-such-topic", [(0, 1, "")])], "m2", 2)
    requests.commit([(a, [(4, 11, "x" * 5000)])], "m2", 3)
    for member_id, epoch in (("zz", 3), ("zz", -1), ("", -1), ("", 3)):
        for version in (8, 9):
            requests.commit([(a, [(4, 12, "")])], member_id, epoch, version=version)
    requests.commit([(a, [(4, 13, "")])], "m2", 3, "i")
    requests.commit([], "m2", 3)
    requests.commit([(a, [(0, 1, "")])], "m2", 4)
    requests.fetch_as()
    requests.read_records()


def commits_to_groups_that_are_not_there(requests):
    for version in (8, 9):
        for epoch, member_id in ((0, "m"), (3, "m"), (3, ""), (0, "")):
            requests.commit([(requests.a, [(0, 1, "")])], member_id, epoch, version=version)
    requests.commit([(requests.a, [(0, 1, "")])], version=9)
    requests.list_types()
    requests.fetch_as()


def commits_to_a_group_without_members(requests):
    m = Member(requests, "m")
    m.join()
    m.leave()
    for version in (8, 9):
        for epoch, member_id in ((-1, ""), (-1, "m"), (0, ""), (2, "m")):
            requests.commit([(requests.a, [(0, version, "")])], member_id, epoch, version=version)
    requests.fetch_as()
    requests.fetch(version=8)
    requests.list_types()
    requests.read_records()


def members_fetch_with_their_epochs(requests):
    m1, _ = _two_members(requests)
    requests.commit([(requests.a, [(0, 5, "m"), (1, 6, "")])], "m1", 2)
    m1.beat(OWN)
    for member_id, epoch in (("m1", 3), ("m1", 2), ("m1", 4), ("m1", 0), ("m1", -1), ("zz", 3), ("zz", -1)):
        requests.fetch_as(member_id, epoch)
    for member_id, epoch in (("", -1), ("", 3), (None, -1), (None, 3), (None, 0)):
        requests.fetch_as(member_id, epoch)
    requests.fetch_as("m1", 3, None)
    requests.fetch_as("m1", 9, None)
    requests.fetch_as(None, -1, None)
    requests.fetch_as("m1", 3, [(0, 99)])
    requests.fetch(version=8)
    requests.fetch(None, version=8)
    requests.fetch(version=7)


def fetches_from_groups_without_members(requests):
    for member_id, epoch in ((None, -1), ("m", 2), ("", 2), ("m", -1), (None, 2)):
        requests.fetch_as(member_id, epoch)
        requests.fetch_as(member_id, epoch, None)
    m = Member(requests, "m")
    m.join()
    m.leave()
    for member_id, epoch in ((None, -1), ("m", 2), ("", 2), ("m", -1), (None, 2)):
        requests.fetch_as(member_id, epoch)


def members_commit_in_transactions_with_their_epochs(requests):
    m1, m2 = _two_members(requests)
    m1.beat(OWN)
    m2.beat({})
    producer = requests.producer()
    requests.add_offsets(producer)
    rows = [(requests.a, [(0, 7, "")])]
    for caller in (
        (3, "m1", None),
        (2, "m1", None),
        (4, "m1", None),
        (0, "m1", None),
        (-1, "m1", None),
        (-1, "", None),
        (-1, "", "i"),
        (3, "", None),
        (3, "zz", None),
        (-1, "zz", None),
        (3, "m1", "i"),
        (2, "m2", None),
    ):
        requests.commit_in_transaction(producer, rows, caller)
    requests.commit_in_transaction(producer, [(requests.a, [(0, 8, ""), (5, 8, "")])], (2, "m1", None))
    requests.commit_in_transaction(producer, rows, (3, "m1", None), version=2)
    requests.end(producer, True)
    requests.fetch_as("m1", 3)
    requests.read_records()


def transactions_of_groups_that_are_not_there(requests):
    producer = requests.producer()
    requests.add_offsets(producer)
    rows = [(requests.a, [(0, 7, "")])]
    for caller in ((3, "m", None), (0, "", None), (-1, "", None)):
        requests.commit_in_transaction(producer, rows, caller)
    m = Member(requests, "m")
    m.join()
    requests.commit_in_transaction(producer, rows, (2, "m", None))
    requests.end(producer, True)
    requests.fetch_as()


# -- 13: looks, and the end of groups and offsets ----------------------------------------------------------------------


def looks_at_a_group(requests):
    for version in (0, 1):
        requests.describe_consumer_group(version=version)
    requests.describe_consumer_group("", "no-such-group")
    for version in (5, 6):
        requests.describe_as_classic(version)
    m1, m2 = _two_members(requests)
    for version in (0, 1):
        requests.describe_consumer_group(version=version)
    for version in (0, 5, 6):
        requests.describe_as_classic(version)
    requests.list(version=3)
    requests.list(version=4)
    requests.list("reconciling", version=4)
    requests.list("Stable", version=4)
    for states in ((), ("Reconciling",), ("RECONCILING", "stable"), ("Assigning",), ("nonsense",), ("",)):
        for types in ((), ("consumer",), ("Consumer", "classic"), ("classic",), ("share",), ("nonsense",), ("",)):
            requests.list_types(states, types)
    m1.leave()
    requests.list_types()
    m2.leave()
    requests.list_types()
    requests.list_types(("Empty",), ("consumer",))
    requests.describe_consumer_group()
    requests.describe_as_classic()


def looks_at_a_classic_group(requests):
    requests.commit()
    requests.describe_consumer_group()
    requests.describe_as_classic()
    requests.list_types()
    requests.list_types((), ("classic",))
    requests.list_types((), ("consumer",))
    requests.enter()
    requests.describe_consumer_group()
    requests.describe_as_classic()
    requests.list_types()


def delete_groups_and_offsets(requests):
    m = Member(requests, "m")
    m.join()
    requests.commit([(requests.a, [(0, 1, "")]), (requests.b, [(0, 2, "")])], "m", 2)
    requests.delete_offsets([(requests.a, [0, 1]), (requests.b, [0, 1])])
    requests.delete_offsets([("no-such-topic", [0])])
    requests.delete_group()
    m.leave(-2)
    m.leave()
    requests.delete_offsets([(requests.a, [1])])
    requests.commit([(requests.b, [(1, 2, "")])])
    requests.delete_group()
    requests.delete_group()
    requests.describe_consumer_group()
    requests.list_types()
    m.beat(epoch=2)
    m.join()
    requests.fetch_as()
    m.leave()
    requests.delete_group(version=0)
    requests.read_records()


def a_static_member_that_is_away_keeps_its_group(requests):
    s = Member(requests, "s", instance="i")
    s.join()
    requests.commit([(requests.a, [(0, 1, "")])], "s", 2)
    s.leave(-2)
    requests.delete_group()
    requests.delete_offsets([(requests.a, [0])])
    requests.commit([(requests.a, [(0, 3, "")])], "s", 2)
    requests.commit([(requests.a, [(0, 3, "")])], "s", -2)
    requests.commit([(requests.a, [(0, 3, "")])], "s", -1)
    requests.fetch_as("s", 2)
    requests.fetch_as("s", -2)
    requests.list_types()


# -- 11: classic clients, whose subscriptions are malformed -----------------------------------------------------------


def classic_clients_of_a_group_with_members(requests):
    m = Member(requests, "m")
    m.join()
    for version in (3, 4, 9):
        requests.join(version=version)
    requests.join("who")
    requests.join(instance="i")
    requests.join(protocol_type="connect")
    requests.join(protocols=[])
    requests.sync("m", 2)
    requests.sync("who", 2)
    requests.sync("who", 2, instance="i")
    requests.heartbeat("m", 2)
    requests.heartbeat("m", 1)
    requests.heartbeat("who", 2)
    requests.heartbeat("who", 2, "i")
    requests.leave(("who", None), ("who", "i"), ("", "i"))
    requests.leave(("who", None), version=2)
    requests.leave(("m", None))
    requests.describe_consumer_group()
    m.beat()
    requests.read_records()


def an_administrator_removes_static_members(requests):
    s1, s2 = (Member(requests, f"s{number}", instance=f"i{number}", assignor="range") for number in (1, 2))
    s1.join()
    s2.join()
    requests.leave(("", "i1"), ("", "i3"), ("s1", "i2"))
    requests.describe_consumer_group()
    requests.leave(("s2", "i2"))
    requests.describe_consumer_group()
    s2.join()
    requests.leave(("s2", None), version=1)
    requests.read_records()


def classic_clients_of_an_empty_group(requests):
    m = Member(requests, "m")
    m.join()
    m.leave()
    requests.sync("who", 1)
    requests.heartbeat("who", 1)
    requests.heartbeat("m", 2)
    requests.leave(("who", None), ("", "i"))
    requests.list_types()
    member = requests.enter().member_id
    requests.describe_consumer_group()
    requests.describe_as_classic()
    m.beat(epoch=2)
    m.join()
    m.leave()
    requests.sync(member, 1, [(member, b"A")])
    requests.heartbeat(member, 1)
    requests.list_types()
    requests.leave((member, None))
    m.join()
    requests.list_types()
    requests.read_records()


def a_stranger_of_a_classic_group_asks_an_empty_group(requests):
    """Kafka's log lacks the tombstones of the group if a classic member joins next: it is not read here."""
    m = Member(requests, "m")
    m.join()
    m.leave()
    requests.join("who")
    requests.list_types()


def classic_clients_commit_to_a_group_that_was_of_consumers(requests):
    m = Member(requests, "m")
    m.join()
    requests.commit([(requests.a, [(0, 1, "")])], "m", 2)
    m.leave()
    member = requests.enter().member_id
    requests.sync(member, 1, [(member, b"A")])
    requests.fetch_as()
    requests.commit([(requests.a, [(0, 2, "")])], member, 1)
    requests.commit([(requests.a, [(0, 3, "")])], member, 1, version=8)
    requests.fetch_as(member, 1)
    requests.fetch_as(member, 2)
    requests.fetch_as("who", 1)
    requests.leave((member, None))
    requests.list_types()
    requests.read_records()


def a_consumer_joins_an_empty_classic_group_that_has_offsets(requests):
    requests.commit([(requests.a, [(0, 5, "")]), (requests.b, [(1, 6, "")])])
    m = Member(requests, "m")
    m.beat(epoch=1)
    m.leave()
    m.join()
    requests.list_types()
    requests.fetch_as("m", 2, None)
    requests.commit([(requests.a, [(0, 7, "")])], "m", 2)
    requests.fetch_as("m", 2)
    requests.read_records()


def a_consumer_joins_a_classic_group_that_its_members_have_left(requests):
    member = requests.enter().member_id
    requests.sync(member, 1, [(member, b"A")])
    m = Member(requests, "m")
    m.join()
    requests.leave((member, None))
    m.beat(epoch=1)
    m.join()
    requests.heartbeat(member, 1)
    requests.describe_consumer_group()
    requests.describe_as_classic(5)
    requests.read_records()


SCRIPTS = [
    members_commit_with_their_epochs,
    commits_to_groups_that_are_not_there,
    commits_to_a_group_without_members,
    members_fetch_with_their_epochs,
    fetches_from_groups_without_members,
    members_commit_in_transactions_with_their_epochs,
    transactions_of_groups_that_are_not_there,
    looks_at_a_group,
    looks_at_a_classic_group,
    delete_groups_and_offsets,
    a_static_member_that_is_away_keeps_its_group,
    classic_clients_of_a_group_with_members,
    an_administrator_removes_static_members,
    classic_clients_of_an_empty_group,
    a_stranger_of_a_classic_group_asks_an_empty_group,
    classic_clients_commit_to_a_group_that_was_of_consumers,
    a_consumer_joins_an_empty_classic_group_that_has_offsets,
    a_consumer_joins_a_classic_group_that_its_members_have_left,
]
