"""A right that an API requires, with the answers to clients with and without it; plain data for any test."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api_keys import ApiKey

TOPIC, OTHER_TOPIC, GROUP, TXN = "ledger", "orders", "group", "txn"
OPEN_TXN = "txn-open"
"""A transactional id with an open transaction, which has a partition of TOPIC and one of OTHER_TOPIC."""
ABSENT_TOPIC, ABSENT_GROUP = "ledger-absent", "group-absent"
DOTTED_TOPIC, UNDERSCORED_TOPIC = "led.ger", "led_ger"
"""The first exists, so the second can never be created."""


class IdOf(NamedTuple):
    """Stands for the id of a topic in the fields of a request."""

    topic: str


class Right(NamedTuple):
    """The right to an operation on the resource of that name."""

    operation: AclOperation
    resource_type: ResourceType
    name: str


class Cell(NamedTuple):
    """A request that needs `right` and all `grants`; `instead` is also sufficient.

    `read(reply)` returns `allowed` for a client with the right, else `denied`. `by_type`: the right to any other
    resource of the type is sufficient (`Authorizer.authorizeByResourceType`). `about` distinguishes cells of one API.
    `before` is a request that a super user sends each time, to restore what the cell may delete.
    """

    api_key: ApiKey
    version: int
    fields: Mapping[str, Any]
    right: Right
    read: Callable[[Any], Any]
    allowed: Any
    denied: Any
    grants: tuple[Right, ...] = ()
    instead: tuple[Right, ...] = ()
    about: str = ""
    by_type: bool = False
    before: tuple[ApiKey, int, Mapping[str, Any]] | None = None

    @property
    def name(self) -> str:
        """Name of the test."""
        what = f"{self.right.operation.name} {self.right.resource_type.name}"
        return f"{self.api_key.title} v{self.version}: {what}{' ' if self.about else ''}{self.about}"
