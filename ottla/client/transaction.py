"""Transactions over a kafka-python producer, as a context manager. shell

What to do after each error is decided here and in `errors.py`; how kafka-python is driven is in `producer.py`.
"""

from types import TracebackType
from typing import Any
from weakref import WeakSet

from ottla.client.errors import (
    TransactionError,
    TransactionFatal,
    aborted,
    commit_unknown,
    fatal,
    root_cause,
    unconfirmed_abort,
)
from ottla.client.positions import Positions
from ottla.client.producer import State, TransactionalProducer

_in_transaction: "WeakSet[Any]" = WeakSet()


def transaction(producer: Any, *, consumer: Any = None, timeout_ms: int | None = None) -> "Transaction":
    """One transaction, committed at the end of the block and aborted when the block raises.

        producer = KafkaProducer(bootstrap_servers=..., transactional_id="order-processor-01")
        producer.init_transactions()
        while True:
            records = consumer.poll(timeout_ms=1000)
            with transaction(producer, consumer=consumer):
                for record in flatten(records):
                    producer.send("financial-ledger", transform(record))

    `producer` is a kafka.KafkaProducer with a transactional_id, after init_transactions(). With `consumer` (a
    kafka.KafkaConsumer with a group_id and enable_auto_commit=False) its positions are committed in the transaction;
    when that does not happen, the consumer goes back to the last committed positions, so that the records are processed
    again.
    `timeout_ms` is how long to wait for the coordinator's answer, by default the producer's max_block_ms.

    The block's own exception is raised again after the abort. Otherwise the block ends in one of:
    TransactionAborted (nothing is visible, the producer is usable; `retriable` says whether to run the block again),
    ProducerFenced or TransactionFatal (the producer was closed), CommitUnknown (no answer to the commit; closed too).
    A record that could not be sent makes the commit fail, whether or not somebody looked at its future.

    Not for several threads, and transactions of one producer do not nest.
    """
    return Transaction(producer, consumer, timeout_ms)


class Transaction:
    """What `with transaction(...)` enters. Use `producer` as ever inside the block."""

    def __init__(self, producer: Any, consumer: Any, timeout_ms: int | None) -> None:
        self.producer = producer
        self._client = TransactionalProducer(producer)
        self._consumer = consumer
        self._positions: Positions | None = None
        self._timeout_ms = self._client.answer_timeout_ms if timeout_ms is None else timeout_ms
        self._epoch = (-1, -1)
        self._failed_send: BaseException | None = None
        self._sequence_lost = False

    def __enter__(self) -> "Transaction":
        client = self._client
        if self.producer in _in_transaction:
            raise RuntimeError(f"{client.transactional_id!r} is in a transaction already: transactions do not nest")
        self._positions = Positions(self._consumer) if self._consumer is not None else None
        state = client.state
        if state is State.FATAL:
            raise self._close(client.last_error or RuntimeError("an earlier fatal error")) from client.last_error
        if state is State.UNINITIALIZED:
            raise RuntimeError(f"call init_transactions() of {client.transactional_id!r} before its first transaction")
        if state is not State.READY:
            raise RuntimeError(f"{client.transactional_id!r} cannot begin a transaction: it is {state.name}")
        self._epoch = client.epoch
        client.begin()
        client.record_sends(self._on_failed_send)
        _in_transaction.add(self.producer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
            elif isinstance(error, Exception):
                self._abandon(error)
            else:
                self._interrupted(error)
        finally:
            self._client.forget_sends()
            _in_transaction.discard(self.producer)

    def _on_failed_send(self, error: BaseException) -> None:
        if self._failed_send is None:
            self._failed_send = error
        # Batches that were never handed to the network fail with this when a transaction is aborted (KIP-654).
        if type(error).__name__ != "TransactionAbortedError":
            self._sequence_lost = True

    def _trouble(self) -> BaseException | None:
        """Why this transaction cannot be committed, if it cannot."""
        if self._failed_send is not None:
            return self._failed_send
        state = self._client.state
        if state is State.OPEN:
            return None
        if state is State.CLOSED:
            return RuntimeError("the producer was closed inside its transaction")
        return self._client.last_error or RuntimeError(
            f"the block left the producer {state.name}, not in a transaction"
        )

    def _ended_by_hand(self) -> bool:
        """Whether the block committed or aborted by itself; the client's own recovery is READY too, in a new epoch."""
        return self._client.state is State.READY and self._failed_send is None and self._client.epoch == self._epoch

    def _commit(self) -> None:
        if self._ended_by_hand():
            raise RuntimeError(
                "the block ended its transaction itself: leave the commit and the abort to transaction()"
            )
        try:
            self._client.flush()
            trouble = self._trouble()
            if trouble is None:
                self._send_offsets()
        except Exception as failure:
            trouble = failure
        if trouble is not None:
            raise self._give_up(trouble) from trouble
        try:
            answered = self._client.commit(self._timeout_ms)
        except Exception as failure:
            raise self._give_up(failure) from failure
        except BaseException as interruption:
            self._client.close()
            interruption.add_note(str(commit_unknown(self._client.transactional_id, self._timeout_ms)))
            raise
        if not answered:
            self._client.close()
            raise commit_unknown(self._client.transactional_id, self._timeout_ms)
        if self._positions is not None:
            self._positions.committed()

    def _send_offsets(self) -> None:
        offsets = self._positions.moved() if self._positions is not None else {}
        if not offsets or self._positions is None:
            return
        if not self._client.send_offsets(offsets, self._positions.group_metadata(), self._timeout_ms):
            raise TimeoutError(f"no answer to the offsets of the transaction within {self._timeout_ms} ms")

    def _abandon(self, error: Exception) -> None:
        """The block raised: abort, and let its exception through unless that is the client's own about a lost cause."""
        from kafka.errors import KafkaError

        if self._ended_by_hand():
            return
        trouble = self._trouble()
        outcome = self._give_up(trouble or error)
        if isinstance(outcome, TransactionFatal) or (trouble is not None and isinstance(error, KafkaError)):
            raise outcome from error

    def _interrupted(self, interruption: BaseException) -> None:
        """KeyboardInterrupt and the like go through in any case; what became of the transaction is noted on them."""
        if self._ended_by_hand():
            return
        outcome = self._give_up(self._trouble() or interruption)
        interruption.add_note(str(outcome))

    def _give_up(self, cause: BaseException) -> TransactionError:
        """Abort if that is still possible, close the producer if not, and say which it was."""
        client = self._client
        client.wait_for_epoch(self._timeout_ms)
        if client.state in (State.OPEN, State.MUST_ABORT):
            try:
                if not client.abort(self._timeout_ms):
                    client.close()
                    return self._rewound(unconfirmed_abort(client.transactional_id, self._timeout_ms))
                if self._sequence_lost:
                    client.bump_epoch(self._timeout_ms)
            except Exception as failure:
                return self._close(client.last_error or failure, since=cause)
        if client.state is State.READY:
            return self._rewound(aborted(client.transactional_id, cause))
        return self._close(client.last_error or cause, since=cause)

    def _close(self, error: BaseException, since: BaseException | None = None) -> TransactionError:
        """Close the producer. A lost sequence number outranks the fence that the client's own recovery ran into."""
        outcome = fatal(self._client.transactional_id, error)
        if since is not None and type(root_cause(since)).__name__ in (
            "OutOfOrderSequenceNumberError",
            "UnknownProducerIdError",
        ):
            outcome = fatal(self._client.transactional_id, since)
        self._client.close()
        return self._rewound(outcome)

    def _rewound(self, outcome: TransactionError) -> TransactionError:
        """Take the consumer back; if that fails nothing may go on, or the next commit would skip its records."""
        if self._positions is None:
            return outcome
        try:
            self._positions.rewind(self._timeout_ms)
        except Exception as failure:
            if not isinstance(outcome, TransactionFatal):
                self._client.close()
                outcome = fatal(self._client.transactional_id, failure)
            outcome.add_note(
                f"The consumer could not be taken back to its committed positions ({failure}): close it too, "
                "and go on with a new one."
            )
        return outcome
