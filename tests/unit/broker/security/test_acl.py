"""Authorization by ACL entries, compared with a model that checks every entry as the documentation says."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.security.acl import MOST_DECISIONS, AclAuthorizer
from ottla.broker.security.authorizer import Need
from ottla.broker.security.session import Session
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
READ, WRITE, ALL, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL, AclOperation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
IMPLYING = {
    DESCRIBE: {DESCRIBE, READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS},
}

_ids = count(1)


def entry(
    name: str = "orders",
    operation: AclOperation = WRITE,
    permission: PermissionType = ALLOW,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        next(_ids).to_bytes(16, "big"), resource_type, name, pattern, principal, host, operation, permission
    )


def authorizer_of(
    *entries: AccessControlEntryRecord, everyone: bool = False, supers: Sequence[str] = ()
) -> AclAuthorizer:
    authorizer = AclAuthorizer(supers, everyone)
    for each in entries:
        authorizer.add(each)
    return authorizer


def may(
    authorizer: AclAuthorizer,
    operation: AclOperation = WRITE,
    name: str = "orders",
    principal: str = "User:alice",
    host: str = "10.0.0.1",
    resource_type: ResourceType = TOPIC,
) -> bool:
    session = Session(peer=f"{host}:40000", principal=principal)
    need = Need(operation, resource_type, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    allowed = authorizer.authorize(session, need, name)
    assert authorizer.authorize(session, need, name) is allowed, "remembered"
    assert authorizer.why(principal, host, operation, resource_type, name).allowed is allowed
    return allowed


class TestRules:
    def test_access_without_an_acl_is_denied(self) -> None:
        assert not may(authorizer_of())

    def test_allow_everyone_applies_only_to_resources_without_acls(self) -> None:
        authorizer = authorizer_of(entry("payments", READ, principal="User:bob"), everyone=True)
        assert may(authorizer)
        assert not may(authorizer, WRITE, "payments")
        assert may(authorizer, READ, "payments", "User:bob")

    def test_a_super_user_may_do_what_is_denied(self) -> None:
        assert may(authorizer_of(entry("*", ALL, DENY, principal="User:*"), supers=["User:alice"]))

    @pytest.mark.parametrize(
        "denying",
        [
            entry("*", WRITE, DENY),
            entry("o", WRITE, DENY, PREFIXED),
            entry("orders", WRITE, DENY, PREFIXED),
            entry(permission=DENY),
            entry(operation=ALL, permission=DENY),
            entry(permission=DENY, host="10.0.0.1"),
            entry(permission=DENY, principal="User:*"),
            entry(permission=DENY, principal="User:*", host="10.0.0.1"),
        ],
    )
    def test_a_deny_anywhere_wins(self, denying: AccessControlEntryRecord) -> None:
        authorizer = authorizer_of(entry(), entry("*"), entry("ord", pattern=PREFIXED), entry(host="10.0.0.1"), denying)
        assert not may(authorizer)
        assert authorizer.why("User:alice", "10.0.0.1", WRITE, TOPIC, "orders").entry == denying._replace(id=b"")
        authorizer.remove(denying.id)
        assert may(authorizer)

    def test_an_acl_allows_but_does_not_deny_implied_operations(self) -> None:
        for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
            assert may(authorizer_of(entry(operation=operation)), DESCRIBE)
            assert may(authorizer_of(entry(operation=operation, permission=DENY), entry(operation=DESCRIBE)), DESCRIBE)
        assert not may(authorizer_of(entry(operation=AclOperation.CREATE)), DESCRIBE)
        assert may(authorizer_of(entry(operation=AclOperation.ALTER_CONFIGS)), AclOperation.DESCRIBE_CONFIGS)
        assert not may(authorizer_of(entry(operation=AclOperation.ALTER)), AclOperation.DESCRIBE_CONFIGS)
        assert not may(authorizer_of(entry(operation=AclOperation.DESCRIBE_CONFIGS)), AclOperation.ALTER_CONFIGS)

    def test_an_address_of_ipv6_matches_in_any_spelling(self) -> None:
        for host in ("0:0:0:0:0:0:0:1", "::1"):
            assert may(authorizer_of(entry(host=host)), host="::1")
        assert may(authorizer_of(entry(host="10.0.0.1")), host="::ffff:10.0.0.1")
        assert not may(authorizer_of(entry(host="::2")), host="::1")

    @pytest.mark.parametrize("host", ["", "example.com", "example.com:x", "10.0.0.1:40000", "10.0.0.0/8", "::1/128"])
    @pytest.mark.parametrize("client", ["10.0.0.1", "::1"])
    def test_an_acl_with_an_invalid_host_matches_no_client(self, host: str, client: str) -> None:
        assert not may(authorizer_of(entry(host=host)), host=client)
        assert may(authorizer_of(entry(), entry(permission=DENY, host=host)), host=client)

    def test_an_operation_of_a_later_version_allows_nothing(self) -> None:
        authorizer = authorizer_of(entry()._replace(operation=99), entry()._replace(operation=98), everyone=True)
        assert not may(authorizer)


class TestByResourceType:
    NEED = Need(WRITE, TOPIC, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    @pytest.mark.parametrize(
        ("entries", "allowed"),
        [
            ([], False),
            ([entry()], True),
            ([entry(operation=READ)], False),
            ([entry(operation=ALL)], True),
            ([entry(principal="User:bob")], False),
            ([entry(principal="User:*")], True),
            ([entry(host="10.0.0.2")], False),
            ([entry(host="10.0.0.1")], True),
            ([entry(resource_type=GROUP)], False),
            ([entry(), entry(permission=DENY)], False),
            ([entry(), entry("*", permission=DENY)], False),
            ([entry(), entry("*"), entry("*", ALL, DENY)], False),
            ([entry(), entry("ord", WRITE, DENY, PREFIXED)], False),
            ([entry("*"), entry("ord", WRITE, DENY, PREFIXED)], True),
            ([entry("ord", pattern=PREFIXED), entry("orders", permission=DENY)], True),
            ([entry("ord", pattern=PREFIXED), entry("ord", WRITE, DENY, PREFIXED)], False),
            ([entry("ord", pattern=PREFIXED), entry("orders", WRITE, DENY, PREFIXED)], True),
            ([entry(), entry("payments"), entry(permission=DENY)], True),
            ([entry("ord", pattern=PREFIXED), entry("ord", permission=DENY)], True),
        ],
    )
    def test_some_name_must_be_left(self, entries: list[AccessControlEntryRecord], allowed: bool) -> None:
        session = Session(peer="10.0.0.1:1", principal="User:alice")
        authorizer = authorizer_of(*entries)
        assert authorizer.authorize_by_resource_type(session, self.NEED) is allowed
        assert authorizer.authorize_by_resource_type(session, self.NEED) is allowed, "remembered"

    def test_super_users_and_those_whom_an_option_lets_in(self) -> None:
        session = Session(peer="10.0.0.1:1", principal="User:alice")
        denied = entry("*", WRITE, DENY)
        assert authorizer_of(denied, supers=["User:alice"]).authorize_by_resource_type(session, self.NEED)
        assert authorizer_of(everyone=True).authorize_by_resource_type(session, self.NEED)
        assert not authorizer_of(denied, everyone=True).authorize_by_resource_type(session, self.NEED)


class TestRemembered:
    def test_added_and_removed_acls_take_effect_at_once(self) -> None:
        authorizer = authorizer_of()
        assert not may(authorizer)
        allowing = entry()
        authorizer.add(allowing)
        assert may(authorizer)
        authorizer.remove(allowing.id)
        assert not may(authorizer)

    def test_the_cache_of_decisions_is_bounded(self) -> None:
        authorizer = authorizer_of(entry("t", pattern=PREFIXED))
        for number in range(MOST_DECISIONS + 10):
            assert may(authorizer, name=f"t{number}")
        may(authorizer, name="t" * 30_000)
        assert len(authorizer._decisions) < MOST_DECISIONS

    def test_removing_an_acl_leaves_an_equal_one_in_effect(self) -> None:
        first, second = entry(host="::1"), entry(host="0:0:0:0:0:0:0:1")
        authorizer = authorizer_of(first, second, entry(host="::1"))
        for gone in (first, second):
            authorizer.remove(gone.id)
            assert may(authorizer, host="::1")

    def test_an_acl_with_a_reused_id_replaces_the_old_one(self) -> None:
        first = entry()
        authorizer = authorizer_of(first)
        authorizer.add(first._replace(resource_name="payments"))
        assert not may(authorizer)
        assert may(authorizer, name="payments")

    def test_removed_acls_leave_no_state(self) -> None:
        entries = [entry(), entry("a", pattern=PREFIXED), entry(permission=DENY, host="10.0.0.1"), entry()]
        authorizer = authorizer_of(*entries, everyone=True)
        for each in entries:
            authorizer.remove(each.id)
        authorizer.remove(b"unknown")
        assert may(authorizer)
        assert not authorizer.entries and not authorizer._hosts and not authorizer._allowed and not authorizer._again


# ---- the model

_names = st.sampled_from(["a", "ab", "abc", "abd", "b", "hard", "hardcode"])
_principals = st.sampled_from(["User:alice", "User:bob", "User:*"])
_hosts = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
_operations = st.sampled_from([READ, WRITE, ALL, DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS])
_types = st.sampled_from([TOPIC, GROUP])
_entries = st.builds(
    entry,
    st.one_of(_names, st.just("*")),
    _operations,
    st.sampled_from([ALLOW, ALLOW, DENY]),
    st.sampled_from([LITERAL, PREFIXED]),
    _principals,
    _hosts,
    _types,
)


def _matches(each: AccessControlEntryRecord, principal: str, host: str) -> bool:
    return each.principal in (principal, "User:*") and each.host in (host, "*")


def model_may(
    entries: Sequence[AccessControlEntryRecord],
    everyone: bool,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    touching = [
        each
        for each in entries
        if each.resource_type == resource_type
        and (each.resource_name in (name, "*") if each.pattern_type == LITERAL else name.startswith(each.resource_name))
    ]
    if not touching:
        return everyone
    mine = [each for each in touching if _matches(each, principal, host)]
    if any(each.permission_type == DENY and each.operation in (operation, ALL) for each in mine):
        return False
    allowing = {ALL, *IMPLYING.get(operation, {operation})}
    return any(each.permission_type == ALLOW and each.operation in allowing for each in mine)


def model_may_by_type(
    entries: Sequence[AccessControlEntryRecord],
    everyone: bool,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
) -> bool:
    if model_may(entries, everyone, principal, host, operation, resource_type, "hardcode"):
        return True
    mine = [
        each
        for each in entries
        if each.resource_type == resource_type
        and _matches(each, principal, host)
        and each.operation in (operation, ALL)
    ]
    patterns = {(each.permission_type, each.pattern_type, each.resource_name) for each in mine}
    if (DENY, LITERAL, "*") in patterns:
        return False
    if (ALLOW, LITERAL, "*") in patterns:
        return True
    denied_prefixes = [name for permission, pattern, name in patterns if (permission, pattern) == (DENY, PREFIXED)]
    return any(
        permission == ALLOW
        and not (pattern == LITERAL and (DENY, LITERAL, name) in patterns)
        and not any(name.startswith(prefix) for prefix in denied_prefixes)
        for permission, pattern, name in patterns
    )


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(_entries, max_size=12), st.data(), st.booleans())
def test_the_acl_index_decides_like_a_scan_of_all_entries(
    entries: list[AccessControlEntryRecord], data: st.DataObject, everyone: bool
) -> None:
    authorizer = authorizer_of(*entries, everyone=everyone)
    left = [each for each in entries if not data.draw(st.booleans(), "removed")]
    for each in entries:
        if each not in left:
            authorizer.remove(each.id)
    for principal in ("User:alice", "User:bob"):
        session = Session(peer="10.0.0.1:9", principal=principal)
        for operation in (READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
            for resource_type in (TOPIC, GROUP):
                asked = (everyone, principal, "10.0.0.1", operation, resource_type)
                for name in ("a", "abc", "hardcode", "z", "*"):
                    wanted = model_may(left, *asked, name)
                    assert may(authorizer, operation, name, principal, "10.0.0.1", resource_type) is wanted
                need = Need(operation, resource_type, ErrorCode.NONE)
                assert authorizer.authorize_by_resource_type(session, need) is model_may_by_type(left, *asked)
