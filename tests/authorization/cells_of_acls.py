"""Rights to list and change ACLs."""

from ottla.protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.authorization.cell import Cell, Right

DESCRIBE = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
ALTER = Right(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
DENIED = E.CLUSTER_AUTHORIZATION_FAILED
NOTHING = {
    "resource_type_filter": ResourceType.TOPIC,
    "resource_name_filter": "of nobody",
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": PermissionType.ANY,
}
"""A filter that matches no entry."""
IMPOSSIBLE = {
    "resource_type": ResourceType.CLUSTER,
    "resource_name": "another cluster",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:carol",
    "host": "*",
    "operation": AclOperation.DESCRIBE,
    "permission_type": PermissionType.ALLOW,
}
"""An entry that cannot be created."""


def _error(reply):
    return E(reply.error_code)


def _errors(reply):
    return [E(row.error_code) for row in getattr(reply, "results", None) or reply.filter_results]


def _cells(version):
    yield Cell(K.DESCRIBE_ACLS, version, NOTHING, DESCRIBE, _error, E.NONE, DENIED)
    yield Cell(K.CREATE_ACLS, version, {"creations": [IMPOSSIBLE]}, ALTER, _errors, [E.INVALID_REQUEST], [DENIED])
    yield Cell(K.DELETE_ACLS, version, {"filters": [NOTHING]}, ALTER, _errors, [E.NONE], [DENIED])


CELLS = tuple(cell for version in (1, 3) for cell in _cells(version))
