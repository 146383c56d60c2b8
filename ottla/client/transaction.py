"""Transactions over a producer of kafka-python, confluent-kafka or aiokafka, as a context manager. shell

This module and `errors.py` decide the reaction to each error, for all libraries. The calls of each library are in the
module of its name. The decisions are coroutines: `async with` awaits them, and `with` runs them to their end, because
with a blocking library they never suspend.
"""

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ottla.client.errors import (
    TransactionError,
    TransactionFatal,
    choose_error,
    code_of,
    commit_unknown,
    fatal,
    is_hopeless,
    is_of_a_record,
    make_abort_error,
    unconfirmed_abort,
)
from ottla.client.libraries import State, TransactionalProducer, comes_from
from ottla.client.positions import Positions
from ottla.protocol.errors import ErrorCode

T = TypeVar("T")

# Codes of a commit whose answer the library no longer waits for: no broker refused the commit.
_NO_ANSWER = (None, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)

_in_transaction: set[int] = set()  # ids of producers: those of some libraries cannot be referenced weakly


def transaction(
    producer: Any,
    *,
    consumer: Any = None,
    consumer_config: Mapping[str, Any] | None = None,
    timeout_ms: int | None = None,
) -> "Transaction":
    """Run a block as one transaction: commit it at its end, abort it when the block raises.

        producer = KafkaProducer(bootstrap_servers=..., transactional_id="order-processor-01")
        producer.init_transactions()
        while True:
            records = consumer.poll(timeout_ms=1000)
            with transaction(producer, consumer=consumer):
                for record in flatten(records):
                    producer.send("financial-ledger", transform(record))

    `producer` is a kafka.KafkaProducer or a confluent_kafka.Producer with a transactional id, after
    init_transactions(), or an aiokafka.AIOKafkaProducer after start(), with `async with transaction(...)`.
    With `consumer` (of the same library, with a group id and without auto commit) its positions are committed in the
    transaction. Without a commit, the consumer seeks to the last committed positions, so that the records are processed
    again. A block that sends the records again without a poll is aborted and raises RuntimeError.
    A confluent_kafka.Consumer does not return its configuration: pass the mapping that it was made from as
    `consumer_config`.
    `timeout_ms` is how long to wait for the coordinator's answer, by default the producer's max_block_ms
    (kafka-python), its request_timeout_ms (aiokafka), or a minute (confluent-kafka).

    The block's own exception is raised again after the abort. Otherwise the block ends in one of:
    TransactionAborted (nothing is visible, the producer is usable; `retriable` says whether to run the block again),
    ProducerFenced or TransactionFatal (the producer was closed), CommitUnknown (no answer to the commit; closed too).
    A record that could not be sent makes the commit fail, even if the program does not check its future.

    Not for several threads or tasks, and transactions of one producer do not nest.
    """
    return Transaction(producer, consumer, consumer_config, timeout_ms)


def drive(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        steps.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    steps.close()
    raise RuntimeError("a step over a library that blocks suspended")


class Transaction:
    """Context of `with transaction(...)` and `async with transaction(...)`. Use the producer as usual in the block."""

    def __init__(
        self, producer: Any, consumer: Any, consumer_config: Mapping[str, Any] | None, timeout_ms: int | None
    ) -> None:
        self.producer = producer
        self._client = view_of(producer)
        self._consumer = self._client.consumer(consumer, consumer_config) if consumer is not None else None
        self._positions: Positions | None = None
        self._timeout_ms = self._client.answer_timeout_ms if timeout_ms is None else timeout_ms
        self._epoch = (-1, -1)
        self._failed_send: BaseException | None = None
        self._sequence_lost = False

    def __enter__(self) -> "Transaction":
        if self._client.asynchronous:
            raise TypeError(f"a {type(self.producer).__name__} needs `async with transaction(...)`")
        return drive(self._begin())

    async def __aenter__(self) -> "Transaction":
        if not self._client.asynchronous:
            raise TypeError(f"a {type(self.producer).__name__} blocks: it needs `with transaction(...)`, without async")
        return await self._begin()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        drive(self._end(self._client.as_exception(error)))

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self._end(error)

    def on_delivery(self, error: Any, message: Any) -> None:
        """Take a delivery report of confluent-kafka, so that a failure is reported with the record's own error:
        `producer.produce(topic, value, on_delivery=transaction.on_delivery)`."""
        if error is not None:
            self._on_failed_send(self._client.delivery_error(error, message))

    async def _begin(self) -> "Transaction":
        client = self._client
        if id(self.producer) in _in_transaction:
            raise RuntimeError(f"{client.transactional_id!r} is in a transaction already: transactions do not nest")
        self._positions = Positions(self._consumer) if self._consumer is not None else None
        state = client.state
        if state is State.FATAL:
            raise await self._close(client.last_error or RuntimeError("an earlier fatal error")) from client.last_error
        if state is State.UNINITIALIZED:
            raise RuntimeError(f"call init_transactions() of {client.transactional_id!r} before its first transaction")
        if state is not State.READY:
            raise RuntimeError(f"{client.transactional_id!r} cannot begin a transaction: it is {state.name}")
        self._epoch = client.epoch
        try:
            await client.begin()
        except Exception as failure:
            if client.state is State.FATAL:
                raise await self._close(client.last_error or failure) from failure
            raise
        client.record_sends(self._on_failed_send)
        _in_transaction.add(id(self.producer))
        return self

    async def _end(self, error: BaseException | None) -> None:
        try:
            if error is None:
                await self._commit()
            elif isinstance(error, Exception):
                await self._abandon(error)
            else:
                await self._give_up_on_interrupt(error)
        finally:
            self._client.forget_sends()
            _in_transaction.discard(id(self.producer))

    def _on_failed_send(self, error: BaseException) -> None:
        self._failed_send = choose_error(self._failed_send, error)
        # Batches that were never handed to the network fail with this when a transaction is aborted (KIP-654).
        if type(error).__name__ != "TransactionAbortedError":
            self._sequence_lost = True

    def _send_error(self) -> BaseException | None:
        """Return the reason why this transaction cannot be committed, or None."""
        state = self._client.state
        if self._failed_send is not None:
            last_error = self._client.last_error if state is not State.OPEN else None
            return self._failed_send if last_error is None else choose_error(self._failed_send, last_error)
        if state is State.OPEN:
            return None
        if state is State.CLOSED:
            return RuntimeError("the producer was closed inside its transaction")
        return self._client.last_error or RuntimeError(
            f"the block left the producer {state.name}, not in a transaction"
        )

    def _ended_by_hand(self) -> bool:
        """Return whether the block committed or aborted by itself. After the client's own recovery the epoch is new."""
        return self._client.state is State.READY and self._failed_send is None and self._client.epoch == self._epoch

    async def _commit(self) -> None:
        if self._ended_by_hand():
            raise RuntimeError(
                "the block ended its transaction itself: leave the commit and the abort to transaction()"
            )
        failed, sent, outdated = None, self._client.sent, False
        try:
            if self._positions is not None and sent != 0:
                outdated = not await self._positions.has_read(self._timeout_ms)
            if not outdated:
                await self._client.flush(self._timeout_ms)
                failed = self._send_error()
            if not outdated and failed is None:
                await self._send_offsets()
        except Exception as failure:
            failed = failure
        except BaseException as interruption:
            await self._give_up_on_interrupt(interruption)
            raise
        if failed is not None:
            raise await self._give_up(failed) from failed
        if outdated and self._positions is not None:
            await self._withhold(self._positions, sent)
        else:
            await self._send_commit()

    async def _send_commit(self) -> None:
        try:
            answered = await self._client.commit(self._timeout_ms)
        except Exception as failure:
            if code_of(failure) in _NO_ANSWER and self._client.state in (State.ENDING, State.FATAL):
                await self._client.close()
                raise commit_unknown(self._client.transactional_id, self._timeout_ms) from failure
            raise await self._give_up(failure) from failure
        except BaseException as interruption:
            await self._client.close()
            interruption.add_note(str(commit_unknown(self._client.transactional_id, self._timeout_ms)))
            raise
        if not answered:
            await self._client.close()
            raise commit_unknown(self._client.transactional_id, self._timeout_ms)
        if self._positions is not None:
            self._positions.note_commit()

    async def _withhold(self, positions: Positions, sent: int | None) -> None:
        """Abort the results of records that will be polled again, here or elsewhere.

        Nothing was read since the consumer was rewound, or since its group rebalanced. No error if that was before the
        block, because it is not known whether the block sent anything.
        """
        is_rewound, rebalanced_inside = positions.is_rewound, positions.rebalanced_inside
        if is_rewound:
            self._positions = None  # seeking there again would discard the records that it is fetching
        outcome = await self._give_up(positions.generation_error())
        if isinstance(outcome, TransactionFatal) or ((sent or rebalanced_inside) and not is_rewound):
            raise outcome
        if sent:
            raise RuntimeError(
                "the consumer went back to its committed positions because the last transaction was not committed, and "
                "has not polled since. The next poll returns the same records again, so the transaction was aborted. "
                "Poll inside the code that you run again; send records that do not come from a poll without consumer="
            )

    async def _send_offsets(self) -> None:
        offsets = self._positions.offsets_to_commit() if self._positions is not None else {}
        if not offsets or self._positions is None:
            return
        if not await self._client.send_offsets(offsets, self._positions.group_metadata(), self._timeout_ms):
            raise TimeoutError(f"no answer to the offsets of the transaction within {self._timeout_ms} ms")

    async def _abandon(self, error: Exception) -> None:
        """Abort after the block raised. Raise the outcome instead of the block's exception if the producer is closed,
        or if the exception is the library's, about a lost transaction or a record that cannot be sent."""
        if self._ended_by_hand():
            return
        failed = self._send_error()
        outcome = await self._give_up(failed or error)
        is_concerned = failed is not None or is_of_a_record(error)
        if isinstance(outcome, TransactionFatal) or (is_concerned and self._client.own(error)):
            raise outcome from error

    async def _give_up_on_interrupt(self, interruption: BaseException) -> None:
        """Abort after KeyboardInterrupt or a similar exception, and add the outcome to the exception as a note."""
        if self._ended_by_hand():
            return
        outcome = await self._give_up(self._send_error() or interruption)
        interruption.add_note(str(outcome))

    async def _give_up(self, cause: BaseException) -> TransactionError:
        """Abort if this is still possible, else close the producer, and return the outcome."""
        client = self._client
        await client.wait_for_epoch(self._timeout_ms)
        if client.state in (State.OPEN, State.MUST_ABORT):
            try:
                if not await client.abort(self._timeout_ms):
                    await client.close()
                    return await self._rewound(unconfirmed_abort(client.transactional_id, self._timeout_ms, cause))
                if self._sequence_lost:
                    await client.bump_epoch(self._timeout_ms)
            except Exception as failure:
                return await self._close(client.last_error or failure, since=cause)
        if client.state is State.READY:
            return await self._rewound(make_abort_error(client.transactional_id, cause))
        return await self._close(client.last_error or cause, since=cause)

    async def _close(self, error: BaseException, since: BaseException | None = None) -> TransactionError:
        """Close the producer and return the outcome. A lost sequence number outranks the later fencing of the client's
        own recovery. A refused record outranks the failed abort of a transaction unknown to the coordinator."""
        outcome = fatal(self._client.transactional_id, error, since)
        first_code = None if since is None else code_of(since)
        if since is not None and (
            first_code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
            or (outcome.code == ErrorCode.INVALID_TXN_STATE and (first_code is not None or is_hopeless(since)))
        ):
            outcome = fatal(self._client.transactional_id, since)
        await self._client.close()
        return await self._rewound(outcome)

    async def _rewound(self, outcome: TransactionError) -> TransactionError:
        """Rewind the consumer. If this fails, close the producer: the next commit would skip the records."""
        if self._positions is None:
            return outcome
        try:
            await self._positions.rewind(self._timeout_ms)
        except Exception as failure:
            if not isinstance(outcome, TransactionFatal):
                await self._client.close()
                outcome = fatal(self._client.transactional_id, failure)
            outcome.add_note(
                f"The consumer could not be taken back to its committed positions ({failure}): close it too, "
                "and continue with a new one."
            )
        return outcome


def view_of(producer: Any) -> TransactionalProducer:
    """Return the view for the producer's class. Raises TypeError if the producer cannot have transactions."""
    if comes_from(producer, "cimpl.Producer", "confluent_kafka.Producer"):
        from ottla.client.confluent import ConfluentProducer

        return ConfluentProducer(producer)
    if comes_from(producer, "aiokafka.AIOKafkaProducer"):
        from ottla.client.aio import AiokafkaProducer

        return AiokafkaProducer(producer)
    from ottla.client.kafka_python import KafkaPythonProducer

    return KafkaPythonProducer(producer)
