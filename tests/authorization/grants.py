"""Ways to have or to lack a right: the client, the ACL entries and the settings of the broker."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.acls import WILDCARD, WILDCARD_PRINCIPAL, AclOperation, PatternType, PermissionType, ResourceType
from tests.authorization.cell import Cell, Right

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
ALICE, BOB, ROOT = "User:alice", "User:bob", "User:root"
SUPER_USERS = (ROOT,)
ELSEWHERE = "192.0.2.1"

IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
MOST_IMPLYING = max(map(len, IMPLIED_BY.values()))


class Entry(NamedTuple):
    """An entry without an id."""

    operation: AclOperation
    resource_type: ResourceType
    name: str
    pattern: PatternType = LITERAL
    principal: str = ALICE
    host: str = WILDCARD
    permission: PermissionType = ALLOW


class Way(NamedTuple):
    """`entries(right, host)`: the entries about the right itself, for a client on this host.

    `expected`: whether they allow `principal`. `everyone`: `allow.everyone.if.no.acl.found` is true. `fits`:
    whether this way applies to a cell.
    """

    name: str
    expected: bool
    entries: Callable[[Right, str], tuple[Entry, ...]]
    principal: str = ALICE
    everyone: bool = False
    fits: Callable[[Cell], bool] = lambda cell: True


def allow(right, **changed):
    """Return the plain entry that grants this right, with these changes."""
    return Entry(*right)._replace(**changed)


def deny(right, **changed):
    return allow(right, **{"permission": DENY} | changed)


def prefix(right):
    """Return the fields of an entry for all names with the prefix of the resource's name."""
    return {"name": right.name[:3], "pattern": PREFIXED}


def _has_a_name(cell):
    """Return whether resources of this type have names: there is one cluster, and no entry can have another name."""
    return cell.right.resource_type is not ResourceType.CLUSTER


def _is_of_one_name(cell):
    return _has_a_name(cell) and not cell.by_type


def _is_of_one_resource(cell):
    return not cell.by_type


def other_operation(right):
    """Return an operation that neither is nor implies the operation of the right."""
    for operation in (AclOperation.CREATE, AclOperation.READ):
        if operation is not right.operation and operation not in IMPLIED_BY.get(right.operation, ()):
            return operation
    raise AssertionError(right)


def _allow_implying(number):
    return Way(
        f"allowed by what implies it, {number + 1}",
        True,
        lambda right, host: (allow(right, operation=IMPLIED_BY[right.operation][number]),),
        fits=lambda cell: number < len(IMPLIED_BY.get(cell.right.operation, ())),
    )


ADMITTING = (
    Way("a literal entry", True, lambda right, host: (allow(right),)),
    Way("a prefix", True, lambda right, host: (allow(right, **prefix(right)),), fits=_has_a_name),
    Way("every resource", True, lambda right, host: (allow(right, name=WILDCARD),), fits=_has_a_name),
    Way("every principal", True, lambda right, host: (allow(right, principal=WILDCARD_PRINCIPAL),)),
    Way("this host", True, lambda right, host: (allow(right, host=host),)),
    Way("ALL", True, lambda right, host: (allow(right, operation=AclOperation.ALL),)),
    *map(_allow_implying, range(MOST_IMPLYING)),
    Way("DENY of another host", True, lambda right, host: (allow(right), deny(right, host=ELSEWHERE))),
    Way("DENY of another principal", True, lambda right, host: (allow(right), deny(right, principal=BOB))),
    Way("a super user", True, lambda right, host: (), principal=ROOT),
    Way("a super user above DENY", True, lambda right, host: (deny(right, principal=ROOT),), principal=ROOT),
    Way("everyone, without an entry", True, lambda right, host: (), everyone=True),
)
REFUSING = (
    Way("no entry", False, lambda right, host: ()),
    Way("another principal", False, lambda right, host: (allow(right, principal=BOB),)),
    Way("another host", False, lambda right, host: (allow(right, host=ELSEWHERE),)),
    Way("another operation", False, lambda right, host: (allow(right, operation=other_operation(right)),)),
    Way("another name", False, lambda right, host: (allow(right, name=f"{right.name}-2"),), fits=_is_of_one_name),
    Way(
        "a prefix that is longer",
        False,
        lambda right, host: (allow(right, name=f"{right.name}-2", pattern=PREFIXED),),
        fits=_is_of_one_name,
    ),
    Way("DENY", False, lambda right, host: (allow(right), deny(right))),
    Way("DENY of a prefix", False, lambda right, host: (allow(right), deny(right, **prefix(right))), fits=_has_a_name),
    Way("DENY everywhere", False, lambda right, host: (allow(right), deny(right, name=WILDCARD)), fits=_has_a_name),
    Way("DENY of everyone", False, lambda right, host: (allow(right), deny(right, principal=WILDCARD_PRINCIPAL))),
    Way("DENY of this host", False, lambda right, host: (allow(right), deny(right, host=host))),
    Way("DENY of ALL", False, lambda right, host: (allow(right), deny(right, operation=AclOperation.ALL))),
    Way(
        "everyone, with an entry of another",
        False,
        lambda right, host: (allow(right, principal=BOB),),
        everyone=True,
        fits=_is_of_one_resource,
    ),
)
WAYS = ADMITTING + REFUSING


def ways_of(cell):
    """Return the ways that apply to this cell."""
    return [way for way in WAYS if way.fits(cell)]


def entries_of(cell, way, host):
    """Return all entries for a cell in this way."""
    own = cell.right.resource_type, cell.right.name
    others = [
        *(allow(right, principal=way.principal) for right in cell.grants),
        *(allow(right, principal=BOB) for right in cell.instead),
    ]
    # If everyone is allowed to use resources without entries, this resource must have no entry.
    hidden = {own} if way.everyone and way.expected else set()
    own_entries = way.entries(cell.right, host)
    return [*own_entries, *(entry for entry in others if (entry.resource_type, entry.name) not in hidden)]
