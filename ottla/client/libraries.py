"""The client libraries that transactions work over, and what each must be able to do. shell

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
    """A consumer of one library, as far as its positions go into a transaction. Partitions are that library's."""

    @property
    def key(self) -> Any:
        """Object that the positions of its transactions are stored for, weakly."""

    @property
    def identified(self) -> bool:
        """Whether no other consumer has this key and generation."""

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
        """The next offset of each assigned partition that has one."""

    @property
    def lacks_start_positions(self) -> bool:
        """Whether `known` leaves out where reading will begin."""

    def generation(self) -> Any:
        """Something that differs after each rebalance."""

    async def began(self, timeout_ms: int) -> dict[Any, int] | None:
        """Return the positions at which the consumer began its generation and has read nothing. None if they are not
        needed: the group rebalances only while the application polls, and the library returns unread positions."""

    def is_member(self) -> bool: ...

    def group_metadata(self) -> Any:
        """Group metadata that the producer sends with the offsets."""

    def offsets(self, offsets: dict[Any, int]) -> Any:
        """Offsets in the form that the producer takes."""

    def error_of(self, code: ErrorCode) -> Exception:
        """The library's exception for a code of the broker."""

    async def committed_offset(self, tp: Any, timeout_ms: int) -> int | None: ...

    async def seek(self, tp: Any, offset: int | None, timeout_ms: int) -> None:
        """Go to an offset, or to the beginning."""


class TransactionalProducer(Protocol):
    """A producer of one library. The methods of a library that blocks never suspend, so that `drive` runs them."""

    asynchronous: bool
    transactional_id: str

    @property
    def state(self) -> State: ...

    @property
    def last_error(self) -> BaseException | None:
        """Why the state is MUST_ABORT or FATAL."""

    @property
    def answer_timeout_ms(self) -> int:
        """The library's own patience with a coordinator."""

    @property
    def epoch(self) -> tuple[int, int]:
        """Producer id and epoch, as the coordinator gave them out."""

    async def begin(self) -> None: ...

    def record_sends(self, on_failure: Callable[[BaseException], None]) -> None:
        """Call `on_failure` for each record or batch that fails, until `forget_sends`."""

    def forget_sends(self) -> None: ...

    @property
    def sent(self) -> int | None:
        """Records or batches that the block has sent so far, roughly; None if the library does not count them."""

    async def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged or failed, or the transaction is lost anyway; raises in time."""

    async def send_offsets(self, offsets: Any, group_metadata: Any, timeout_ms: int) -> bool:
        """Add offsets to the transaction; False when no answer came in time."""

    async def commit(self, timeout_ms: int) -> bool:
        """Commit; False when no answer came in time. Call `flush` first: a failure found later may be lost."""

    async def abort(self, timeout_ms: int) -> bool:
        """Abort; False when no answer came in time."""

    async def bump_epoch(self, timeout_ms: int) -> None:
        """Sequences were lost: start the next epoch, if the library does not do so by itself."""

    async def wait_for_epoch(self, timeout_ms: int) -> None:
        """Wait while the library asks for a new epoch by itself."""

    async def close(self) -> None:
        """Close without waiting for what can no longer succeed."""

    def as_exception(self, error: Any) -> BaseException | None:
        """Return the exception of a block that raised `error`."""

    def delivery_error(self, error: Any, message: Any) -> BaseException:
        """The exception for a delivery report with an error."""

    def own(self, error: BaseException) -> bool:
        """Whether an exception is the library's."""

    def consumer(self, consumer: Any, config: Mapping[str, Any] | None) -> Consumer: ...


def needs_one(problem: str, make: str, then: str) -> TypeError:
    """Build the error for an argument that is no transactional producer."""
    return TypeError(
        "transaction() needs a kafka.KafkaProducer, a confluent_kafka.Producer or an aiokafka.AIOKafkaProducer with a "
        f"transactional id, and {problem}; make it with {make} and call {then} once"
    )


def comes_from(thing: Any, *names: str) -> bool:
    """Whether a thing's class is, or is derived from, one of `library.Class`."""
    classes = {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in type(thing).__mro__}
    return not classes.isdisjoint(names)


def view_of(producer: Any) -> TransactionalProducer:
    """The view on a producer that its class asks for. TypeError if it cannot have transactions."""
    if comes_from(producer, "cimpl.Producer", "confluent_kafka.Producer"):
        from ottla.client.confluent import ConfluentProducer

        return ConfluentProducer(producer)
    if comes_from(producer, "aiokafka.AIOKafkaProducer"):
        from ottla.client.aio import AiokafkaProducer

        return AiokafkaProducer(producer)
    from ottla.client.kafka_python import KafkaPythonProducer

    return KafkaPythonProducer(producer)
