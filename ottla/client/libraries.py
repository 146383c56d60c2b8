"""Client libraries that transactions support, and the interface that each must provide. shell

This module imports no library: the program that has a producer has imported its library already.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode


class State(Enum):
    """State of a producer: the part of `TransactionState` of kafka-python and aiokafka that matters here."""

    UNINITIALIZED = auto()  # init_transactions() was not called, or has not finished
    READY = auto()
    OPEN = auto()
    ENDING = auto()  # a commit or an abort is under way
    MUST_ABORT = auto()
    BUMPING = auto()  # requests the next epoch, which aborts the open transaction
    FATAL = auto()
    CLOSED = auto()


class Consumer(Protocol):
    """A consumer of one library whose positions are committed in a transaction. Partitions are that library's.

    The methods with a body here do what most libraries need.
    """

    _consumer: Any

    @property
    def key(self) -> Any:
        """Object that the positions of its transactions are stored for, weakly."""
        return self._consumer

    @property
    def identified(self) -> bool:
        """Whether no other consumer has this key and generation."""
        return True

    @property
    def group_id(self) -> str | None: ...

    @property
    def commits_by_itself(self) -> bool: ...

    @property
    def from_the_beginning(self) -> bool:
        """Whether a group without committed offsets begins at the first record."""

    @property
    def subscribed(self) -> bool:
        """Whether the group assigns the partitions, and not the application."""

    def assignment(self) -> list[Any]: ...

    def next_offsets(self) -> dict[Any, int]:
        """Return the next offset of each assigned partition that has one."""

    @property
    def lacks_start_positions(self) -> bool:
        """Whether `next_offsets` lacks the positions at which reading will begin."""
        return False

    def generation(self) -> Any:
        """Return a value that differs after each rebalance."""

    async def began(self, timeout_ms: int) -> dict[Any, int] | None:
        """Return the positions at which the consumer began its generation. None if they are not needed, because the
        group rebalances only while the application polls, and the library returns unread positions."""

    def is_member(self) -> bool: ...

    def group_metadata(self) -> Any:
        """Return the group metadata that the producer sends with the offsets."""

    def offsets(self, offsets: dict[Any, int]) -> Any:
        """Return the offsets in the form that the producer accepts."""

    def error_of(self, code: ErrorCode) -> Exception:
        """Return the library's exception for an error code of the broker."""

    async def committed_offset(self, tp: Any, timeout_ms: int) -> int | None: ...

    async def seek(self, tp: Any, offset: int | None, timeout_ms: int) -> None:
        """Seek to an offset, or to the beginning."""


class TransactionalProducer(Protocol):
    """A producer of one library. The methods of a blocking library never suspend, so `drive` can run them."""

    asynchronous: bool
    transactional_id: str

    @property
    def state(self) -> State: ...

    @property
    def last_error(self) -> BaseException | None:
        """The reason why the state is MUST_ABORT or FATAL."""

    @property
    def answer_timeout_ms(self) -> int:
        """The library's own timeout for a coordinator's answer."""

    @property
    def epoch(self) -> tuple[int, int]:
        """Producer id and epoch from the coordinator."""

    async def begin(self) -> None: ...

    def record_sends(self, on_failure: Callable[[BaseException], None]) -> None:
        """Call `on_failure` for each record or batch that fails, until `forget_sends`."""

    def forget_sends(self) -> None: ...

    @property
    def sent(self) -> int | None:
        """Records or batches that the block has sent so far, roughly; None if the library does not count them."""

    async def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged or failed, or the transaction is lost. Raises after a timeout."""

    async def send_offsets(self, offsets: Any, group_metadata: Any, timeout_ms: int) -> bool:
        """Add offsets to the transaction. Return False without an answer in time."""

    async def commit(self, timeout_ms: int) -> bool:
        """Commit. Return False without an answer in time. Call `flush` first: a later failure may be lost."""

    async def abort(self, timeout_ms: int) -> bool:
        """Abort. Return False without an answer in time."""

    async def bump_epoch(self, timeout_ms: int) -> None:
        """Start the next epoch after lost sequences, if the library does not do so by itself."""

    async def wait_for_epoch(self, timeout_ms: int) -> None:
        """Wait while the library requests a new epoch by itself."""

    async def close(self) -> None:
        """Close without waiting for requests that can no longer succeed."""

    def as_exception(self, error: Any) -> BaseException | None:
        """Return the exception of a block that raised `error`."""

    def delivery_error(self, error: Any, message: Any) -> BaseException:
        """Return the exception for a delivery report with an error."""

    def own(self, error: BaseException) -> bool:
        """Return whether an exception is the library's."""

    def consumer(self, consumer: Any, config: Mapping[str, Any] | None) -> Consumer: ...


def needs_one(problem: str, make: str, then: str) -> TypeError:
    """Build the error for an argument that is not a transactional producer."""
    return TypeError(
        "transaction() needs a kafka.KafkaProducer, a confluent_kafka.Producer or an aiokafka.AIOKafkaProducer with a "
        f"transactional id, and {problem}; make it with {make} and call {then} once"
    )


def comes_from(thing: Any, *names: str) -> bool:
    """Return whether an object's class is, or is derived from, one of these names, each `library.Class`."""
    classes = {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in type(thing).__mro__}
    return not classes.isdisjoint(names)
