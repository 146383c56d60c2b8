"""The question of `ottla acl why`: principal, operation and resource, as `kafka-acls` names them. pure"""

from typing import NamedTuple

from ottla.protocol.acls import CLUSTER_NAME, OPERATION_NAMES, RESOURCE_TYPE_NAMES, AclOperation, ResourceType

_OPERATIONS = {
    spelling.lower(): operation
    for operation, name in OPERATION_NAMES.items()
    if operation > AclOperation.ALL
    for spelling in (name, operation.name)
}
_TYPES = {
    spelling.lower(): kind
    for kind, name in RESOURCE_TYPE_NAMES.items()
    if kind > ResourceType.ANY
    for spelling in (name, kind.name)
}


class Question(NamedTuple):
    """Arguments of `ottla acl why`. `principal` is TYPE:NAME. An empty host matches only entries for any host."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str

    @property
    def resource(self) -> str:
        """The resource as TYPE:NAME."""
        return f"{RESOURCE_TYPE_NAMES[self.resource_type]}:{self.name}"


def parse_question(principal: str, operation: str, resource: str, host: str) -> Question:
    """Parse the arguments. ValueError names the invalid one, and the values that it may have."""
    if not all(principal.partition(":")[::2]):
        raise ValueError(f"--principal {principal}: must be TYPE:NAME, mostly User:NAME")
    parsed = _OPERATIONS.get(operation.lower())
    if parsed is None:
        names = ", ".join(name for each, name in OPERATION_NAMES.items() if each > AclOperation.ALL)
        raise ValueError(f"--operation {operation}: must be one of {names}")
    type_name, _, name = resource.partition(":")
    kind = _TYPES.get(type_name.lower())
    if kind is ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
        return Question(principal, host, parsed, kind, CLUSTER_NAME)
    if kind is None or not name or kind is ResourceType.CLUSTER:
        names = ", ".join(f"{each}:NAME" for each in ("Topic", "Group", "TransactionalId", "User", "DelegationToken"))
        raise ValueError(f"--resource {resource}: must be {names}, or Cluster")
    return Question(principal, host, parsed, kind, name)
