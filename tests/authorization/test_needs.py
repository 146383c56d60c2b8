"""The handler of each API asks for exactly the rights that the table lists."""

import pytest

from ottla.broker.api.authorization import need_of
from ottla.broker.api.table import TABLE
from ottla.protocol.errors import NO_ERROR
from tests.authorization.cells import CELLS
from tests.authorization.guarded_broker import GuardedBroker

WITHOUT_RIGHTS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
"""APIs that every connected client may use."""
OF_ANOTHER_ERROR = {("InitProducerId", "WRITE", "TOPIC")}
"""Needs that can replace a right to the cluster."""


def refusing(api):
    """Return the needs of an API, without those that only report the authorized operations of a resource."""
    return [need for need in api.needs if need.error is not NO_ERROR]


def kinds(needs):
    return {(need.operation, need.resource_type) for need in needs}


def test_only_listed_apis_require_no_right():
    assert {api.title for api in TABLE.values() if not api.needs} <= WITHOUT_RIGHTS


@pytest.mark.parametrize("api", TABLE.values(), ids=lambda api: api.title)
def test_the_error_of_a_missing_right_is_that_of_its_resource_type(api):
    for need in refusing(api):
        if (api.title, need.operation.name, need.resource_type.name) not in OF_ANOTHER_ERROR:
            assert need.error is need_of(need.operation, need.resource_type).error


@pytest.mark.parametrize("api", TABLE.values(), ids=lambda api: api.title)
def test_every_right_is_played(api):
    played = {(cell.right.operation, cell.right.resource_type) for cell in CELLS if cell.api_key == api.key}
    assert kinds(refusing(api)) <= played


class Recorder:
    """An authorizer that allows everything and records the requested rights."""

    def __init__(self, answer):
        self.asked = []
        self._answer = answer

    def authorize(self, session, need, name):
        self.asked.append(need)
        return self._answer

    def authorize_by_resource_type(self, session, need):
        return self.authorize(session, need, "")


@pytest.mark.parametrize("answer", [True, False], ids=["allowed", "denied"])
def test_a_handler_checks_only_rights_listed_in_the_table(answer):
    guarded_broker = GuardedBroker()
    for cell in CELLS:
        recorder = Recorder(answer)
        guarded_broker.ask(cell, "User:alice", recorder)
        assert recorder.asked, cell.name
        unsaid = {need for need in recorder.asked if need.error is not NO_ERROR} - {*TABLE[cell.api_key].needs}
        assert not unsaid, cell.name
