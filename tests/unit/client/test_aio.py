"""The decisions of transaction() over aiokafka: its own manager and accumulator, and a scripted sender."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.client import CommitUnknown, ProducerFenced, TransactionAborted, TransactionFatal, transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

pytest.importorskip("aiokafka", reason="aiokafka is not installed")
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, MessageSizeTooLargeError
from aiokafka.errors import ProducerFenced as Fenced
from aiokafka.protocol.commit import OffsetFetchResponse_v3
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from ottla.client.aio_offsets import report_group_errors

LEDGER = TopicPartition("ledger", 0)


class Producer(AIOKafkaProducer):
    """A producer. `script` holds the results of its batches and transactions: an exception, or "never"."""

    def __init__(self, **script):
        super().__init__(transactional_id="order-processor-01")
        self.script, self.calls = script, []
        self._txn_manager.set_pid_and_epoch(4000, 0)
        self._sender._sender_task = asyncio.ensure_future(asyncio.Event().wait())
        self.client = SimpleNamespace(close=self._note_close)
        self._note_pids()

    async def _note_close(self):
        self.calls.append("close")

    def _note_pids(self):
        """Answer a request for an epoch."""
        manager = self._txn_manager
        original = manager.notify_task_waiter

        def notify():
            original()
            if not manager.has_pid():
                self.calls.append("epoch")
                manager.set_pid_and_epoch(4000, 1)

        manager.notify_task_waiter = notify

    async def send(self, topic, value):
        batch = self._message_accumulator._append_batch(self._message_accumulator.create_builder(), LEDGER)
        future = batch.append(None, value, None)
        self._message_accumulator._pop_batch(LEDGER)
        self._txn_manager.partition_added(LEDGER)
        error = self.script.get("send")
        if isinstance(error, Exception):
            batch.failure(error)
        elif error is None:
            batch.done(0)
        return future

    async def _end(self, name):
        self.calls.append(name)
        error = self.script.get(name)
        if isinstance(error, Exception):
            await self.die(error)
        elif error is None:
            self._txn_manager.complete_transaction()
        await self._txn_manager.wait_for_transaction_end()

    async def commit_transaction(self):
        self._txn_manager.committing_transaction()
        await self._end("commit")

    async def abort_transaction(self):
        self._txn_manager.aborting_transaction()
        await self._end("abort")

    async def die(self, error):
        async def ends():
            raise error

        task = self._sender._sender_task = asyncio.ensure_future(ends())
        task.add_done_callback(self._sender._fail_all)
        await asyncio.wait({task})
        await asyncio.sleep(0)


def run(body=None, sends=1, timeout_ms=1000, after=None, **script):
    """Run one transaction. Return the producer and the outcome."""

    async def play():
        producer, raised = Producer(**script), None
        try:
            async with transaction(producer, timeout_ms=timeout_ms):
                for _ in range(sends):
                    await producer.send("ledger", b"1")
                if body is not None:
                    await body(producer)
        except BaseException as error:
            raised = error
        if after is not None:
            await after(producer)
        producer._closed = True
        return producer, raised

    return asyncio.run(play())


async def give_up(producer):
    raise ZeroDivisionError


def test_a_block_that_ends_is_committed():
    producer, raised = run()
    assert raised is None
    assert producer.calls == ["commit"]
    assert "_append_batch" not in vars(producer._message_accumulator)


def test_a_block_that_raises_is_aborted_and_reraises_its_exception():
    producer, raised = run(give_up)
    assert type(raised) is ZeroDivisionError
    assert producer.calls == ["abort"]


def test_a_failed_batch_aborts_and_restarts_its_sequences():
    producer, raised = run(send=MessageSizeTooLargeError())
    assert type(raised) is TransactionAborted
    assert raised.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not raised.retriable
    assert producer.calls == ["abort", "epoch"]
    assert producer._txn_manager.producer_epoch == 1
    assert producer._txn_manager.sequence_number(LEDGER) == 0


@pytest.mark.parametrize("registered", [True, False])
def test_a_registered_group_still_counts_in_the_abort_after_an_error(registered):
    """aiokafka has cleared its list of what is in the transaction, and would send no EndTxn for an empty one."""
    told = []

    async def fail_group(producer):
        manager = producer._txn_manager
        if registered:
            manager.consumer_group_added("settlers")
        manager.error_transaction(GroupAuthorizationFailedError("settlers"))
        original = producer.abort_transaction

        async def abort_transaction():
            told.append(not manager.is_empty_transaction())
            await original()

        producer.abort_transaction = abort_transaction

    _, raised = run(fail_group, sends=0)
    assert raised.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert told == [registered]


def test_offsets_go_out_with_the_membership_that_they_are_of():
    """Byte for byte what kafka-python reads as TxnOffsetCommit version 3, and 0 where the broker has no more."""
    from ottla.client.aio_offsets import Membership, _Request

    manager = SimpleNamespace(transactional_id="order-processor-01", producer_id=4000, producer_epoch=7)
    membership = Membership.of("settlers", 5, "member-1", None)
    request = _Request(manager, membership, {LEDGER: OffsetAndMetadata(42, "")})
    struct = request.prepare({28: (0, 5)})
    assert struct.FLEXIBLE_VERSION
    request_class = codec.request_class(28)
    topic = request_class.TxnOffsetCommitRequestTopic
    row = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="")
    expected = request_class(
        transactional_id="order-processor-01",
        group_id="settlers",
        producer_id=4000,
        producer_epoch=7,
        generation_id=5,
        member_id="member-1",
        group_instance_id=None,
        topics=[topic(name="ledger", partitions=[row])],
    )
    assert struct.encode() == bytes(expected.encode(version=3))
    assert request.prepare({28: (0, 2)}).API_VERSION == 0


def test_a_batch_that_failed_is_seen_though_its_future_was_cancelled():
    async def cancel(producer):
        batch = producer._message_accumulator._append_batch(producer._message_accumulator.create_builder(), LEDGER)
        batch.append(None, b"1", None).cancel()
        producer._message_accumulator._pop_batch(LEDGER)
        producer._txn_manager.partition_added(LEDGER)
        batch.failure(MessageSizeTooLargeError())

    _, raised = run(cancel, sends=0)
    assert type(raised) is TransactionAborted


@pytest.mark.parametrize("wrap", [False, True])
def test_a_fenced_producer_is_closed(wrap):
    error = Fenced()
    if wrap:
        error = KafkaError("Unexpected error during batch delivery")
        error.__cause__ = Fenced()
    producer, raised = run(commit=error)
    assert type(raised) is ProducerFenced
    assert raised.code is ErrorCode.PRODUCER_FENCED
    assert producer.calls == ["commit", "close"]


def test_a_dead_sender_is_fatal_despite_an_abortable_state():
    async def dies(producer):
        await producer.die(Fenced())
        producer._txn_manager._transition_to(type(producer._txn_manager.state).ABORTABLE_ERROR)

    producer, raised = run(dies)
    assert type(raised) is ProducerFenced
    assert producer.calls == ["close"]


def test_a_commit_without_an_answer_is_unknown_and_closes_the_producer():
    producer, raised = run(commit="never", timeout_ms=20)
    assert type(raised) is CommitUnknown
    assert producer.calls == ["commit", "close"]


def test_an_abort_without_an_answer_closes_the_producer():
    producer, raised = run(give_up, abort="never", timeout_ms=20)
    assert type(raised) is TransactionFatal
    assert producer.calls == ["abort", "close"]


def test_a_cancelled_block_is_aborted_with_a_note():
    async def cancel(producer):
        raise asyncio.CancelledError

    producer, raised = run(cancel)
    assert type(raised) is asyncio.CancelledError
    assert "was aborted" in raised.__notes__[0]
    assert producer.calls == ["abort"]


def test_a_block_must_not_commit_by_itself():
    producer, raised = run(lambda producer: producer.commit_transaction())
    assert "leave the commit" in str(raised)
    assert producer.calls == ["commit"]


def test_transactions_do_not_nest():
    async def nest(producer):
        async with transaction(producer):
            pytest.fail("entered twice")

    _, raised = run(nest)
    assert "do not nest" in str(raised)


def test_a_closed_producer_is_refused():
    async def again(producer):
        with pytest.raises(RuntimeError, match="CLOSED"):
            async with transaction(producer):
                pytest.fail("entered")

    run(commit="never", timeout_ms=20, after=again)


def test_a_synchronous_with_is_refused():
    async def play():
        producer = Producer()
        with pytest.raises(TypeError, match="async with"), transaction(producer):
            pytest.fail("entered")
        producer._closed = True

    asyncio.run(play())


def test_a_producer_without_a_transactional_id_is_refused():
    async def play():
        producer = AIOKafkaProducer()
        with pytest.raises(TypeError, match="this AIOKafkaProducer has no transactional_id"):
            transaction(producer)
        producer._closed = True

    asyncio.run(play())


@pytest.mark.parametrize("config", [{"group_id": None, "enable_auto_commit": False}, {"enable_auto_commit": True}])
def test_a_consumer_that_cannot_commit_in_a_transaction_is_refused(config):
    async def play():
        producer, consumer = Producer(), AIOKafkaConsumer(**({"group_id": "settlement"} | config))
        with pytest.raises(ValueError, match=next(iter(config))):
            async with transaction(producer, consumer=consumer):
                pytest.fail("entered")
        producer._closed = consumer._closed = True

    asyncio.run(play())


class Coordinator(GroupCoordinator):
    """A coordinator of a consumer. Its answers to OffsetFetch have these errors of the whole group, in this order."""

    def __init__(self, *codes):
        self.codes, self.group_id, self._retry_backoff_ms, self.calls = list(codes), "settlers", 1, []

    async def ensure_coordinator_known(self):
        self.calls.append("find")

    def coordinator_dead(self):
        self.calls.append("dead")

    async def _send_req(self, request):
        code = self.codes.pop(0)
        return OffsetFetchResponse_v3(0, [] if code else [("ledger", [(0, 42, "", 0)])], code)


@pytest.mark.parametrize(
    ("codes", "calls"),
    [
        ([ErrorCode.NONE], ["find"]),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE], ["find"] * 2),
        ([ErrorCode.NOT_COORDINATOR, ErrorCode.NONE], ["find", "dead", "find"]),
    ],
    ids=lambda codes: " ".join(getattr(code, "name", "") for code in codes),
)
def test_an_error_of_the_whole_group_does_not_read_as_nothing_committed(codes, calls):
    coordinator = Coordinator(*codes)
    report_group_errors(coordinator)
    fetched = asyncio.run(coordinator.fetch_committed_offsets([LEDGER]))
    assert (fetched[LEDGER].offset, coordinator.calls) == (42, calls)


def test_committed_offsets_that_a_user_may_not_see_are_an_error():
    coordinator = Coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    report_group_errors(coordinator)
    with pytest.raises(GroupAuthorizationFailedError):
        asyncio.run(coordinator.fetch_committed_offsets([LEDGER]))
