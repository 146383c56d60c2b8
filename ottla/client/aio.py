"""Internals of an aiokafka producer and consumer, as far as transactions need them. shell

This file and `aio_offsets.py` read aiokafka's private parts (0.13 and 0.14). Its public methods are not enough: they
wait forever and do not return the state. These behaviours would break the guarantees of a transaction:

- a batch that fails changes no state: the commit would succeed without it;
- a failed batch has used up its sequence numbers, so the next batch of its partition would be out of order, in this
  transaction or the next. aiokafka cannot bump its epoch (KIP-360), so `bump_epoch` requests one like a new producer;
- after an abortable error aiokafka forgets the partitions of the transaction, and aborts without a request to the
  coordinator: the records would become visible with the next commit;
- a fatal error ends the sender task, and later calls of the producer wait forever;
- `stop` waits for records that cannot be sent;
- offsets are sent with the group id alone, so the broker accepts them also from a consumer that has lost its
  partitions. `aio_offsets` sends them with the membership;
- an error of the whole group in the answer about committed offsets is ignored, so that they seem not to exist.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ottla.client.libraries import Consumer, State, comes_from, needs_one
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_names import detect_invalid_topic

_POLL_S: Final = 0.002
_CLOSE_S: Final = 1.0

_REGISTRATIONS: Final = ("partition_added", "consumer_group_added")

_STATES = {
    "UNINITIALIZED": State.UNINITIALIZED,
    "READY": State.READY,
    "IN_TRANSACTION": State.OPEN,
    "COMMITTING_TRANSACTION": State.ENDING,
    "ABORTING_TRANSACTION": State.ENDING,
    "ABORTABLE_ERROR": State.MUST_ABORT,
    "FATAL_ERROR": State.FATAL,
}


class AiokafkaProducer:
    """A view on one `aiokafka.AIOKafkaProducer` with a transactional id."""

    __slots__ = ("_accumulator", "_manager", "_producer", "_registered", "sent", "transactional_id")

    asynchronous = True

    def __init__(self, producer: Any) -> None:
        manager = producer._txn_manager
        transactional_id = getattr(manager, "transactional_id", None)
        if transactional_id is None:
            raise needs_one(
                "this AIOKafkaProducer has no transactional_id", "AIOKafkaProducer(transactional_id='...')", "start()"
            )
        self._producer = producer
        self._manager: Any = manager
        self._accumulator: Any = producer._message_accumulator
        self.transactional_id: str = transactional_id
        self.sent = 0
        self._registered = False

    @property
    def state(self) -> State:
        if self._producer._closed:
            return State.CLOSED
        if self._sender_failure() is not None:
            return State.FATAL  # the manager's state is ignored: an abortable error may overwrite a fatal one
        return _STATES[self._manager.state.name]

    @property
    def last_error(self) -> BaseException | None:
        waiter = self._manager.wait_for_transaction_end()
        failed = waiter.exception() if waiter is not None and waiter.done() and not waiter.cancelled() else None
        return self._sender_failure() or failed

    @property
    def answer_timeout_ms(self) -> int:
        return int(self._producer._request_timeout_ms)

    @property
    def epoch(self) -> tuple[int, int]:
        return self._manager.producer_id, self._manager.producer_epoch

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    def record_sends(self, on_failure: Callable[[BaseException], None]) -> None:
        """Watch every batch until `forget_sends`. Futures of `send` are not enough: the application may cancel them."""
        self._producer.send = self._wrap_send(self._producer.send)
        append = self._accumulator._append_batch
        self._manager.wait_for_transaction_end().add_done_callback(_mark_retrieved)

        def watched_append(*args: Any, **kwargs: Any) -> Any:
            batch = append(*args, **kwargs)
            self.sent += 1
            batch.future.add_done_callback(partial(_watch, batch, on_failure))
            return batch

        def watched_registration(register: Callable[[Any], None], partition_or_group: Any) -> None:
            self._registered = True
            register(partition_or_group)

        self._accumulator._append_batch = watched_append
        for name in _REGISTRATIONS:
            setattr(self._manager, name, partial(watched_registration, getattr(self._manager, name)))

    def _wrap_send(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `send` with the topic in its errors. It refuses an invalid name at once, which aiokafka would look
        up until request_timeout_ms. Without an answer of a broker, it raises a timeout, not an unknown topic."""
        from aiokafka.errors import InvalidTopicError, KafkaTimeoutError, UnknownTopicOrPartitionError

        async def explained_send(topic: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(topic, str) and detect_invalid_topic(topic) is not None:
                raise InvalidTopicError(topic)
            began_ms = time.time() * 1000  # the clock of aiokafka's metadata
            try:
                return await send(topic, *args, **kwargs)
            except UnknownTopicOrPartitionError:
                if self._producer.client.cluster._last_successful_refresh_ms < began_ms:
                    raise KafkaTimeoutError(f"no broker answered the request for the topic {topic!r}") from None
                raise UnknownTopicOrPartitionError(topic) from None

        return explained_send

    def forget_sends(self) -> None:
        del self._producer.send  # so that the methods of the class apply again
        del self._accumulator._append_batch
        for name in _REGISTRATIONS:
            delattr(self._manager, name)

    async def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged, at most `timeout_ms`, because aiokafka retries forever."""
        if not await _done(self._producer.flush(), timeout_ms):
            raise TimeoutError(f"records were not acknowledged within {timeout_ms} ms")
        await asyncio.sleep(0)  # let the callbacks of the futures run first

    async def send_offsets(self, offsets: Any, group_metadata: Any, timeout_ms: int) -> bool:
        from ottla.client.aio_offsets import sends_offsets

        sender = self._producer._sender
        sender._do_txn_offset_commit = sends_offsets(sender)
        try:
            return await _done(self._producer.send_offsets_to_transaction(offsets, group_metadata), timeout_ms)
        finally:
            del sender._do_txn_offset_commit  # so that the method of the class applies again

    async def commit(self, timeout_ms: int) -> bool:
        return await _done(self._producer.commit_transaction(), timeout_ms)

    async def abort(self, timeout_ms: int) -> bool:
        """Abort. Return False without an answer in time. aiokafka first waits for the answers to sent batches."""
        if self._registered and self._manager.is_empty_transaction():
            self._manager._txn_consumer_group = ""  # makes it non-empty: the coordinator needs an EndTxn
        return await _done(self._producer.abort_transaction(), timeout_ms)

    async def bump_epoch(self, timeout_ms: int) -> None:
        """Request the next epoch, with sequences from 0. The abort is confirmed: no other producer has the id."""
        manager = self._manager
        manager.state = type(manager.state).UNINITIALIZED
        manager._pid_and_epoch = type(manager._pid_and_epoch)(-1, -1)
        manager._pid_waiter = asyncio.get_running_loop().create_future()
        manager._sequence_numbers.clear()
        manager.notify_task_waiter()
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while self.state is State.UNINITIALIZED:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"no answer to the request for a new epoch within {timeout_ms} ms")
            await asyncio.sleep(_POLL_S)

    async def wait_for_epoch(self, timeout_ms: int) -> None:
        """Do nothing: aiokafka never requests an epoch by itself."""

    async def close(self) -> None:
        """Close without waiting for requests that can no longer succeed."""
        from aiokafka.errors import ProducerClosed

        producer, task = self._producer, self._producer._sender.sender_task
        if producer._closed:
            return
        producer._closed = True
        self._accumulator._closed = True
        if task is not None:
            task.cancel()
        await producer.client.close()  # requests end with their connection, and the sender ends after them
        if task is not None and not (await asyncio.wait({task}, timeout=_CLOSE_S))[0]:
            task.cancel()  # again: it may search for a coordinator forever
            await asyncio.wait({task}, timeout=_CLOSE_S)
        if (ending := self._manager.wait_for_transaction_end()) is not None:
            ending.add_done_callback(_mark_retrieved)
        for batches in self._accumulator._batches.values():
            # aiokafka removes every sent batch from this set, also one that waits for a retry.
            self._accumulator._pending_batches.update(batch for batch in batches if batch.retry_count)
        self._accumulator.fail_all(ProducerClosed())  # last: the sender would fail on a batch that is done

    def as_exception(self, error: BaseException | None) -> BaseException | None:
        return error

    def delivery_error(self, error: Any, message: Any) -> BaseException:
        """Return the error unchanged: only confluent-kafka has delivery reports."""
        failure: BaseException = error
        return failure

    def own(self, error: BaseException) -> bool:
        from aiokafka.errors import KafkaError

        return isinstance(error, KafkaError)

    def consumer(self, consumer: Any, config: Mapping[str, Any] | None) -> "AiokafkaConsumer":
        if config is not None:
            raise TypeError("consumer_config= is for a confluent_kafka.Consumer: remove it for an AIOKafkaConsumer")
        return AiokafkaConsumer(consumer)

    def _sender_failure(self) -> BaseException | None:
        task = self._producer._sender.sender_task
        if task is None or not task.done():
            return None
        if task.cancelled():
            return RuntimeError("the producer's sender task was cancelled")
        failure: BaseException | None = task.exception()
        return failure or RuntimeError("the producer's sender task has ended")


class AiokafkaConsumer(Consumer):
    """A view on one `aiokafka.AIOKafkaConsumer`."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Any) -> None:
        if not comes_from(consumer, "aiokafka.AIOKafkaConsumer"):
            raise TypeError(
                f"the positions of a {type(consumer).__name__} cannot go into a transaction of aiokafka: "
                "pass an aiokafka.AIOKafkaConsumer"
            )
        from ottla.client.aio_offsets import report_group_errors

        self._consumer = consumer
        report_group_errors(consumer._coordinator)

    @property
    def group_id(self) -> str | None:
        group_id: str | None = self._consumer._group_id
        return group_id

    @property
    def commits_by_itself(self) -> bool:
        return bool(self._consumer._enable_auto_commit)

    @property
    def from_the_beginning(self) -> bool:
        return bool(self._consumer._auto_offset_reset == "earliest")

    @property
    def subscribed(self) -> bool:
        return bool(self._consumer._subscription.partitions_auto_assigned())

    def assignment(self) -> list[Any]:
        return list(self._consumer.assignment())

    def next_offsets(self) -> dict[Any, int]:
        # `position()` would wait for a position.
        subscription = self._consumer._subscription.subscription
        if subscription is None or subscription.assignment is None:
            return {}
        states = {tp: subscription.assignment.state_value(tp) for tp in subscription.assignment.tps}
        return {tp: state.position for tp, state in states.items() if state.has_valid_position}

    async def began(self, timeout_ms: int) -> dict[Any, int]:
        """Return the committed offsets, or the beginning of the log without one. These positions are needed because a
        background task of aiokafka rebalances at any time."""
        began = {tp: await self.committed_offset(tp, timeout_ms) for tp in self.assignment()}
        lacking = [tp for tp, offset in began.items() if offset is None]
        if lacking and self.from_the_beginning:
            async with asyncio.timeout(timeout_ms / 1000):
                began.update(await self._consumer.beginning_offsets(lacking))
        return {tp: offset for tp, offset in began.items() if offset is not None}

    def generation(self) -> Any:
        coordinator = self._consumer._coordinator
        return getattr(coordinator, "generation", None), getattr(coordinator, "member_id", None)

    def is_member(self) -> bool:
        generation_id, _ = self.generation()
        return generation_id is not None and generation_id >= 0

    def group_metadata(self) -> Any:
        from ottla.client.aio_offsets import Membership

        generation_id, member_id = self.generation()
        instance_id = getattr(self._consumer, "_group_instance_id", None)
        return Membership.of(
            self._consumer._group_id, -1 if generation_id is None else generation_id, member_id or "", instance_id
        )

    def offsets(self, offsets: dict[Any, int]) -> Any:
        return dict(offsets)

    def error_of(self, code: ErrorCode) -> Exception:
        from aiokafka.errors import IllegalGenerationError, UnknownMemberIdError

        error: Exception = (IllegalGenerationError if code == ErrorCode.ILLEGAL_GENERATION else UnknownMemberIdError)()
        return error

    async def committed_offset(self, tp: Any, timeout_ms: int) -> int | None:
        async with asyncio.timeout(timeout_ms / 1000):
            offset: int | None = await self._consumer.committed(tp)
        return offset

    async def seek(self, tp: Any, offset: int | None, timeout_ms: int) -> None:
        if offset is None:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._consumer.seek_to_beginning(tp)
        else:
            self._consumer.seek(tp, offset)


def _watch(batch: Any, on_failure: Callable[[BaseException], None], future: "asyncio.Future[Any]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        on_failure(error)
        for record, _ in batch._msg_futures:  # the transaction raises it, so a record's own future may stay unread
            _mark_retrieved(record)
        _mark_retrieved(batch._drain_waiter)


def _mark_retrieved(future: "asyncio.Future[Any]") -> None:
    """Read the exception of a future, so that asyncio does not log it as never retrieved."""
    if future.done() and not future.cancelled():
        future.exception()


async def _done(step: Any, timeout_ms: int) -> bool:
    """Return whether a step of the library ended in time, or raise its exception. Cancel it otherwise. The library does
    not notice the cancellation, because it shields its futures."""
    task = asyncio.ensure_future(step)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_ms / 1000)
    finally:
        task.cancel()
    if not done:
        return False
    task.result()
    return True
