"""AlterUserScramCredentials and DescribeUserScramCredentials: SCRAM users are created, listed and deleted."""

import hashlib
import logging

import pytest

from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.security_records import UserScramCredentialRecord
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

SHA_256, SHA_512 = 1, 2
MANY = 5_000
SIZES = {SHA_256: 32, SHA_512: 64}
ALICE = "alice"


@pytest.fixture
def broker():
    made = MemoryBroker()
    yield made
    assert made.bugs == []


def upsertion(name=ALICE, mechanism=SHA_512, iterations=4096, salt=b"salt", salted_password=None):
    salted = bytes(SIZES.get(mechanism, 0)) if salted_password is None else salted_password
    row = {"name": name, "mechanism": mechanism, "iterations": iterations}
    return row | {"salt": salt, "salted_password": salted}


def deletion(name=ALICE, mechanism=SHA_512):
    return {"name": name, "mechanism": mechanism}


def alter(broker, *upsertions, deletions=()):
    """Alter credentials and return [(user, error)]; every error has a message."""
    reply = broker.call(K.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[*deletions], upsertions=[*upsertions])
    assert all(bool(row.error_message) == bool(row.error_code) for row in reply.results)
    return [(row.user, E(row.error_code)) for row in reply.results]


def describe(broker, *names, asked=True):
    """Return [(user, error, [(mechanism, iterations)])]."""
    users = [{"name": name} for name in names] if asked else None
    reply = broker.call(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
    assert (reply.error_code, reply.error_message) == (E.NONE, None)
    assert all(bool(row.error_message) == bool(row.error_code) for row in reply.results)
    return [
        (row.user, E(row.error_code), [(info.mechanism, info.iterations) for info in row.credential_infos])
        for row in reply.results
    ]


def read_credentials(broker):
    return dict(broker.assembly.broker.cluster.image.scram_credentials)


@pytest.mark.parametrize("mechanism", SIZES)
def test_a_user_is_made_described_altered_and_taken_away(broker, mechanism):
    assert alter(broker, upsertion(mechanism=mechanism)) == [(ALICE, E.NONE)]
    assert describe(broker, ALICE) == [(ALICE, E.NONE, [(mechanism, 4096)])]
    assert alter(broker, upsertion(mechanism=mechanism, iterations=16_384)) == [(ALICE, E.NONE)]
    assert describe(broker, ALICE) == [(ALICE, E.NONE, [(mechanism, 16_384)])]
    assert alter(broker, deletions=[deletion(mechanism=mechanism)]) == [(ALICE, E.NONE)]
    assert describe(broker, ALICE) == [(ALICE, E.RESOURCE_NOT_FOUND, [])]


def test_derived_keys_are_stored_instead_of_the_salted_password(broker):
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    alter(broker, upsertion(mechanism=SHA_256, salted_password=salted))
    client_key = hashlib.new("sha256", hmac_of(salted, b"Client Key")).digest()
    server_key = hmac_of(salted, b"Server Key")
    record = UserScramCredentialRecord(ALICE, SHA_256, b"salt", client_key, server_key, 4096)
    assert read_credentials(broker) == {(ALICE, SHA_256): record}
    assert salted not in bytes(record.stored_key + record.server_key)


def hmac_of(key, message):
    """Compute HMAC as defined in RFC 2104."""
    key = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).digest()


def test_a_user_has_a_credential_for_each_mechanism(broker):
    alter(broker, upsertion(mechanism=SHA_256))
    alter(broker, upsertion(mechanism=SHA_512, iterations=8192), upsertion("bob"))
    both = (ALICE, E.NONE, [(SHA_256, 4096), (SHA_512, 8192)])
    bob = ("bob", E.NONE, [(SHA_512, 4096)])
    assert describe(broker, "bob", ALICE) == [bob, both]
    assert describe(broker) == describe(broker, asked=False) == [both, bob]


def test_a_broker_without_users_describes_none(broker):
    assert describe(broker) == []


def test_a_user_named_twice_is_refused_as_a_duplicate(broker):
    alter(broker, upsertion(), upsertion("bob"))
    assert describe(broker, ALICE, "bob", ALICE) == [
        (ALICE, E.DUPLICATE_RESOURCE, []),
        ("bob", E.NONE, [(SHA_512, 4096)]),
    ]


@pytest.mark.parametrize(
    ("deletions", "upsertions"),
    [
        ([], [upsertion(), upsertion()]),
        ([], [upsertion(mechanism=SHA_256), upsertion()]),
        ([deletion()], [upsertion()]),
        ([deletion(), deletion()], []),
        ([deletion(), deletion(), deletion()], [upsertion(), upsertion()]),
    ],
    ids=["made twice", "for two mechanisms", "taken away and made", "taken away twice", "often"],
)
def test_a_user_that_is_named_twice_stays_as_it_is(broker, deletions, upsertions):
    alter(broker, upsertion(iterations=5000))
    before = read_credentials(broker)
    assert alter(broker, *upsertions, deletions=deletions) == [(ALICE, E.DUPLICATE_RESOURCE)]
    assert read_credentials(broker) == before


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (upsertion(iterations=4095), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=-1), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion("zoë"), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\0b"), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b""), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=bytes(32)), E.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), E.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), E.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=-1), E.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_credential_that_cannot_be_is_refused_and_others_are_made(broker, row, error):
    assert alter(broker, row, upsertion("bob")) == [(row["name"], error), ("bob", E.NONE)]
    assert [*read_credentials(broker)] == [("bob", SHA_512)]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (deletion("nobody"), E.RESOURCE_NOT_FOUND),
        (deletion(mechanism=SHA_256), E.RESOURCE_NOT_FOUND),
        (deletion(""), E.UNACCEPTABLE_CREDENTIAL),
        (deletion(mechanism=3), E.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_deleting_an_absent_or_invalid_credential_is_refused(broker, row, error):
    alter(broker, upsertion())
    assert alter(broker, deletions=[row]) == [(row["name"], error)]
    assert [*read_credentials(broker)] == [(ALICE, SHA_512)]


class Nobody:
    """An authorizer that refuses everything. `asked` is the list of requested rights."""

    def __init__(self):
        self.asked = []

    def authorize(self, session, need, name):
        self.asked.append((need.operation.name, need.resource_type.name, name))
        return False


def test_an_unauthorized_alteration_changes_no_credential(broker):
    alter(broker, upsertion())
    before = read_credentials(broker)
    broker.assembly.broker.authorizer = nobody = Nobody()
    refused = alter(broker, upsertion("bob"), upsertion(iterations=5000), deletions=[deletion()])
    assert refused == [(ALICE, E.CLUSTER_AUTHORIZATION_FAILED), ("bob", E.CLUSTER_AUTHORIZATION_FAILED)]
    assert read_credentials(broker) == before
    assert nobody.asked == [("ALTER", "CLUSTER", "kafka-cluster")]


@pytest.mark.parametrize("users", [None, [], [{"name": ALICE}, {"name": "nobody"}]])
def test_an_unauthorized_description_is_refused_without_credentials(broker, users):
    alter(broker, upsertion())
    broker.assembly.broker.authorizer = nobody = Nobody()
    reply = broker.call(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
    refused = E.CLUSTER_AUTHORIZATION_FAILED
    assert (reply.error_code, reply.error_message) == (refused, "Cluster authorization failed.")
    assert [(row.user, row.error_code, row.credential_infos) for row in reply.results] == [
        (user["name"], refused, []) for user in users or ()
    ]
    assert nobody.asked == [("DESCRIBE", "CLUSTER", "kafka-cluster")]


def test_scram_users_are_unsupported_at_an_old_metadata_version(broker):
    broker.assembly.broker.cluster.image.features["metadata.version"] = 10
    assert alter(broker, upsertion(), deletions=[deletion("bob")]) == [
        ("bob", E.UNSUPPORTED_VERSION),
        (ALICE, E.UNSUPPORTED_VERSION),
    ]
    assert read_credentials(broker) == {}


@pytest.mark.slow
def test_many_users_are_altered_and_described_in_shares(broker):
    rows = [upsertion(f"user-{number}", SHA_256) for number in range(MANY)]
    altering = message(K.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=rows)
    describing = message(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    broker.call(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    for asked in (altering, describing):
        weight = broker.weigh(asked, 0)
        assert weight.us < 2 * SHARE_US and weight.uncharged_calls < 1_000
    assert len(describe(broker)) == MANY


def test_an_empty_request_changes_nothing(broker):
    alter(broker, upsertion())
    broker.mark()
    assert alter(broker) == []
    assert not broker.has_changed()


def test_an_alteration_is_acknowledged_after_its_sync(flushing):
    asked = {"deletions": [], "upsertions": [upsertion()]}
    (row,) = flushing.ask(K.ALTER_USER_SCRAM_CREDENTIALS, 0, **asked).results
    assert (row.user, row.error_code) == (ALICE, E.NONE)


def test_an_alteration_is_logged_without_secrets(broker, caplog):
    with caplog.at_level(logging.INFO):
        alter(broker, upsertion(salt=b"SALT-SECRET", salted_password=b"PASSWORD-SECRET".ljust(64)))
    assert ALICE in caplog.text and "SECRET" not in caplog.text
