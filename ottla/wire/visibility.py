"""Proof that a user sees every transactional id. shell

ListTransactions leaves out the ids that the user may not DESCRIBE, without an error. DescribeTransactions answers
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for an id without this right, even if the id does not exist. So each rule that
could hide an id is checked: a random name shows the rights on ids without a rule of their own, and each pattern of an
ACL on transactional ids shows the rights on matching names. The brokers decide, so this check does not need to know
the principal, its host, or the super users.
"""

import uuid
from collections.abc import Iterable
from typing import Final

from ottla.protocol.acls import WILDCARD, PatternType, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.wire import Unanswered
from ottla.wire.brokers import Address, acls_request
from ottla.wire.cluster import Cluster
from ottla.wire.login import error_name

_NAMED: Final = 3
"""Maximum number of hidden ids in a reason."""
_NEEDED: Final = "needed to prove that no transactional id is hidden from it"


def find_hidden(cluster: Cluster, brokers: Iterable[Address]) -> list[str]:
    """Return the reasons why an id may be hidden from this user on these brokers; empty if the user sees every id."""
    anything = uuid.uuid4().hex
    names = {anything: "transactional ids"}
    reasons: list[str] = []
    try:
        for name, pattern_type in _patterns(cluster):
            if pattern_type == PatternType.PREFIXED:
                names[name + anything] = f"transactional ids that begin with {name!r}"
            elif name != WILDCARD:
                names[name] = f"transactional id {name!r}"
    except Unanswered as error:
        reasons.append(f"{error}, {_NEEDED}")
    denied: dict[str, None] = {}
    for address in brokers:
        denied |= dict.fromkeys(cluster.denied_ids(address, list(names)))
    if denied:
        shown = ", ".join(names[name] for name in list(denied)[:_NAMED])
        more = f" and {len(denied) - _NAMED} more" if len(denied) > _NAMED else ""
        reasons.insert(0, f"this user lacks DESCRIBE on {shown}{more}, so an open transaction may be hidden from it")
    return reasons


def _patterns(cluster: Cluster) -> set[tuple[str, int]]:
    """Return (name, pattern type) of every ACL on transactional ids, none without an authorizer. Raises Unanswered."""
    reply = cluster.ask_any(acls_request(ResourceType.TRANSACTIONAL_ID, None, PatternType.ANY))
    if reply.error_code == ErrorCode.SECURITY_DISABLED:
        return set()
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Unanswered("this user lacks DESCRIBE on the cluster (DescribeAcls)")
    if reply.error_code:
        raise Unanswered(f"the brokers do not list their ACLs: {error_name(reply.error_code)}")
    return {(each.resource_name, each.pattern_type) for each in reply.resources}
