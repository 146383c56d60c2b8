"""Scripts of brokers with a `group.consumer.migration.policy` other than `bidirectional` (section 11).

The members choose their ids where they may, so that the range assignor gives the same on every broker.
"""

from consumer_group_migration_scripts import ClassicMember, finish, mix, settle
from consumer_group_requests import Member

from tests.subscriptions import assign

# -- where nobody migrates ---------------------------------------------------------------------------------------------


def groups_that_do_not_migrate(requests):
    old, new = settle(requests), Member(requests, "m1", assignor="range")
    new.join()
    old.beat()
    old.leave()
    new.join()
    old.join()
    requests.join("", protocols=old.rows())
    requests.join("", "i", protocols=old.rows(), protocol_type="connect")
    requests.join("who", version=3, protocols=[])
    old.beat()
    new.leave()
    finish(requests)


# -- where groups only upgrade -----------------------------------------------------------------------------------------


def groups_that_only_upgrade(requests):
    old, new = mix(requests)
    new.leave()
    requests.list_types()
    old.beat()
    old.sync()
    old.join()
    old.sync()
    old.beat()
    old.commit()
    requests.describe_consumer_group()
    other = ClassicMember(requests, "c1")
    other.join({})
    other.sync()
    old.join()
    old.sync()
    new = Member(requests, "m2", assignor="range")
    new.join()
    requests.leave(("m2", None))
    other.leave()
    old.leave()
    requests.list_types()
    old = settle(requests)
    requests.list_types()
    old.leave()
    finish(requests)


def static_members_where_groups_only_upgrade(requests):
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    old = ClassicMember(requests, "c1", "i1")
    old.join({})
    old = ClassicMember(requests, "", "i1")
    old.join({})
    requests.list_types()
    old.sync()
    old.beat()
    new = Member(requests, "m2", instance="i2", assignor="range")
    new.join()
    requests.leave(("", "i2"))
    requests.list_types()
    old.join()
    old.sync()
    old.beat()
    new = Member(requests, "m3", instance="i1", assignor="range")
    new.join()
    old.beat()
    new.leave(-2)
    old = ClassicMember(requests, "", "i1")
    old.join({})
    old.sync()
    finish(requests)


# -- where groups only downgrade ---------------------------------------------------------------------------------------


def groups_that_only_downgrade(requests):
    old, new = settle(requests), Member(requests, "m1", assignor="range")
    new.join()
    new.beat(epoch=1)
    old.beat()
    requests.list_types()
    old.leave()
    new.join()
    requests.list_types()
    old = ClassicMember(requests, "c1")
    old.join({})
    old.sync()
    new.beat({requests.a: [3, 4, 5]})
    old.beat()
    old.join()
    old.sync()
    old.beat()
    old.commit()
    requests.describe_consumer_group()
    new.leave()
    requests.list_types()
    old.beat()
    new.join()
    old.join()
    old.sync(given=[(old.member_id, assign(**{requests.a: [0, 1, 2, 3, 4, 5]}))])
    new.join()
    old.beat()
    old.leave()
    new.join()
    finish(requests)


def static_members_where_groups_only_downgrade(requests):
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    old = ClassicMember(requests, "", "i1")
    old.join({})
    requests.list_types()
    old.sync()
    old.beat()
    new.join()
    Member(requests, "m2", instance="i2", assignor="range").join()
    old.beat()
    old.leave()
    new.join()
    old = ClassicMember(requests, "", "i2")
    old.join({})
    old.sync()
    requests.leave(("", "i1"))
    requests.list_types()
    old.beat()
    old.join()
    requests.read_records(ordered=False)


POLICIES = {
    "Disabled": [groups_that_do_not_migrate],
    "Upgrade": [groups_that_only_upgrade, static_members_where_groups_only_upgrade],
    "Downgrade": [groups_that_only_downgrade, static_members_where_groups_only_downgrade],
}
"""Scripts by policy, as Kafka spells it."""
