"""DescribeAcls, CreateAcls, DeleteAcls: entries are created, listed and deleted, invalid ones refused; restarts."""

import dataclasses

import pytest

from ottla.broker.api.acls import MOST_CHANGED
from ottla.broker.assembly import Assembly
from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.broker.costs import APPLY_CONFIG_US
from ottla.broker.turns import SHARE_US
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

ANY, MATCH, LITERAL, PREFIXED = PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
VERSIONS = (1, 2, 3)
IN_FORCE_US = MOST_CHANGED * APPLY_CONFIG_US
"""All entries of a request come into force in one step, or none."""


@pytest.fixture
def broker():
    return start_with_acls()


def start_with_acls(**options):
    options = {"super_users": "User:ANONYMOUS"} | options
    return MemoryBroker(authorizer_class_name=STANDARD_AUTHORIZER, **options)


def entry(name="orders", kind=TOPIC, pattern=LITERAL, principal="User:a", host="*", operation=WRITE, permission=ALLOW):
    return (kind, name, pattern, principal, host, operation, permission)


def create(broker, *entries, version=3):
    """Create entries and return [(error, message)]."""
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation")
    rows = [dict(zip((*names, "permission_type"), each, strict=True)) for each in entries]
    return [
        (E(row.error_code), row.error_message) for row in broker.call(K.CREATE_ACLS, version, creations=rows).results
    ]


def meaning(kind=ResourceType.ANY, name=None, pattern=ANY, principal=None, host=None, operation=1, permission=1):
    """Return the fields of a filter."""
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }


def describe(broker, version=3, **wanted):
    """Return every entry that matches the filter, in the form of `entry`, in any order."""
    reply = broker.call(K.DESCRIBE_ACLS, version, **meaning(**wanted))
    assert reply.error_code == 0, reply.error_message
    return sorted(
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for each in reply.resources
        for acl in each.acls
    )


def delete(broker, *filters, version=3):
    """Delete by filters and return [(error, entries)]."""
    reply = broker.call(K.DELETE_ACLS, version, filters=[meaning(**each) for each in filters])
    return [
        (
            E(row.error_code),
            sorted(
                (
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for acl in row.matching_acls
            ),
        )
        for row in reply.filter_results
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_are_made_listed_and_deleted(broker, version):
    made = [
        entry(),
        entry("ord", pattern=PREFIXED),
        entry("g", GROUP, operation=READ, permission=DENY, host="10.0.0.1"),
    ]
    assert create(broker, *made, version=version) == [(E.NONE, None)] * 3
    assert describe(broker, version) == sorted(made)
    assert delete(broker, {"kind": TOPIC}, version=version) == [(E.NONE, sorted(made[:2]))]
    assert describe(broker, version) == made[2:]


def test_an_entry_created_twice_is_stored_once(broker):
    assert create(broker, entry(), entry()) == create(broker, entry(), entry()) == [(E.NONE, None)] * 2
    assert describe(broker) == [entry()]
    assert len(broker.assembly.broker.cluster.image.acls) == 1


def test_entries_of_one_pattern_are_described_together(broker):
    create(broker, entry(), entry("payments"), entry(operation=READ), entry(pattern=PREFIXED))
    reply = broker.call(K.DESCRIBE_ACLS, 3, **meaning())
    assert [(each.resource_name, each.pattern_type, len(each.acls)) for each in reply.resources] == [
        ("orders", LITERAL, 2),
        ("payments", LITERAL, 1),
        ("orders", PREFIXED, 1),
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "abcdef"),
        ({"kind": TOPIC}, "abcde"),
        ({"name": "orders"}, "ab"),
        ({"name": "orders", "pattern": MATCH}, "abcd"),
        ({"name": "ordinary", "pattern": MATCH}, "cd"),
        ({"pattern": MATCH}, "abcdef"),
        ({"name": "ord", "pattern": PREFIXED}, "c"),
        ({"name": "ord", "pattern": LITERAL}, ""),
        ({"name": "*", "pattern": LITERAL}, "d"),
        ({"pattern": LITERAL}, "abdef"),
        ({"principal": "User:b"}, "be"),
        ({"host": "10.0.0.1"}, "e"),
        ({"operation": READ}, "f"),
        ({"permission": DENY}, "b"),
        ({"kind": GROUP, "name": "orders"}, ""),
    ],
)
def test_a_filter_means_what_kafka_means(broker, wanted, found):
    made = {
        "a": entry(),
        "b": entry(principal="User:b", permission=DENY),
        "c": entry("ord", pattern=PREFIXED),
        "d": entry("*"),
        "e": entry("payments", principal="User:b", host="10.0.0.1"),
        "f": entry("g", GROUP, operation=READ),
    }
    create(broker, *made.values())
    assert describe(broker, **wanted) == sorted(made[letter] for letter in found)
    assert delete(broker, wanted) == [(E.NONE, sorted(made[letter] for letter in found))]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (entry("other", CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (entry(""), "Invalid empty resource name"),
        (entry(kind=ResourceType.ANY), "Invalid resourceType ANY"),
        (entry(kind=99), "Invalid resourceType UNKNOWN"),
        (entry(pattern=MATCH), "Invalid patternType MATCH"),
        (entry(pattern=0), "Invalid patternType UNKNOWN"),
        (entry(operation=AclOperation.ANY), "Invalid operation ANY"),
        (entry(operation=77), "Invalid operation UNKNOWN"),
        (entry(permission=PermissionType.ANY), "Invalid permissionType ANY"),
        (entry(principal="alice"), "Could not parse principal from `alice` (no colon is present"),
        (entry(host=""), "The host must be an IP address"),
    ],
)
def test_an_invalid_entry_is_refused_and_the_others_are_created(broker, bad, words):
    (first, (error, message), last) = create(broker, entry(), bad, entry("payments"))
    assert first == last == (E.NONE, None)
    assert error is E.INVALID_REQUEST and message.startswith(words)
    assert describe(broker) == [entry(), entry("payments")]


@pytest.mark.parametrize("wanted", [{"kind": 0}, {"pattern": 9}, {"operation": 0}, {"permission": 50}])
def test_a_filter_with_an_unknown_value_is_refused(broker, wanted):
    create(broker, entry())
    reply = broker.call(K.DESCRIBE_ACLS, 3, **meaning(**wanted))
    assert E(reply.error_code) is E.INVALID_REQUEST and reply.error_message.startswith("Unknown ")
    assert delete(broker, wanted, {"kind": TOPIC}) == [(E.INVALID_REQUEST, []), (E.NONE, [entry()])]


def test_an_entry_that_two_filters_mean_is_listed_by_both(broker):
    create(broker, entry())
    assert delete(broker, {"kind": TOPIC}, {"name": "orders"}) == [(E.NONE, [entry()])] * 2
    assert describe(broker) == []


def test_acl_requests_without_an_authorizer_get_security_disabled():
    broker = MemoryBroker()
    assert create(broker, entry(), entry("g", GROUP)) == [(E.SECURITY_DISABLED, "No Authorizer is configured.")] * 2
    assert delete(broker, {}, {}) == [(E.SECURITY_DISABLED, [])] * 2
    reply = broker.call(K.DESCRIBE_ACLS, 3, **meaning())
    assert (reply.error_code, reply.error_message) == (E.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def test_an_unauthorized_request_is_refused_and_changes_no_entry():
    broker = start_with_acls(super_users="User:admin")
    refused = (E.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    assert create(broker, entry(), entry("")) == [refused] * 2
    assert delete(broker, {}) == [(E.CLUSTER_AUTHORIZATION_FAILED, [])]
    assert broker.call(K.DESCRIBE_ACLS, 3, **meaning()).error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert not broker.assembly.broker.cluster.image.acls


def test_a_right_that_is_given_counts_at_once_and_after_a_restart(broker):
    mine = {"principal": "User:ANONYMOUS"}
    create(
        broker, entry("kafka-cluster", CLUSTER, operation=AclOperation.DESCRIBE, **mine), entry("ord", pattern=PREFIXED)
    )
    broker.assembly.close()
    config = dataclasses.replace(broker.assembly.config, super_users="User:admin")
    broker.assembly = Assembly(config, broker.clock, broker.disk, broker.turns)
    broker.link = None
    broker.advance()
    assert len(describe(broker)) == 2
    assert create(broker, entry("more"))[0][0] is E.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_no_more_than_ten_thousand_are_made_or_deleted_at_once(broker):
    many = [entry(f"t{number}") for number in range(10_001)]
    assert {error for error, _ in create(broker, *many)} == {E.POLICY_VIOLATION}
    assert describe(broker) == []
    create(broker, *many[:9_000])
    create(broker, *many[9_000:])
    assert delete(broker, {}, {"name": "t7"}) == [(E.INVALID_REQUEST, []), (E.NONE, [many[7]])]
    assert len(describe(broker)) == 10_000


@pytest.mark.slow
def test_ten_thousand_are_made_listed_and_deleted_in_shares(broker):
    keys = (K.CREATE_ACLS, K.DESCRIBE_ACLS, K.DELETE_ACLS)
    create(broker, entry("first"))
    describe(broker)
    delete(broker, {})  # the first use of a version costs more
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation")
    rows = [dict(zip((*names, "permission_type"), entry(f"t{number}"), strict=True)) for number in range(10_000)]
    for key, fields in zip(keys, ({"creations": rows}, meaning(), {"filters": [meaning()]}), strict=True):
        weight = broker.weigh(message(key, 3, **fields), 3)
        assert weight.us < IN_FORCE_US + 2 * SHARE_US and weight.uncharged_calls < 2_000, key
    assert describe(broker) == []
