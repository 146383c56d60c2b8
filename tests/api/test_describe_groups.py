"""DescribeGroups: state and members of groups."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FEW, GROUP, LEDGER, Member, commit, stable_pair
from tests.memory_broker import MemoryBroker

VERSIONS = range(6)


def describe(broker, version, *names, **more):
    return broker.call(K.DESCRIBE_GROUPS, version, groups=[*names], **more).groups


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stable_group_lists_the_metadata_and_assignments_of_members(broker, version):
    first, second = stable_pair(broker)
    (group,) = describe(broker, version, GROUP)
    told = (E(group.error_code), group.group_id, group.group_state, group.protocol_type, group.protocol_data)
    assert told == (E.NONE, GROUP, "Stable", "consumer", "range")
    assert [
        (row.member_id, row.client_id, row.client_host, row.member_metadata, row.member_assignment)
        for row in group.members
    ] == [
        (first.member_id, "client", "/10.0.0.1", b"sub", b"one"),
        (second.member_id, "client", "/10.0.0.1", b"sub", b"two"),
    ]


@pytest.mark.parametrize(("version", "name"), [(3, None), (4, "mine"), (5, "mine")])
def test_group_instance_ids_are_returned_from_version_4_on(broker, version, name):
    Member(broker, instance_id="mine").settle(version=5)
    (group,) = describe(broker, version, GROUP)
    assert getattr(group.members[0], "group_instance_id", None) == name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebalancing_group_has_no_protocol_and_no_member_data(broker, version):
    member = Member(broker)
    member.join()
    (group,) = describe(broker, version, GROUP)
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [(row.member_id, row.member_metadata, row.member_assignment) for row in group.members] == [
        (member.member_id, b"", b"")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_memberless_groups_are_empty_or_dead_and_listed_once_in_order(broker, version):
    commit(broker, (LEDGER, 0, 5))
    groups = describe(broker, version, "nobody", GROUP, "nobody", "")
    told = [(each.group_id, each.group_state, each.error_code, each.protocol_type, each.members) for each in groups]
    assert told == [("nobody", "Dead", E.NONE, "", []), (GROUP, "Empty", E.NONE, "", []), ("", "Dead", E.NONE, "", [])]


@pytest.mark.parametrize("asked_for", [False, True])
@pytest.mark.parametrize("version", range(3, 6))
def test_authorized_operations_are_returned_on_request(broker, version, asked_for):
    commit(broker, (LEDGER, 0, 5))
    groups = describe(broker, version, GROUP, "nobody", include_authorized_operations=asked_for)
    assert [each.authorized_operations for each in groups] == [{3, 6, 8, 10, 11} if asked_for else None] * 2


def test_a_group_that_is_not_found_has_no_authorized_operations(broker):
    (group,) = describe(broker, 6, "nobody", include_authorized_operations=True)
    assert (group.error_code, group.authorized_operations) == (E.GROUP_ID_NOT_FOUND, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_describing_without_a_coordinator_gets_not_coordinator(version):
    (group,) = describe(MemoryBroker(**FEW), version, GROUP, include_authorized_operations=True)
    assert (group.error_code, group.group_state, group.members) == (E.NOT_COORDINATOR, "", [])
    assert getattr(group, "authorized_operations", None) is None
