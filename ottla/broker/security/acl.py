"""Authorization by ACLs, with the decisions of Kafka's StandardAuthorizer. pure

Source: `StandardAuthorizerData` of Kafka 4.3.1, and the default of `Authorizer.authorizeByResourceType`. Super users
may do everything. For others, a matching DENY takes precedence over every ALLOW. Without a match the operation is
denied, except where no entry matches the resource name and `allow.everyone.if.no.acl.found` is true.

A decision looks up the name, and one prefix of it for each length that PREFIXED entries have. Its cost does not depend
on the number of entries. Recent decisions are cached until an entry changes.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.broker.costs import LOAD_ACL_US
from ottla.broker.security.authorizer import Need
from ottla.broker.security.session import Session
from ottla.protocol.acls import WILDCARD, WILDCARD_PRINCIPAL, AclOperation, PatternType, PermissionType
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    SecurityRecord,
)
from ottla.protocol.steps import Steps

MOST_DECISIONS: Final = 10_000
"""Most decisions in the cache; with names of at most `REMEMBERED_CHARS` characters they take 4 MB."""
REMEMBERED_CHARS: Final = 249
_REMEMBERED_HOSTS: Final = 1_024
_LOADED_AT_ONCE: Final = 200
ANY_NAME: Final = "hardcode"
"""Name that Kafka checks first when it checks a whole resource type."""

_LITERAL: Final = PatternType.LITERAL.value
_PREFIXED: Final = PatternType.PREFIXED.value
_ALLOW: Final = PermissionType.ALLOW.value
_OPERATIONS: Final = 16
_FIRST_DENY: Final = 1 << _OPERATIONS
_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operations that other operations imply: an ALLOW of one of the values also allows the key."""

# Permissions of one principal and host on one pattern, as a number: the low bits are the allowed operations, the bits
# above them the denied ones.
_Mask = int
_Holder = str | tuple[str, str]
"""Principal at any host, or (principal, host)."""
_Unpacked = tuple[int, int, str, _Holder, _Mask]
"""One entry as (resource type, kind of pattern, name, holder, bit)."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


_ALLOWED_BY: Final = {
    operation.value: _bits(operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())) for operation in AclOperation
}
_DENIED_BY: Final = {operation.value: _bits(operation, AclOperation.ALL) << _OPERATIONS for operation in AclOperation}


class Decision(NamedTuple):
    """Decision and its reason: the entry that decides, or the name of a rule in Kafka's log.

    `touching` is the number of patterns with entries that the name matches.
    """

    allowed: bool
    entry: AccessControlEntryRecord | None
    rule: str
    touching: int


class _Patterns:
    """Entries of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, dict[_Holder, _Mask]] = {}
        self.prefixed: dict[str, dict[_Holder, _Mask]] = {}
        self.lengths: tuple[int, ...] = ()
        """Lengths of the prefixes, the longest first."""
        self._of_length: dict[int, int] = {}

    def grants(self, pattern_type: int, name: str) -> dict[_Holder, _Mask]:
        """Return the grants of a pattern, which the caller may change."""
        if pattern_type == _LITERAL:
            return self.literal.setdefault(name, {})
        if name not in self.prefixed:
            self.prefixed[name] = {}
            self._count(len(name), 1)
        return self.prefixed[name]

    def drop(self, pattern_type: int, name: str) -> None:
        """Remove a pattern without entries."""
        if pattern_type == _LITERAL:
            del self.literal[name]
        else:
            del self.prefixed[name]
            self._count(len(name), -1)

    def prefixes(self, name: str) -> Iterator[tuple[str, dict[_Holder, _Mask]]]:
        """Yield (prefix, grants) of each PREFIXED pattern that a name matches, the longest first."""
        prefixed, size = self.prefixed, len(name)
        for length in self.lengths:
            if length <= size and (grants := prefixed.get(name[:length])) is not None:
                yield name[:length], grants

    def matching(self, name: str) -> Iterator[tuple[int, str, dict[_Holder, _Mask]]]:
        """Yield (pattern type, pattern name, grants) of each pattern that a name matches, in Kafka's order."""
        if (grants := self.literal.get(name)) is not None:
            yield _LITERAL, name, grants
        for prefix, grants in self.prefixes(name):
            yield _PREFIXED, prefix, grants
        if name != WILDCARD and (grants := self.literal.get(WILDCARD)) is not None:
            yield _LITERAL, WILDCARD, grants

    def _count(self, length: int, by: int) -> None:
        count = self._of_length.get(length, 0) + by
        if count:
            self._of_length[length] = count
        else:
            del self._of_length[length]
        if count == (by > 0):  # the first of its length, or the last
            self.lengths = tuple(sorted(self._of_length, reverse=True))


class AclAuthorizer:
    """Authorizer by ACL entries, which are added and removed one by one."""

    def __init__(self, super_users: Collection[str] = (), allow_everyone_if_no_acl_found: bool = False) -> None:
        """Create an authorizer without entries. `super_users` are principals as TYPE:NAME."""
        self._super_users = frozenset(super_users)
        self._default = allow_everyone_if_no_acl_found
        self.entries: dict[bytes, AccessControlEntryRecord] = {}
        """Entries by id."""
        self._types: dict[int, _Patterns] = {}
        # Number of entries for each host except the wildcard. Usually it is empty, so no look-up by host is needed.
        self._hosts: dict[str, int] = {}
        # (resource type, bit of an operation, holder) -> (kind, name) of the patterns with an ALLOW, in order.
        self._allowed: dict[tuple[int, int, _Holder], dict[tuple[int, str], None]] = {}
        # Number of duplicates of entries; only directories that Ottla did not write can have them.
        self._again: dict[_Unpacked, int] = {}
        self._decisions: dict[tuple[str, str, int, int, str | None], bool] = {}

    # ---- entries

    def load_acls(self, entries: Iterable[AccessControlEntryRecord]) -> Steps[None]:
        """Add many entries, in steps."""
        for number, entry in enumerate(entries, 1):
            self.add(entry)
            if number % _LOADED_AT_ONCE == 0:
                yield _LOADED_AT_ONCE * LOAD_ACL_US

    def follow(self, records: Sequence[SecurityRecord]) -> None:
        """Apply changed entries; other records are ignored."""
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self.add(record)
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self.remove(record.id)

    def has(self, entry: AccessControlEntryRecord) -> bool:
        """Return whether an equal entry exists."""
        resource_type, kind, name, holder, bit = _unpack_entry(entry)
        patterns = self._types.get(resource_type)
        if patterns is None:
            return False
        grants = (patterns.literal if kind == _LITERAL else patterns.prefixed).get(name, {})
        return bool(grants.get(holder, 0) & bit)

    def add(self, entry: AccessControlEntryRecord) -> None:
        """Add an entry. It replaces the entry with the same id."""
        if entry.id in self.entries:
            self.remove(entry.id)
        self.entries[entry.id] = entry
        self._decisions.clear()
        patterns = self._types.get(entry.resource_type)
        if patterns is None:
            patterns = self._types[entry.resource_type] = _Patterns()
        unpacked = _unpack_entry(entry)
        resource_type, kind, name, holder, bit = unpacked
        grants = patterns.grants(kind, name)
        before = grants.get(holder, 0)
        if before & bit:
            self._again[unpacked] = self._again.get(unpacked, 0) + 1
            return
        grants[holder] = before | bit
        if isinstance(holder, tuple):
            self._hosts[holder[1]] = self._hosts.get(holder[1], 0) + 1
        if bit < _FIRST_DENY:
            self._allowed.setdefault((resource_type, bit, holder), {})[kind, name] = None

    def remove(self, entry_id: bytes) -> None:
        """Remove the entry with this id, if it exists."""
        entry = self.entries.pop(entry_id, None)
        if entry is None:
            return
        self._decisions.clear()
        unpacked = _unpack_entry(entry)
        again = self._again.pop(unpacked, 0)
        if again:
            if again > 1:
                self._again[unpacked] = again - 1
            return
        resource_type, kind, name, holder, bit = unpacked
        patterns = self._types[resource_type]
        grants = patterns.grants(kind, name)
        grants[holder] &= ~bit
        if not grants[holder]:
            del grants[holder]
            if not grants:
                patterns.drop(kind, name)
        if isinstance(holder, tuple):
            _count_down(self._hosts, holder[1])
        if bit < _FIRST_DENY:
            names = self._allowed[resource_type, bit, holder]
            del names[kind, name]
            if not names:
                del self._allowed[resource_type, bit, holder]

    # ---- decisions

    def authorize(self, session: Session, need: Need, name: str) -> bool:
        """Return whether the client may perform this operation on the resource of that name."""
        key = (session.principal, session.host, need.operation, need.resource_type, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide(*key)
            if len(name) <= REMEMBERED_CHARS:
                self._remember(key, allowed)
        return allowed

    def authorize_by_resource_type(self, session: Session, need: Need) -> bool:
        """Return whether the client may perform this operation on any resource of that type, existing or not.

        One name or prefix with an ALLOW is enough, if no DENY covers all of it. The cost is one decision for each name
        or prefix that a DENY covers.
        """
        key = (session.principal, session.host, need.operation, need.resource_type, None)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide_by_resource_type(*key[:4])
            self._remember(key, allowed)
        return allowed

    def why(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Return the decision, with the entry that it is based on."""
        if principal in self._super_users:
            return Decision(True, None, "SuperUser", 0)
        host = _canonical_host(host)
        allowing: AccessControlEntryRecord | None = None
        touching = 0
        patterns = self._types.get(resource_type)
        for pattern_type, pattern, grants in patterns.matching(name) if patterns is not None else ():
            touching += 1
            for operation_bit, holder in _in_order(grants, self._holders(principal, host)):
                mask = grants[holder]
                of_pattern = (resource_type, pattern, int(pattern_type))
                if mask & _DENIED_BY[operation] & operation_bit << _OPERATIONS:
                    denying = _make_entry(*of_pattern, holder, operation_bit, PermissionType.DENY)
                    return Decision(False, denying, "", touching)
                if mask & _ALLOWED_BY[operation] & operation_bit:
                    allowing = _make_entry(*of_pattern, holder, operation_bit, PermissionType.ALLOW)
        if allowing is not None:
            return Decision(True, allowing, "", touching)
        allowed = self._default and not touching
        return Decision(allowed, None, "DefaultAllow" if allowed else "DefaultDeny", touching)

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self._super_users:
            return True
        patterns = self._types.get(resource_type)
        if patterns is None:
            return self._default
        holders = self._holders(principal, _canonical_host(host))
        found, is_touched = 0, False
        for _, _, grants in patterns.matching(name):
            is_touched = True
            for holder in holders:
                found |= grants.get(holder, 0)
        if found & _DENIED_BY[operation]:
            return False
        return bool(found & _ALLOWED_BY[operation]) or (self._default and not is_touched)

    def _decide_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        if self._decide(principal, host, operation, resource_type, ANY_NAME):
            return True
        patterns = self._types.get(resource_type)
        if patterns is None:
            return False
        holders = self._holders(principal, _canonical_host(host))
        denied = _DENIED_BY[operation]
        of_all = patterns.literal.get(WILDCARD, {})
        if _is_denied(of_all, holders, denied):
            return False
        for holder in holders:
            for bit in (1 << operation, 1 << AclOperation.ALL):
                for kind, name in self._allowed.get((resource_type, bit, holder), ()):
                    if kind == _LITERAL:
                        if name == WILDCARD:
                            return True
                        if _is_denied(patterns.literal[name], holders, denied):
                            continue
                    if not any(_is_denied(grants, holders, denied) for _, grants in patterns.prefixes(name)):
                        return True
        return False

    def _holders(self, principal: str, host: str) -> tuple[_Holder, ...]:
        """Return the holders whose entries apply to a principal at a host."""
        if host in self._hosts:
            return principal, WILDCARD_PRINCIPAL, (principal, host), (WILDCARD_PRINCIPAL, host)
        return principal, WILDCARD_PRINCIPAL

    def _remember(self, key: tuple[str, str, int, int, str | None], allowed: bool) -> None:
        if len(self._decisions) >= MOST_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = allowed


def _unpack_entry(entry: AccessControlEntryRecord) -> _Unpacked:
    """Return an entry as (resource type, kind of pattern, name, holder, bit).

    A pattern type other than LITERAL is a prefix, as in Kafka. An unknown operation has the bit of UNKNOWN, which no
    request needs.
    """
    kind = _LITERAL if entry.pattern_type == _LITERAL else _PREFIXED
    holder = entry.principal if entry.host == WILDCARD else (entry.principal, _canonical_host(entry.host))
    bit = 1 << entry.operation if 0 <= entry.operation < _OPERATIONS else 1
    if entry.permission_type != _ALLOW:
        bit <<= _OPERATIONS
    return entry.resource_type, kind, entry.resource_name, holder, bit


def _canonical_host(host: str) -> str:
    """Return the canonical spelling of an address: Java writes IPv6 in full, other programs shorten it.

    An IPv6 address that is mapped from IPv4 becomes IPv4. Text that is not an address is returned unchanged.
    """
    return _canonical_ipv6(host) if ":" in host else host


@lru_cache(_REMEMBERED_HOSTS)
def _canonical_ipv6(host: str) -> str:
    from ipaddress import AddressValueError, IPv6Address

    try:
        address = IPv6Address(host.strip("[]"))
    except AddressValueError:
        return host
    return str(address.ipv4_mapped or address)


def _count_down(counts: dict[str, int], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _is_denied(grants: dict[_Holder, _Mask], holders: tuple[_Holder, ...], denied: int) -> bool:
    return any(grants.get(holder, 0) & denied for holder in holders)


def _in_order(grants: dict[_Holder, _Mask], holders: tuple[_Holder, ...]) -> Iterator[tuple[int, _Holder]]:
    """Yield (bit of an operation, holder) in the order of `StandardAcl`: by operation, principal, host."""
    there = sorted((holder for holder in holders if holder in grants), key=_principal_and_host)
    for operation in range(_OPERATIONS):
        for holder in there:
            yield 1 << operation, holder


def _principal_and_host(holder: _Holder) -> tuple[str, str]:
    return (holder, WILDCARD) if isinstance(holder, str) else holder


def _make_entry(
    resource_type: int, name: str, pattern_type: int, holder: _Holder, operation_bit: int, permission: PermissionType
) -> AccessControlEntryRecord:
    principal, host = _principal_and_host(holder)
    operation = operation_bit.bit_length() - 1
    return AccessControlEntryRecord(
        b"", resource_type, name, pattern_type, principal, host, operation, permission.value
    )
