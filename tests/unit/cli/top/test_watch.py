"""Descriptions of groups for `ottla top`: size of the requests, replies with other groups, and errors."""

from types import SimpleNamespace

import pytest

from ottla.cli.top.picture import ListedGroup
from ottla.cli.top.watch import Watch
from ottla.protocol.errors import ErrorCode
from ottla.wire import Unanswered
from ottla.wire.cluster import GROUPS_AT_ONCE

ADDRESS = ("one", 9092)


def list_group(group_id, kind="consumer"):
    return ListedGroup(group_id, kind, "Stable", None, None, 1)


def describe_group(group_id, error=ErrorCode.NONE):
    return SimpleNamespace(
        error_code=error, group_id=group_id, group_state="Assigning", group_epoch=7, assignment_epoch=6
    )


@pytest.fixture
def watch(monkeypatch):
    """Return a watch whose broker describes the groups by their names, and one that no request has."""
    watch, asked = Watch([ADDRESS], 1.0), []

    def ask(address, message, version=None):
        asked.append(message.group_ids)
        if "silent" in message.group_ids:
            raise Unanswered("one:9092: no answer within 1 s")
        errors = {"denied": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "ended": ErrorCode.GROUP_ID_NOT_FOUND}
        rows = [describe_group(name, errors.get(name, ErrorCode.NONE)) for name in message.group_ids]
        return SimpleNamespace(groups=[*rows, describe_group("not asked for")])

    monkeypatch.setattr(watch, "ask", ask)
    watch.asked = asked
    return watch


def test_groups_of_the_consumer_protocol_are_described_some_at_a_time(watch):
    groups = [list_group(f"g{number}") for number in range(2 * GROUPS_AT_ONCE + 1)]
    gaps = []
    found = watch._with_epochs(ADDRESS, [list_group("old", "classic"), *groups], gaps)
    assert [len(ids) for ids in watch.asked] == [GROUPS_AT_ONCE, GROUPS_AT_ONCE, 1]
    assert found == [
        list_group("old", "classic"),
        *(each._replace(state="Assigning", epoch=7, assignment_epoch=6) for each in groups),
    ]
    assert gaps == []


def test_group_that_is_not_described_stays_as_listed(watch):
    gaps = []
    groups = [list_group("denied"), list_group("ended")]
    assert watch._with_epochs(ADDRESS, groups, gaps) == groups
    assert gaps == ["broker 1 does not describe groups: TOPIC_AUTHORIZATION_FAILED"]


def test_silent_broker_leaves_the_groups_as_listed(watch):
    gaps = []
    assert watch._with_epochs(ADDRESS, [list_group("silent")], gaps) == [list_group("silent")]
    assert gaps == ["one:9092: no answer within 1 s"]
