"""Internals of a kafka-python producer and consumer, as far as transactions need them. shell

Only this file reads kafka-python's private parts (3.0.x, pinned in pyproject.toml). Its public methods are not enough:
`commit_transaction` and `abort_transaction` wait forever, and the reason of a failure is only in the transaction
manager. Three behaviours would break the guarantees of a transaction:

- a batch that outlives delivery_timeout_ms fails its future and changes no state: the commit would succeed without it;
- a failed batch has used up its sequence numbers, so that the next transaction would be out of order. `bump_epoch`
  starts a new epoch, as the Java client does after an abort with lost sequences (KIP-360);
- offsets of an aborted transaction stay in `_pending_txn_offset_commits` and would be committed with the next one.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.libraries import Consumer, State, needs_one
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_names import detect_invalid_topic

_POLL_S = 0.002
_FLUSH_SLICE_S = 0.5

_STATES = {
    "UNINITIALIZED": State.UNINITIALIZED,
    "INITIALIZING": State.UNINITIALIZED,
    "READY": State.READY,
    "IN_TRANSACTION": State.OPEN,
    "COMMITTING_TRANSACTION": State.ENDING,
    "ABORTING_TRANSACTION": State.ENDING,
    "ABORTABLE_ERROR": State.MUST_ABORT,
    "BUMPING_PRODUCER_EPOCH": State.BUMPING,
    "FATAL_ERROR": State.FATAL,
}


class KafkaPythonProducer:
    """A view on one `kafka.KafkaProducer` with a transactional id. Its methods block and never suspend."""

    asynchronous = False

    __slots__ = ("_manager", "_producer", "sent", "transactional_id")

    def __init__(self, producer: Any) -> None:
        manager = getattr(producer, "_transaction_manager", None)
        transactional_id = getattr(manager, "transactional_id", None)
        if transactional_id is None:
            is_one = type(producer).__name__ == "KafkaProducer" and type(producer).__module__.startswith("kafka.")
            problem = "this KafkaProducer has no transactional_id" if is_one else f"this is a {type(producer).__name__}"
            raise needs_one(problem, "KafkaProducer(transactional_id='...')", "init_transactions()")
        self._producer = producer
        self._manager: Any = manager
        self.transactional_id: str = transactional_id
        self.sent = 0

    @property
    def state(self) -> State:
        if self._producer._closed:
            return State.CLOSED
        return _STATES[self._manager._current_state.name]

    @property
    def last_error(self) -> BaseException | None:
        error: BaseException | None = self._manager.last_error
        return error

    @property
    def answer_timeout_ms(self) -> int:
        return int(self._producer.config["max_block_ms"])

    @property
    def epoch(self) -> tuple[int, int]:
        current = self._manager.producer_id_and_epoch
        return current.producer_id, current.epoch

    async def begin(self) -> None:
        self._producer.begin_transaction()

    def record_sends(self, on_failure: Callable[[BaseException], None]) -> None:
        """Watch the future of every send until `forget_sends`; `on_failure` is called from the sender's thread."""
        from kafka.errors import InvalidTopicError, KafkaTimeoutError, UnknownTopicOrPartitionError

        send = self._producer.send

        def watched_send(topic: Any, *args: Any, **kwargs: Any) -> Any:
            began_ms = time.monotonic() * 1000
            try:
                future = send(topic, *args, **kwargs)
            except KafkaTimeoutError as timeout:
                if self._is_missing(topic, began_ms):
                    raise timeout from UnknownTopicOrPartitionError(topic)
                raise
            except ValueError as refusal:
                if not isinstance(topic, str) or detect_invalid_topic(topic) is None:
                    raise
                raise refusal from InvalidTopicError(topic)
            self.sent += 1
            future.add_errback(on_failure)
            return future

        self._producer.send = watched_send

    def _is_missing(self, topic: Any, since_ms: float) -> bool:
        """Return whether the brokers answered since then, without this topic."""
        metadata = self._producer._metadata
        return metadata._last_successful_refresh_ms > since_ms and not metadata.partitions_for_topic(topic)

    def forget_sends(self) -> None:
        del self._producer.send  # so that the method of the class applies again

    async def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged or failed, or until the transaction is lost anyway.

        Raises kafka.errors.KafkaTimeoutError when records are still under way after delivery_timeout_ms.
        """
        from kafka.errors import KafkaTimeoutError

        deadline = time.monotonic() + self._producer.config["delivery_timeout_ms"] / 1000 + 2 * _FLUSH_SLICE_S
        while True:
            try:
                self._producer.flush(timeout=_FLUSH_SLICE_S)
                return
            except KafkaTimeoutError:
                if time.monotonic() > deadline:
                    raise
                if self.state is not State.OPEN:
                    return

    async def send_offsets(self, offsets: dict[Any, Any], group_metadata: Any, timeout_ms: int) -> bool:
        return self._await_answer(self._manager.send_offsets_to_transaction(offsets, group_metadata), timeout_ms)

    async def commit(self, timeout_ms: int) -> bool:
        return self._await_answer(self._manager.begin_commit(), timeout_ms)

    async def abort(self, timeout_ms: int) -> bool:
        answered = self._await_answer(self._manager.begin_abort(), timeout_ms)
        self._manager._pending_txn_offset_commits.clear()
        return answered

    async def bump_epoch(self, timeout_ms: int) -> None:
        """Start the next epoch with sequence numbers from 0. The state is READY afterwards, or that of the error."""
        self._manager.bump_producer_id_and_epoch()
        self._producer._sender.wakeup()
        await self.wait_for_epoch(timeout_ms)

    async def wait_for_epoch(self, timeout_ms: int) -> None:
        """Wait while the client requests a new epoch (which it also does by itself, after some errors)."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.state is State.BUMPING and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    async def close(self) -> None:
        from kafka.errors import KafkaTimeoutError

        self._producer._sender.force_close()
        try:
            self._producer.close(timeout=1)
        except KafkaTimeoutError:
            self._producer.close(timeout=0)

    def _await_answer(self, result: Any, timeout_ms: int) -> bool:
        self._producer._sender.wakeup()
        answered: bool = result.wait(timeout_ms=timeout_ms)
        return answered

    def as_exception(self, error: BaseException | None) -> BaseException | None:
        """Return the exception of the block. kafka-python refuses an invalid topic with a ValueError without a code."""
        from kafka.errors import InvalidTopicError

        cause = error.__cause__ if isinstance(error, ValueError) else None
        return cause if isinstance(cause, InvalidTopicError) else error

    def delivery_error(self, error: Any, message: Any) -> BaseException:
        """Return the error unchanged: only confluent-kafka has delivery reports."""
        failure: BaseException = error
        return failure

    def own(self, error: BaseException) -> bool:
        from kafka.errors import KafkaError

        return isinstance(error, KafkaError)

    def consumer(self, consumer: Any, config: Mapping[str, Any] | None) -> "KafkaPythonConsumer":
        if config is not None:
            raise TypeError("consumer_config= is for a confluent_kafka.Consumer: remove it for a KafkaConsumer")
        return KafkaPythonConsumer(consumer)


class KafkaPythonConsumer(Consumer):
    """A view on one `kafka.KafkaConsumer`."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def group_id(self) -> str | None:
        group_id: str | None = self._consumer.config["group_id"]
        return group_id

    @property
    def commits_by_itself(self) -> bool:
        return bool(self._consumer.config["enable_auto_commit"])

    @property
    def from_the_beginning(self) -> bool:
        return bool(self._consumer.config["auto_offset_reset"] == "earliest")

    @property
    def subscribed(self) -> bool:
        return self._consumer.subscription() is not None

    def assignment(self) -> list[Any]:
        return list(self._consumer.assignment())

    def next_offsets(self) -> dict[Any, int]:
        positions = {tp: self._consumer.position(tp, timeout_ms=0) for tp in self._consumer.assignment()}
        return {tp: offset for tp, offset in positions.items() if offset is not None}

    async def began(self, timeout_ms: int) -> None:
        """Return None: the group rebalances only inside `poll`, which then returns records of the new generation."""

    def generation(self) -> Any:
        metadata = self.group_metadata()
        return getattr(metadata, "generation_id", None), getattr(metadata, "member_id", None)

    def is_member(self) -> bool:
        generation_id, _ = self.generation()
        return generation_id is None or generation_id >= 0

    def group_metadata(self) -> Any:
        """Return the membership that the broker checks (KIP-447), or the group id if the client has no membership."""
        metadata = getattr(self._consumer, "group_metadata", None)
        return metadata() if metadata is not None else self.group_id

    def offsets(self, offsets: dict[Any, int]) -> Any:
        from kafka.structs import OffsetAndMetadata

        return {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}

    def error_of(self, code: ErrorCode) -> Exception:
        from kafka.errors import IllegalGenerationError, UnknownMemberIdError

        error: Exception = (IllegalGenerationError if code == ErrorCode.ILLEGAL_GENERATION else UnknownMemberIdError)()
        return error

    async def committed_offset(self, tp: Any, timeout_ms: int) -> int | None:
        offset: int | None = self._consumer.committed(tp, timeout_ms=timeout_ms)
        return offset

    async def seek(self, tp: Any, offset: int | None, timeout_ms: int) -> None:
        if offset is None:
            self._consumer.seek_to_beginning(tp)
            self._consumer.position(tp, timeout_ms=timeout_ms)  # finds the offset of the beginning
        else:
            self._consumer.seek(tp, offset)
