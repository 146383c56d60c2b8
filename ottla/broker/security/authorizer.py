"""The rights that APIs need, and the interface that checks them. pure

Source: `Authorizer`, `AuthHelper` of Kafka 4.3.1.
"""

from typing import NamedTuple, Protocol

from ottla.broker.security.session import Session
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord


class Need(NamedTuple):
    """A right that an API needs, and the error if the client lacks it.

    `is_quiet`: a missing right is not logged as a denial, because it only decides the content of the reply, or because
    another right may be sufficient.
    """

    operation: AclOperation
    resource_type: ResourceType
    error: ErrorCode
    is_quiet: bool = False


class Authorizer(Protocol):
    """Interface of authorizers, which decide without waiting."""

    def authorize(self, session: Session, need: Need, name: str) -> bool:
        """Return whether the client may perform this operation on the resource of that name."""

    def has(self, entry: AccessControlEntryRecord) -> bool:
        """Return whether an equal entry exists."""

    def authorize_by_resource_type(self, session: Session, need: Need) -> bool:
        """Return whether the client may perform this operation on any resource of that type, existing or not."""
