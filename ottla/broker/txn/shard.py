"""One partition of `__transaction_state`: the ids that it owns and their states. free"""

from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.broker.ports.clock import Timer
from ottla.broker.turns import Wait
from ottla.broker.txn.log import AppendOutcome
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import ErrorCode


class StateLog(Protocol):
    """What the coordinator needs of the log of a partition."""

    @property
    def index(self) -> int: ...
    @property
    def offline(self) -> str | None: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...

    def append_own(self, batch: bytearray) -> AppendOutcome:
        """Append a batch that the broker itself has built."""

    def when_durable(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the record at `offset` is below the high watermark, or with the reason why it never will."""

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from `from_offset` to the log end."""


class Shard:
    """The transactional ids of one log partition.

    `states` is the log replayed and nothing else; `transient` holds the ids that have something beside it;
    `open` holds those whose transaction is open, for the timeout scan; `waiting` the requests that wait for the end of
    their id's marker phase, in the order in which they came, each with the timer that ends its patience.
    """

    __slots__ = ("epoch", "log", "open", "states", "transient", "waiting")

    def __init__(self, log: StateLog) -> None:
        self.log = log
        self.epoch = log.leader_epoch
        self.states: dict[str, TransactionState] = {}
        self.transient: dict[str, TransientState] = {}
        self.open: dict[str, None] = {}
        self.waiting: dict[str, dict[Wait[bool], Timer]] = {}

    def set_transient(self, transactional_id: str, transient: TransientState) -> None:
        """Keep what lives in memory only, and nothing for an id that has none of it."""
        if transient == NO_PENDING:
            self.transient.pop(transactional_id, None)
        else:
            self.transient[transactional_id] = transient

    def is_dying(self, transactional_id: str) -> bool:
        """Whether the id's tombstone is being logged."""
        pending = self.transient.get(transactional_id, NO_PENDING).pending
        return pending is not None and pending.status is TransactionStatus.DEAD
