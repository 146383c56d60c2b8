"""AlterClientQuotas and DescribeClientQuotas: quotas are set, listed, refused and removed."""

import pytest

from ottla.broker.api.alter_client_quotas import MOST_RECORDS
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

PRODUCER, CONSUMER, RATE = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
EXACT, DEFAULT, SPECIFIED = range(3)
ADA, APP = {"user": "ada"}, {"client-id": "app"}


@pytest.fixture
def broker():
    return MemoryBroker()


def _entry(entity, **ops):
    """Return a row of the request; a value of None removes the quota."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops.items()],
    }


def _alter(broker, *entries, validate_only=False, version=1):
    """Alter quotas and return (error, message) of each row."""
    reply = broker.call(K.ALTER_CLIENT_QUOTAS, version, entries=[*entries], validate_only=validate_only)
    return [(E(row.error_code), row.error_message) for row in reply.entries]


def _set(broker, entity, **ops):
    assert _alter(broker, _entry(entity, **ops)) == [(E.NONE, None)]


def _describe(broker, *components, strict=False, version=1):
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return broker.call(K.DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict)


def _found(broker, *components, **given):
    """Return the quotas by entity."""
    reply = _describe(broker, *components, **given)
    assert (reply.error_code, reply.error_message) == (E.NONE, "")
    return [
        ({pair.entity_type: pair.entity_name for pair in row.entity}, {each.key: each.value for each in row.values})
        for row in reply.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_that_is_set_is_described_and_enforced(broker, version):
    quotas = broker.assembly.broker.quotas
    assert _alter(broker, _entry(ADA, producer_byte_rate=1024.0, request_percentage=12.5), version=version) == [
        (E.NONE, None)
    ]
    assert _found(broker, version=version) == [(ADA, {PRODUCER: 1024.0, "request_percentage": 12.5})]
    assert quotas.enabled and quotas.produce.sensors.limit("ada", "any") == 1024.0
    _set(broker, ADA, producer_byte_rate=2048.0, request_percentage=None)
    assert _found(broker) == [(ADA, {PRODUCER: 2048.0})]
    assert quotas.produce.sensors.limit("ada", "any") == 2048.0
    _set(broker, ADA, producer_byte_rate=None)
    assert _found(broker) == [] and not quotas.enabled


def test_only_checking_changes_nothing(broker):
    assert _alter(broker, _entry(ADA, producer_byte_rate=1.0), validate_only=True) == [(E.NONE, None)]
    assert _found(broker) == []


def test_an_address_has_a_rate_of_connections(broker):
    _set(broker, {"ip": "10.0.0.1"}, connection_creation_rate=3.0)
    _set(broker, {"ip": None}, connection_creation_rate=30.0)
    assert _found(broker, ("ip", EXACT, "10.0.0.1")) == [({"ip": "10.0.0.1"}, {RATE: 3.0})]
    enter = broker.assembly.broker.quotas.connections.enter
    assert sum(enter("10.0.0.1", 0.0) for _ in range(100)) == 30
    assert sum(enter("10.0.0.2", 0.0) for _ in range(1_000)) == 300


@pytest.mark.parametrize(
    ("entity", "ops", "told"),
    [
        ({}, {PRODUCER: 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {PRODUCER: 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {PRODUCER: 1.0}, "Empty user not supported"),
        (
            {"ip": "10.0.0.1", "user": "ada"},
            {RATE: 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "no-address"}, {RATE: 1.0}, "no-address is not a valid IP or resolvable host."),
        (ADA, {"bogus": 1.0}, "Invalid configuration key bogus"),
        (ADA, {RATE: 1.0}, f"Invalid configuration key {RATE}"),
        ({"ip": None}, {PRODUCER: 1.0}, f"Invalid configuration key {PRODUCER}"),
        (ADA, {PRODUCER: -1.0}, f"Quota {PRODUCER} must be greater than 0"),
        (ADA, {PRODUCER: 1.5}, f"{PRODUCER} cannot be a fractional value."),
        (ADA, {CONSUMER: 1e19}, f"Proposed value for {CONSUMER} is too large for a LONG."),
        ({"ip": None}, {RATE: 3e9}, f"Proposed value for {RATE} is too large for an INT."),
        (ADA, {"request_percentage": float("nan")}, "Quota request_percentage must be greater than 0"),
    ],
)
def test_an_invalid_quota_is_refused_with_kafkas_message_and_not_set(broker, entity, ops, told):
    rows = _alter(broker, _entry(entity, **ops), _entry(APP, producer_byte_rate=7.0))
    assert rows == [(E.INVALID_REQUEST, told), (E.NONE, None)]
    assert _found(broker) == [(APP, {PRODUCER: 7.0})]


def test_one_bad_quota_of_an_entity_spoils_its_others(broker):
    assert _alter(broker, _entry(ADA, producer_byte_rate=1.0, bogus=1.0))[0][0] is E.INVALID_REQUEST
    assert _found(broker) == []


def test_an_entity_with_two_rows_is_not_changed(broker):
    rows = _alter(broker, _entry(ADA, producer_byte_rate=1.0), _entry(APP, producer_byte_rate=2.0), _entry(ADA))
    assert rows == [
        (E.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=ada})"),
        (E.NONE, None),
    ]
    assert _found(broker) == [(APP, {PRODUCER: 2.0})]


def test_a_key_that_is_named_twice_is_refused(broker):
    row = _entry(ADA, producer_byte_rate=1.0)
    row["ops"] *= 2
    ((error, told),) = _alter(broker, row)
    assert error is E.INVALID_REQUEST and told.startswith(f"Duplicate quota key {PRODUCER} not updating quota")


def test_removing_an_absent_quota_writes_no_record(broker):
    before = broker.disk.size_bytes("/data/__cluster_metadata-0/00000000000000000000.log")
    _set(broker, ADA, producer_byte_rate=None)
    assert broker.disk.size_bytes("/data/__cluster_metadata-0/00000000000000000000.log") == before


def test_a_request_of_too_many_changes_is_refused_whole(broker):
    rows = [_entry({"user": f"u{number}"}, producer_byte_rate=1.0) for number in range(MOST_RECORDS // 4)]
    for row in rows:
        row["ops"] += _entry({}, consumer_byte_rate=1.0, request_percentage=1.0, controller_mutation_rate=1.0)["ops"]
    rows.append(_entry(ADA, producer_byte_rate=1.0))
    told = "Unable to perform excessively large batch operation."
    assert set(_alter(broker, *rows)) == {(E.POLICY_VIOLATION, told)}
    assert _found(broker) == []


@pytest.fixture
def many_quotas(broker):
    entities = [
        ADA,
        {"user": None},
        APP,
        {"client-id": None},
        ADA | APP,
        {"user": "ada", "client-id": None},
        {"ip": None},
    ]
    for number, entity in enumerate(entities, 1):
        key = RATE if "ip" in entity else PRODUCER
        _set(broker, entity, **{key: float(number)})
    return broker


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {1, 2, 3, 4, 5, 6, 7}),
        ([], True, set()),
        ([("user", EXACT, "ada")], False, {1, 5, 6}),
        ([("user", EXACT, "ada")], True, {1}),
        ([("user", DEFAULT, None)], False, {2}),
        ([("user", SPECIFIED, None)], True, {1, 2}),
        ([("client-id", SPECIFIED, None)], False, {3, 4, 5, 6}),
        ([("user", EXACT, "ada"), ("client-id", DEFAULT, None)], True, {6}),
        ([("ip", SPECIFIED, None)], True, {7}),
        ([("user", EXACT, "bob")], False, set()),
    ],
)
def test_a_filter_finds_what_it_names(many_quotas, components, strict, found):
    assert {min(values.values()) for _, values in _found(many_quotas, *components, strict=strict)} == found


@pytest.mark.parametrize(
    ("components", "error", "told"),
    [
        ([("", EXACT, "a")], E.INVALID_REQUEST, "Invalid empty entity type."),
        ([("user", EXACT, "a")] * 2, E.INVALID_REQUEST, "Entity type user cannot appear more than once in the filter."),
        ([("group", EXACT, "a")], E.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        (
            [("user", EXACT, None)],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "a")],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", SPECIFIED, "a")],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 9, None)], E.INVALID_REQUEST, "Unknown match type 9"),
        (
            [("ip", SPECIFIED, None), ("user", SPECIFIED, None)],
            E.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(many_quotas, components, error, told):
    reply = _describe(many_quotas, *components)
    assert (reply.error_code, reply.error_message, reply.entries) == (error, told, None)


def test_many_quotas_are_described_in_shares(broker):
    for start in range(0, 5_000, 1_000):
        rows = [_entry({"user": f"u{number}"}, producer_byte_rate=1.0) for number in range(start, start + 1_000)]
        assert set(_alter(broker, *rows)) == {(E.NONE, None)}
    asked = message(K.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    assert broker.weigh(asked, 1).us < 4_000
    assert len(_found(broker)) == 5_000


def test_an_alteration_is_acknowledged_after_its_sync(flushing):
    reply = flushing.ask(K.ALTER_CLIENT_QUOTAS, 1, entries=[_entry(ADA, producer_byte_rate=1.0)], validate_only=False)
    assert [row.error_code for row in reply.entries] == [E.NONE]
