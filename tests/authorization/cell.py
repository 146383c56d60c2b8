"""One right that an API asks for, and what its answers say with and without it; plain data, to be played anywhere."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api_keys import ApiKey

TOPIC, OTHER_TOPIC, GROUP, TXN = "ledger", "orders", "group", "txn"
OPEN_TXN = "txn-open"
"""A transactional id with an open transaction, which has a partition of TOPIC and one of OTHER_TOPIC."""
ABSENT_TOPIC, ABSENT_GROUP = "ledger-absent", "group-absent"
DOTTED_TOPIC, UNDERSCORED_TOPIC = "led.ger", "led_ger"
"""The first is there, and so the second can never be created."""


class IdOf(NamedTuple):
    """Stands for the id of a topic in the fields of a request."""

    topic: str


class Right(NamedTuple):
    """To do this to the resource of that name."""

    operation: AclOperation
    resource_type: ResourceType
    name: str


class Cell(NamedTuple):
    """A request that needs `right`, and `grants` beside it; `instead` would do as well.

    `read(reply)` is what shows whether the right was there: `allowed`, or `denied`. `by_type`: the right to any other
    resource of the type would do (`Authorizer.authorizeByResourceType`). `about` tells cells of one API apart.
    `before` is a request that a super user makes each time, for what the cell may take away.
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
        """Of a test."""
        what = f"{self.right.operation.name} {self.right.resource_type.name}"
        return f"{self.api_key.title} v{self.version}: {what}{' ' if self.about else ''}{self.about}"
