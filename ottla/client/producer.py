"""The inside of a kafka-python producer, as far as transactions need it. shell

The one file that reads kafka-python's private parts (3.0.x, pinned in pyproject.toml). Its public methods are not
enough: `commit_transaction` and `abort_transaction` wait for ever, the reason of a failure is only in the transaction
manager, and three of its ways would break the promise of a transaction:

- a batch that outlives delivery_timeout_ms fails its future and changes no state: the commit would succeed without it;
- a failed batch has used up its sequence numbers, so that the next transaction would be out of order (`bump_epoch` is
  what the Java client does after such an abort, KIP-360);
- offsets of an aborted transaction stay in `_pending_txn_offset_commits` and would be committed with the next one.
"""

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

_POLL_S = 0.002
_FLUSH_SLICE_S = 0.5


class State(Enum):
    """Where a producer stands: kafka-python's `TransactionState`, as far as it matters here."""

    UNINITIALIZED = auto()  # init_transactions() was not called, or has not finished
    READY = auto()
    OPEN = auto()
    ENDING = auto()  # a commit or an abort is under way
    MUST_ABORT = auto()
    BUMPING = auto()  # asks for the next epoch, which aborts what was open
    FATAL = auto()
    CLOSED = auto()


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


class TransactionalProducer:
    """A view on one `kafka.KafkaProducer` with a transactional id."""

    __slots__ = ("_manager", "_producer", "transactional_id")

    def __init__(self, producer: Any) -> None:
        manager = getattr(producer, "_transaction_manager", None)
        transactional_id = getattr(manager, "transactional_id", None)
        if transactional_id is None:
            name = type(producer).__name__
            is_one = name == "KafkaProducer" and type(producer).__module__.partition(".")[0] == "kafka"
            problem = "this KafkaProducer has no transactional_id" if is_one else f"this is a {name}"
            raise TypeError(
                f"transaction() needs a kafka.KafkaProducer with a transactional_id, and {problem}; "
                "make it with KafkaProducer(transactional_id='...') and call init_transactions() once"
            )
        self._producer = producer
        self._manager: Any = manager
        self.transactional_id: str = transactional_id

    @property
    def state(self) -> State:
        if self._producer._closed:
            return State.CLOSED
        return _STATES[self._manager._current_state.name]

    @property
    def last_error(self) -> BaseException | None:
        """Why the state is MUST_ABORT or FATAL."""
        error: BaseException | None = self._manager.last_error
        return error

    @property
    def answer_timeout_ms(self) -> int:
        """The client's own patience with a coordinator (`max_block_ms`)."""
        return int(self._producer.config["max_block_ms"])

    @property
    def epoch(self) -> tuple[int, int]:
        """Producer id and epoch, as the coordinator gave them out."""
        current = self._manager.producer_id_and_epoch
        return current.producer_id, current.epoch

    def begin(self) -> None:
        self._producer.begin_transaction()

    def record_sends(self, on_failure: Callable[[BaseException], None]) -> None:
        """Watch the future of every send until `forget_sends`; `on_failure` is called from the sender's thread."""
        send = self._producer.send

        def watched_send(*args: Any, **kwargs: Any) -> Any:
            future = send(*args, **kwargs)
            future.add_errback(on_failure)
            return future

        self._producer.send = watched_send

    def forget_sends(self) -> None:
        del self._producer.send  # the instance's own attribute: the class's method shows again

    def flush(self) -> None:
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

    def send_offsets(self, offsets: dict[Any, Any], group_metadata: Any, timeout_ms: int) -> bool:
        """Add offsets to the transaction; False when no answer came in time."""
        return self._answered(self._manager.send_offsets_to_transaction(offsets, group_metadata), timeout_ms)

    def commit(self, timeout_ms: int) -> bool:
        """Commit; False when no answer came in time. Call `flush` first: a failure found later is lost."""
        return self._answered(self._manager.begin_commit(), timeout_ms)

    def abort(self, timeout_ms: int) -> bool:
        """Abort; False when no answer came in time."""
        answered = self._answered(self._manager.begin_abort(), timeout_ms)
        self._manager._pending_txn_offset_commits.clear()
        return answered

    def bump_epoch(self, timeout_ms: int) -> None:
        """Start the next epoch with fresh sequence numbers; the state is READY afterwards, or tells what went wrong."""
        self._manager.bump_producer_id_and_epoch()
        self._producer._sender.wakeup()
        self.wait_for_epoch(timeout_ms)

    def wait_for_epoch(self, timeout_ms: int) -> None:
        """Wait while the client asks for a new epoch (which it also does by itself, after some errors)."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self.state is State.BUMPING and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Close without waiting for what can no longer succeed."""
        from kafka.errors import KafkaTimeoutError

        self._producer._sender.force_close()
        try:
            self._producer.close(timeout=1)
        except KafkaTimeoutError:
            self._producer.close(timeout=0)

    def _answered(self, result: Any, timeout_ms: int) -> bool:
        self._producer._sender.wakeup()
        answered: bool = result.wait(timeout_ms=timeout_ms)
        return answered
