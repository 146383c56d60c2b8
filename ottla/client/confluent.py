"""A confluent-kafka producer and consumer (librdkafka), as far as transactions need them. shell

librdkafka fails a commit by itself if a record was not delivered. After a refused batch it continues in the same epoch,
with sequences that are a gap for the broker. So the next transaction is aborted too, with a retriable error, and then
the epoch is bumped. These behaviours would break the guarantees of a transaction:

- an abort reuses the sequences of every message that is not acknowledged, even if the message is in the log. The next
  transaction of the epoch has the same sequences, and Kafka acknowledges its records and drops them
  (docs/in-the-log.md). So `abort` first waits for all answers. Without them, the producer is not used again;
- no method returns the state. `begin_transaction` shows it, and only has an effect if the producer is ready;
- the next call after a fatal error raises it, inside a callback as a `KafkaError`, which is not an exception: only a
  bare `except:` catches it;
- `close` aborts an open transaction, and waits for the answer up to the timeout of its sockets.
"""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ottla.client.errors import UNDELIVERED
from ottla.client.libraries import Consumer, State, comes_from, needs_one
from ottla.protocol.errors import ErrorCode

_ANSWER_TIMEOUT_MS: Final = 60_000  # the default of transaction.timeout.ms: a producer does not return its own
_FLUSH_SLICE_S: Final = 0.1  # signals are handled between slices
_PAUSE_S: Final = 0.02
_CLOSE_S: Final = 1.0
_NOT_CONFIGURED, _TIMED_OUT, _WRONG_STATE, _MESSAGE_TIMED_OUT = -145, -185, -172, -192  # RD_KAFKA_RESP_ERR__*

# The abort of a producer with a fatal error always fails.
warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)


class ConfluentProducer:
    """A view on one `confluent_kafka.Producer`. Its methods block and never suspend.

    The library does not return the transactional id, the producer id and the epoch.
    """

    __slots__ = ("_last_error", "_producer", "_state", "transactional_id")

    asynchronous = False

    def __init__(self, producer: Any) -> None:
        if not hasattr(producer, "close"):
            raise TypeError("transaction() needs a confluent-kafka whose Producer has close(): install a newer one")
        self._producer = producer
        self._state = State.READY
        self._last_error: BaseException | None = None
        self.transactional_id = type(producer).__name__

    @property
    def state(self) -> State:
        if self._state in (State.OPEN, State.MUST_ABORT):
            self._probe()
        return self._state

    @property
    def last_error(self) -> BaseException | None:
        return self._last_error

    @property
    def answer_timeout_ms(self) -> int:
        return _ANSWER_TIMEOUT_MS

    @property
    def epoch(self) -> tuple[int, int]:
        return -1, -1

    async def begin(self) -> None:
        try:
            self._call(self._producer.begin_transaction)
        except Exception as error:
            kafka_error = _kafka_error(error)
            if kafka_error is not None and kafka_error.code() == _NOT_CONFIGURED:
                lacks, make = "this Producer has no transactional.id", "Producer({'transactional.id': ...})"
                raise needs_one(lacks, make, "init_transactions()") from error
            if self._state is State.READY:
                raise RuntimeError(
                    f"the producer cannot begin a transaction ({kafka_error.str() if kafka_error else error}): "
                    "call init_transactions() once, and leave begin, commit and abort to transaction()"
                ) from error
            raise
        self._state = State.OPEN

    def record_sends(self, on_failure: Callable[[BaseException], None]) -> None:
        """Watch the delivery reports of a producer whose class is written in Python, SerializingProducer for example.

        `produce` of the library's own class cannot be replaced. With that class, librdkafka counts failed deliveries
        and refuses the commit, and `Transaction.on_delivery` takes the reports.
        """
        if not hasattr(self._producer, "__dict__"):
            return
        produce = self._producer.produce

        def report(error: Any, message: Any) -> None:
            if error is not None:
                on_failure(self.delivery_error(error, message))

        def watched_produce(topic: Any, *args: Any, **kwargs: Any) -> None:
            name = "callback" if "callback" in kwargs else "on_delivery"
            # The fifth argument of `Producer.produce` and of `SerializingProducer.produce`.
            own = args[3] if len(args) > 3 else kwargs.get(name)
            watched = report if own is None else partial(_report_both, report, own)
            if len(args) > 3:
                args = (*args[:3], watched, *args[4:])
            else:
                kwargs[name] = watched
            produce(topic, *args, **kwargs)

        self._producer.produce = watched_produce

    def forget_sends(self) -> None:
        # So that the method of the class applies again.
        getattr(self._producer, "__dict__", {}).pop("produce", None)

    @property
    def sent(self) -> int | None:
        """Number of records without a polled delivery report, the only number that librdkafka has."""
        return len(self._producer) or None

    async def flush(self, timeout_ms: int) -> None:
        left = self._flush(timeout_ms / 1000)
        if left and self.state is State.OPEN:
            raise TimeoutError(f"{left} records were not acknowledged within {timeout_ms} ms")

    async def send_offsets(self, offsets: Any, group_metadata: Any, timeout_ms: int) -> bool:
        return self._repeat(
            lambda left_s: self._producer.send_offsets_to_transaction(offsets, group_metadata, left_s), timeout_ms
        )

    async def commit(self, timeout_ms: int) -> bool:
        answered = self._repeat(lambda left_s: self._producer.commit_transaction(left_s), timeout_ms)
        self._state = State.READY if answered else State.ENDING
        return answered

    async def abort(self, timeout_ms: int) -> bool:
        """Abort. Return False without an answer in time. The state is FATAL afterwards if sequences may be reused."""
        # Half of the time is for the answers to records, the other half for the abort.
        unanswered = self._flush(timeout_ms / 2000)
        answered = self._repeat(lambda left_s: self._producer.abort_transaction(left_s), timeout_ms // 2)
        if not answered:
            self._state = State.ENDING
        elif unanswered:
            self._state = State.FATAL
            self._last_error = TimeoutError(
                f"{unanswered} records had no answer when their transaction was aborted, and librdkafka would use "
                "their sequence numbers again (a missing topic is reported after "
                "topic.metadata.propagation.max.ms, if that is below timeout_ms)"
            )
        else:
            self._state, self._last_error = State.READY, None
        return answered

    async def bump_epoch(self, timeout_ms: int) -> None:
        """Do nothing: librdkafka requests an epoch by itself, when the broker finds a gap."""

    async def wait_for_epoch(self, timeout_ms: int) -> None:
        """Do nothing: the abort waits for the epoch."""

    async def close(self) -> None:
        """Close without waiting for requests that can no longer succeed. A thread waits if closing takes longer."""
        self._state = State.CLOSED
        thread = threading.Thread(target=_close, args=(self._producer,), name="producer-close", daemon=True)
        thread.start()
        thread.join(_CLOSE_S)

    def as_exception(self, error: Any) -> BaseException | None:
        """Return the exception of a block that raised `error`, which may be a KafkaError."""
        if error is None or isinstance(error, BaseException):
            known: BaseException | None = error
            return known
        return _exception(error)

    def delivery_error(self, error: Any, message: Any) -> BaseException:
        """Return the exception for a delivery report with an error. A record that timed out without a partition gets
        the code of records that reached no partition, because its topic may not exist."""
        from confluent_kafka import KafkaError

        topic = message.topic()
        if error.code() == _MESSAGE_TIMED_OUT and message.partition() is None:
            error = KafkaError(UNDELIVERED, f"no partition of topic {topic!r} was found within message.timeout.ms")
        failure: Any = _exception(error)
        failure.topic = topic
        return failure  # type: ignore[no-any-return]

    def own(self, error: BaseException) -> bool:
        return _kafka_error(error) is not None

    def consumer(self, consumer: Any, config: Mapping[str, Any] | None) -> "ConfluentConsumer":
        return ConfluentConsumer(consumer, config)

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call the library. Raise its errors as exceptions, and store those that end the transaction or producer."""
        try:
            return function()
        except Exception as error:
            kafka_error = _kafka_error(error)
            failure = error if kafka_error is None or isinstance(error, _kafka_exception()) else _exception(kafka_error)
        except:  # noqa: E722 -- a KafkaError that librdkafka raises is not a BaseException
            thrown: Any = sys.exc_info()[1]
            if isinstance(thrown, BaseException):
                raise
            failure = _exception(thrown)
        self._note(failure)
        raise failure

    def _note(self, failure: BaseException) -> None:
        kafka_error = _kafka_error(failure)
        if kafka_error is not None and kafka_error.fatal():
            self._state, self._last_error = State.FATAL, failure
        elif kafka_error is not None and kafka_error.txn_requires_abort():
            self._state, self._last_error = State.MUST_ABORT, failure
        elif isinstance(failure, RuntimeError) and "closed" in str(failure):
            self._state = State.CLOSED

    def _probe(self) -> None:
        """Update the state by beginning a second transaction: the refusal shows the state of the first."""
        try:
            self._call(self._producer.begin_transaction)
        except Exception as error:
            kafka_error = _kafka_error(error)
            if kafka_error is None and self._state is not State.CLOSED:
                raise
            return
        self._call(lambda: self._producer.abort_transaction(_CLOSE_S))  # it is empty, so no request is sent
        self._state = State.READY

    def _flush(self, timeout_s: float) -> int:
        """Wait for the answers to sent records. Return the number of records without an answer."""
        deadline = time.monotonic() + timeout_s
        while True:
            left: int = self._call(lambda: self._producer.flush(_FLUSH_SLICE_S))
            if not left or time.monotonic() > deadline:
                return left

    def _repeat(self, step: Callable[[float], Any], timeout_ms: int) -> bool:
        """Repeat a step that may be called again after a timeout. Return False if it did not end in time."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            left_s = max(deadline - time.monotonic(), 0.001)
            try:
                self._call(partial(step, left_s))
                return True
            except Exception as error:
                kafka_error = _kafka_error(error)
                if kafka_error is None or not kafka_error.retriable():
                    raise
                if time.monotonic() >= deadline:
                    return False
                if kafka_error.code() != _TIMED_OUT:
                    time.sleep(_PAUSE_S)


class _Key:
    """Key of a consumer's positions. Unlike the consumer, it can be referenced weakly."""

    __slots__ = ("__weakref__", "was_member")

    def __init__(self) -> None:
        self.was_member = False


_keys: dict[int, _Key] = {}  # at most as many as consumers that existed at the same time


class ConfluentConsumer(Consumer):
    """A view on one `confluent_kafka.Consumer`, and on its configuration, which the library does not return.

    Partitions are (topic, partition).
    """

    __slots__ = ("_config", "_consumer")

    def __init__(self, consumer: Any, config: Mapping[str, Any] | None) -> None:
        if not comes_from(consumer, "cimpl.Consumer", "confluent_kafka.Consumer"):
            raise TypeError(
                f"the positions of a {type(consumer).__name__} cannot go into a transaction of confluent-kafka: "
                "pass a confluent_kafka.Consumer"
            )
        if config is None:
            raise TypeError(
                "a confluent_kafka.Consumer does not return its configuration, and without enable.auto.commit=False it "
                "would commit its positions outside the transaction: pass the configuration as consumer_config="
            )
        self._consumer = consumer
        topic_config = config.get("default.topic.config") or {}
        self._config = {**topic_config, **config}

    @property
    def key(self) -> "_Key":
        """Key of the consumer, which cannot be referenced weakly. A later consumer at its address has the same key."""
        return _keys.setdefault(id(self._consumer), _Key())

    @property
    def identified(self) -> bool:
        """Whether the consumer has a member id, which is unique. Partitions assigned by hand have none."""
        self.key.was_member = self.is_member()
        return self.key.was_member

    @property
    def group_id(self) -> str | None:
        group_id: str | None = self._config.get("group.id")
        return group_id

    @property
    def commits_by_itself(self) -> bool:
        return str(self._config.get("enable.auto.commit", True)).lower() not in ("false", "0", "f")

    @property
    def from_the_beginning(self) -> bool:
        return self._config.get("auto.offset.reset") in ("smallest", "earliest", "beginning")

    @property
    def subscribed(self) -> bool:
        """Whether a transaction has seen the consumer as a member, as librdkafka does not return its subscription."""
        return self.key.was_member

    def assignment(self) -> list[Any]:
        return [(tp.topic, tp.partition) for tp in self._consumer.assignment()]

    def next_offsets(self) -> dict[Any, int]:
        # A position of OFFSET_INVALID, a negative number, means that nothing has been consumed yet.
        positions = self._consumer.position(self._consumer.assignment())
        return {(tp.topic, tp.partition): tp.offset for tp in positions if tp.offset >= 0}

    @property
    def lacks_start_positions(self) -> bool:
        return True

    async def began(self, timeout_ms: int) -> dict[Any, int]:
        """Return no positions: librdkafka has none before a record was read."""
        return {}

    def generation(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def is_member(self) -> bool:
        return bool(self._consumer.memberid())

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def offsets(self, offsets: dict[Any, int]) -> Any:
        from confluent_kafka import TopicPartition

        return [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]

    def error_of(self, code: ErrorCode) -> Exception:
        from confluent_kafka import KafkaError

        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.key.was_member = False  # it must poll first; or it is a new object at the address of a former member
        return _exception(KafkaError(code.value))

    async def committed_offset(self, tp: Any, timeout_ms: int) -> int | None:
        from confluent_kafka import TopicPartition

        (answer,) = self._consumer.committed([TopicPartition(tp[0], tp[1])], timeout=timeout_ms / 1000)
        if answer.error is not None:
            raise _exception(answer.error)
        return int(answer.offset) if answer.offset >= 0 else None

    async def seek(self, tp: Any, offset: int | None, timeout_ms: int) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        target = TopicPartition(tp[0], tp[1], OFFSET_BEGINNING if offset is None else offset)
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            try:
                self._consumer.seek(target)
                return
            except Exception as error:
                if tp not in self.assignment():
                    return  # it was revoked in the meantime
                kafka_error = _kafka_error(error)
                if kafka_error is None or kafka_error.code() != _WRONG_STATE or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)  # it was assigned a moment ago, and is not fetched yet


def _kafka_error(error: BaseException | None) -> Any:
    """Return the KafkaError in an exception, or None. After a callback it is the cause of a SystemError."""
    seen = 0
    while error is not None and seen < 5:
        if error.args and hasattr(error.args[0], "txn_requires_abort"):
            return error.args[0]
        cause: Any = error.__cause__
        if cause is not None and hasattr(cause, "txn_requires_abort"):
            return cause
        error, seen = cause, seen + 1
    return None


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException

    kind: type[Exception] = KafkaException
    return kind


def _report_both(
    first: Callable[[Any, Any], None], second: Callable[[Any, Any], None], error: Any, message: Any
) -> None:
    first(error, message)
    second(error, message)


def _exception(kafka_error: Any) -> Exception:
    return _kafka_exception()(kafka_error)


def _close(producer: Any) -> None:
    try:
        producer.purge()
        producer.close()
    except:  # noqa: E722 -- a fatal error may be raised again, as an object that is not an exception
        return
