"""Values of the model: bounds, requests, marker messages, violations. pure"""

from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.protocol.errors import ErrorCode

PLACES: Final = (("ledger", 0), ("ledger", 1))
"""The two partitions."""
TRANSACTIONAL_ID: Final = "t"
TIMEOUT_MS: Final = 1000
# Time does not pass in the model: each effect of a timer is an event of its own.
NOW_MS: Final = 0
AFTER_TIMEOUT_MS: Final = TIMEOUT_MS + 1
NAMES: Final = "AB"

V1: Final = 1
V2: Final = 2


class Bounds(NamedTuple):
    """Limits for the events of one run. Pairs are those of producer A and producer B, which fences it.

    copies: requests and markers of which a copy stays in the network and arrives late, or never. For the broker this
        covers a lost request, a lost reply and a request sent twice.
    give_ups: times that a producer stops waiting for its writes and aborts, while they are still on their way.
    crashes: of the coordinator. timeouts: aborts by the coordinator while a producer could still continue.
    first_epoch: the last epoch before the run, -1 for a new id; 32764 begins shortly before the ids rotate.
    old_clients: V1 producers may continue after an abort without a new epoch, as clients older than KIP-360 do.
    keeps_fenced: keep late messages that are fenced, to check that removing them hides no violation.
    """

    level: int = 2
    generations: tuple[int, int] = (V2, V2)
    transactions: tuple[int, int] = (2, 1)
    copies: int = 1
    give_ups: int = 1
    crashes: int = 1
    timeouts: int = 1
    first_epoch: int = -1
    old_clients: bool = False
    keeps_fenced: bool = False


class Kind(IntEnum):
    """The requests of a producer."""

    INIT = 0
    ADD = 1
    PRODUCE = 2
    END = 3


class Request(NamedTuple):
    """A request. `txn` is the number of the producer's transaction that it was sent for.

    INIT carries the producer id and epoch that it expects (KIP-360) or -1; ADD names both partitions.
    """

    kind: Kind
    client: int
    txn: int
    producer_id: int
    epoch: int
    place: int = -1
    sequence: int = -1
    commit: bool = False


class Marker(NamedTuple):
    """A marker on its way to a partition. `serial` counts the transactions of the id; the broker does not know it."""

    place: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    version: int
    serial: int


Message = Request | Marker


class Reply(NamedTuple):
    """An answer to a producer."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Violation(Exception):
    """Raised for a broken rule. `rule` is its short name."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


T = TypeVar("T")


class Interned(Generic[T]):
    """Values by small numbers, so that a state of the world is a tuple of integers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[T] = []

    def number(self, value: T, key: Hashable) -> int:
        """Return the number of `value`. Equal keys have one number."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.values)
            self.values.append(value)
        return known

    def __getitem__(self, number: int) -> T:
        return self.values[number]

    def __len__(self) -> int:
        return len(self.values)
