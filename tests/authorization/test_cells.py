"""Every right that an API requires, granted and not granted in every way."""

import pytest

from ottla.broker.security.acl import AclAuthorizer
from tests.authorization.cells import CELLS
from tests.authorization.grants import ALICE, SUPER_USERS, ways_of
from tests.authorization.guarded_broker import GuardedBroker, add_entries
from tests.authorization.rows_by_id import ENTRIES, QUESTIONS, read_rows


@pytest.fixture(scope="module")
def guarded_broker():
    made = GuardedBroker()
    yield made
    assert made.broker.bugs == []


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_requests_are_allowed_only_with_the_required_right(guarded_broker, cell):
    expected = {way.name: cell.allowed if way.expected else cell.denied for way in ways_of(cell)}
    assert {way.name: guarded_broker.play(cell, way) for way in ways_of(cell)} == expected


@pytest.mark.parametrize("question", QUESTIONS, ids=[question.name for question in QUESTIONS])
def test_rows_of_ids_show_only_what_the_client_may_see(guarded_broker, question):
    authorizer = add_entries(AclAuthorizer(SUPER_USERS, False), ENTRIES)
    (reply,) = guarded_broker.ask(question, ALICE, authorizer)
    assert read_rows(question, reply, guarded_broker.id_of) == question.expected


def test_names_of_cells_are_unique():
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
