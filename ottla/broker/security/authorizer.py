"""The rights that APIs need; `acl.py` checks them. pure

Source: `AuthHelper` of Kafka 4.3.1.
"""

from typing import NamedTuple

from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode


class Need(NamedTuple):
    """A right that an API needs, and the error if the client lacks it.

    `is_quiet`: a missing right is not logged as a denial, because it only decides the content of the reply, or because
    another right may be sufficient.
    """

    operation: AclOperation
    resource_type: ResourceType
    error: ErrorCode
    is_quiet: bool = False
