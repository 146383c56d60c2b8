"""ListGroups: every group, or those of some states."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, Member, commit

VERSIONS = range(5)
EVERY = {("empty", "", "Empty"), ("stable", "consumer", "Stable"), ("joining", "connect", "CompletingRebalance")}


@pytest.fixture
def broker(broker):
    commit(broker, (LEDGER, 0, 5), group_id="empty")
    Member(broker, "stable").settle()
    Member(broker, "joining").join(protocol_type="connect")
    return broker


def list_groups(broker, version, *states):
    reply = broker.call(K.LIST_GROUPS, version, states_filter=[*states])
    assert reply.error_code == E.NONE
    return {(row.group_id, row.protocol_type, row.group_state) for row in reply.groups}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_group_is_listed_with_its_state_from_version_4_on(broker, version):
    assert list_groups(broker, version) == {(*row[:2], row[2] if version >= 4 else "") for row in EVERY}


@pytest.mark.parametrize(
    ("states", "found"),
    [
        (["Stable"], {"stable"}),
        (["stable", " EMPTY "], {"stable", "empty"}),
        (["CompletingRebalance", "Dead"], {"joining"}),
        (["PreparingRebalance"], set()),
        (["Sleeping"], set()),
    ],
)
def test_states_filter_in_any_case(broker, states, found):
    assert {row[0] for row in list_groups(broker, 4, *states)} == found
    assert len(list_groups(broker, 3, *states)) == 3, "the version has no filter"


def test_a_group_that_was_deleted_is_not_listed(broker):
    broker.call(K.DELETE_GROUPS, 2, groups_names=["empty"])
    assert {row[0] for row in list_groups(broker, 4)} == {"stable", "joining"}
