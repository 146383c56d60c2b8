"""The decisions of transaction(), on a scripted producer that keeps kafka-python's state machine."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from kafka.errors import (
    IllegalGenerationError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.future import Future
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionState
from kafka.structs import OffsetAndMetadata, TopicPartition

from ottla.client import CommitUnknown, ProducerFenced, TransactionAborted, TransactionFatal, transaction
from ottla.protocol.errors import ErrorCode

LEDGER = TopicPartition("financial-ledger", 0)
AUDIT = TopicPartition("audit-log", 0)


class Answer:
    """A TransactionalRequestResult that is there already, fails, or never comes."""

    def __init__(self, outcome=None):
        self.outcome = outcome

    def wait(self, timeout_ms):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome != "never"


class Manager:
    """kafka-python's TransactionManager as far as transaction() uses it; `script` says how requests end."""

    transactional_id = "order-processor-01"

    def __init__(self, calls, script):
        self.calls = calls
        self.script = script
        self._current_state = TransactionState.READY
        self.last_error = None
        self.producer_id_and_epoch = ProducerIdAndEpoch(4000, 0)
        self._pending_txn_offset_commits = {}

    def _move(self, target):
        if not TransactionState.is_transition_valid(self._current_state, target):
            raise KafkaError(f"Invalid transition attempted from state {self._current_state.name} to {target.name}")
        self._current_state = target

    def _end(self, name, error):
        self.calls.append(name)
        self._move(
            TransactionState.COMMITTING_TRANSACTION if name == "commit" else TransactionState.ABORTING_TRANSACTION
        )
        if isinstance(error, Exception):
            self.fail_for_good(error)
        elif error != "never":
            self._move(TransactionState.READY)
        return Answer(error)

    def fail_for_good(self, error):
        self._current_state, self.last_error = TransactionState.FATAL_ERROR, error

    def must_abort(self, error):
        self._current_state, self.last_error = TransactionState.ABORTABLE_ERROR, error

    def begin_commit(self):
        if self.last_error is not None:
            raise KafkaError(f"Cannot execute transactional method because we are in an error state: {self.last_error}")
        return self._end("commit", self.script.get("commit"))

    def begin_abort(self):
        if self._current_state is TransactionState.FATAL_ERROR:
            raise KafkaError("Cannot execute transactional method because we are in an error state")
        self.last_error = None
        return self._end("abort", self.script.get("abort"))

    def send_offsets_to_transaction(self, offsets, group_metadata):
        self.calls.append(("offsets", offsets, group_metadata))
        self._pending_txn_offset_commits = dict(offsets)
        error = self.script.get("offsets")
        if isinstance(error, Exception):
            self.must_abort(error)
        elif error != "never":
            self._pending_txn_offset_commits = {}
        return Answer(error)

    def bump_producer_id_and_epoch(self):
        self.calls.append("bump")
        self._move(TransactionState.BUMPING_PRODUCER_EPOCH)
        self._move(TransactionState.READY)
        self.producer_id_and_epoch = ProducerIdAndEpoch(4000, self.producer_id_and_epoch.epoch + 1)
        if "bump" in self.script:
            self.fail_for_good(self.script["bump"])


class Producer:
    def __init__(self, **script):
        self.calls = []
        self.script = script
        self._transaction_manager = Manager(self.calls, script)
        self._sender = SimpleNamespace(wakeup=lambda: None, force_close=lambda: None)
        self._closed = False
        self.config = {"max_block_ms": 60_000, "delivery_timeout_ms": 0}
        self.futures = []

    def begin_transaction(self):
        self.calls.append("begin")
        self._transaction_manager._move(TransactionState.IN_TRANSACTION)

    def send(self, topic, value):
        future = Future()
        self.futures.append(future)
        return future

    def flush(self, timeout=None):
        """Resolve what was sent: `sends` lists the error of each, None for an acknowledgement."""
        if self.script.get("flush") == "never":
            raise KafkaTimeoutError("Timeout waiting for future")
        for future, error in zip(self.futures, self.script.get("sends", [None] * len(self.futures)), strict=True):
            if not future.is_done:
                future.failure(error) if error else future.success("metadata")

    def close(self, timeout=None):
        self.calls.append("close")
        self._closed = True


class Consumer:
    def __init__(self, positions, committed=None, **config):
        self.positions = dict(positions)
        self.offsets = dict(committed or {})
        self.config = {
            "group_id": "settlement",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        } | config
        self.generation = 1
        self.topics = {"financial-ledger", "audit-log"}

    def subscription(self):
        return self.topics

    def assignment(self):
        return set(self.positions)

    def position(self, tp, timeout_ms):
        return self.positions[tp]

    def group_metadata(self):
        return SimpleNamespace(group_id="settlement", generation_id=self.generation, member_id="member")

    def committed(self, tp, timeout_ms):
        if isinstance(self.offsets, BaseException):
            raise self.offsets
        return self.offsets.get(tp)

    def seek(self, tp, offset):
        self.positions[tp] = offset

    def seek_to_beginning(self, tp):
        self.positions[tp] = "beginning"


def run(producer, sends=1, body_error=None, **kwargs):
    with transaction(producer, **kwargs):
        for number in range(sends):
            producer.send("financial-ledger", b"%d" % number)
        if body_error is not None:
            raise body_error


def offsets_sent(producer):
    return [call[1] for call in producer.calls if call[0] == "offsets"]


def test_a_block_that_ends_is_committed():
    producer = Producer()
    run(producer, sends=2)
    assert producer.calls == ["begin", "commit"]
    assert "send" not in vars(producer)


def test_a_block_that_raises_is_aborted_and_its_exception_comes_through():
    producer = Producer()
    mine = ValueError("no such account")
    with pytest.raises(ValueError) as caught:
        run(producer, body_error=mine)
    assert caught.value is mine
    assert producer.calls == ["begin", "abort"]
    assert "send" not in vars(producer)


def test_the_producer_goes_on_after_an_abort():
    producer = Producer()
    with pytest.raises(ValueError):
        run(producer, body_error=ValueError())
    run(producer)
    assert producer.calls == ["begin", "abort", "begin", "commit"]


def test_a_failed_send_that_nobody_looked_at_aborts_and_renews_the_epoch():
    producer = Producer(sends=[None, KafkaTimeoutError("Expiring 1 record(s)")])
    with pytest.raises(TransactionAborted, match=r"Expiring 1 record.*Run it again") as caught:
        run(producer, sends=2)
    assert caught.value.retriable
    assert isinstance(caught.value.__cause__, KafkaTimeoutError)
    assert producer.calls == ["begin", "abort", "bump"]


def test_records_dropped_by_the_abort_itself_do_not_cost_an_epoch():
    producer = Producer(sends=[TransactionAbortedError()])
    with pytest.raises(TransactionAborted):
        run(producer)
    assert producer.calls == ["begin", "abort"]


def test_a_record_that_can_never_be_sent_is_not_retriable():
    producer = Producer(sends=[MessageSizeTooLargeError()])
    with pytest.raises(TransactionAborted, match=r"max\.message\.bytes") as caught:
        run(producer)
    assert not caught.value.retriable
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_clients_own_error_in_the_block_becomes_a_typed_abort():
    producer = Producer()
    error = MessageSizeTooLargeError()
    with pytest.raises(TransactionAborted) as caught, transaction(producer):
        producer.send("audit-log", b"x").failure(error)
        raise error
    assert caught.value.__cause__ is error
    assert producer.calls == ["begin", "abort", "bump"]


def test_a_clients_error_that_does_not_concern_the_producer_comes_through():
    producer = Producer()
    mine = KafkaTimeoutError("consumer timed out")
    with pytest.raises(KafkaTimeoutError) as caught:
        run(producer, body_error=mine)
    assert caught.value is mine
    assert producer.calls == ["begin", "abort"]


@pytest.mark.parametrize("wrap", [lambda error: error, lambda error: KafkaError(error)])
def test_a_fenced_producer_is_closed_and_never_aborts(wrap):
    producer = Producer(commit=wrap(ProducerFencedError()))
    with pytest.raises(ProducerFenced, match="newer producer") as caught:
        run(producer)
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert not caught.value.retriable
    assert producer.calls == ["begin", "commit", "close"]


def test_a_producer_fenced_inside_the_block_is_closed_without_a_commit():
    producer = Producer()
    mine = ValueError("gave up")
    with pytest.raises(ProducerFenced) as caught, transaction(producer):
        producer._transaction_manager.fail_for_good(ProducerFencedError())
        raise mine
    assert caught.value.__cause__ is mine
    assert producer.calls == ["begin", "close"]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InvalidTxnStateError(), ErrorCode.INVALID_TXN_STATE, "disagree"),
        (TransactionalIdAuthorizationFailedError(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "permission"),
        (
            KafkaError(f"Unhandled error in EndTxnResponse: {InvalidProducerIdMappingError()}"),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            r"transactional\.id\.expiration\.ms",
        ),
    ],
)
def test_a_fatal_error_closes_the_producer_and_says_why(error, code, words):
    producer = Producer(commit=error)
    with pytest.raises(TransactionFatal, match=words) as caught:
        run(producer)
    assert type(caught.value) is TransactionFatal
    assert caught.value.code is code
    assert "Make a new one" in str(caught.value)
    assert producer.calls == ["begin", "commit", "close"]


def test_a_lost_sequence_number_is_named_although_the_recovery_was_fenced():
    lost = OutOfOrderSequenceNumberError()
    producer = Producer()
    with pytest.raises(TransactionFatal, match="a record that came before") as caught, transaction(producer):
        producer.send("financial-ledger", b"1").failure(lost)
        producer._transaction_manager.fail_for_good(ProducerFencedError())
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.calls == ["begin", "close"]


def test_a_new_epoch_inside_the_block_means_that_the_transaction_is_gone():
    producer = Producer()
    manager = producer._transaction_manager
    with pytest.raises(TransactionAborted), transaction(producer):
        producer.send("financial-ledger", b"1").failure(OutOfOrderSequenceNumberError())
        manager.bump_producer_id_and_epoch()
    assert producer.calls == ["begin", "bump"]


def test_an_epoch_that_cannot_be_renewed_after_the_abort_closes_the_producer():
    producer = Producer(sends=[KafkaTimeoutError("Expiring")], bump=ProducerFencedError())
    with pytest.raises(ProducerFenced):
        run(producer)
    assert producer.calls == ["begin", "abort", "bump", "close"]


def test_a_commit_without_an_answer_is_unknown_and_closes_the_producer():
    producer = Producer(commit="never")
    with pytest.raises(CommitUnknown, match="within 250 ms") as caught:
        run(producer, timeout_ms=250)
    assert not caught.value.retriable
    assert producer.calls == ["begin", "commit", "close"]


def test_an_abort_without_an_answer_closes_the_producer():
    producer = Producer(abort="never")
    with pytest.raises(TransactionFatal, match="did not confirm the abort") as caught:
        run(producer, body_error=ValueError("mine"))
    assert isinstance(caught.value.__cause__, ValueError)
    assert producer.calls == ["begin", "abort", "close"]


def test_records_that_are_never_acknowledged_abort_the_transaction():
    producer = Producer(flush="never")
    with pytest.raises(TransactionAborted) as caught:
        run(producer)
    assert caught.value.retriable
    assert producer.calls == ["begin", "abort"]


def test_an_interrupt_aborts_and_comes_through_with_a_note():
    producer = Producer()
    with pytest.raises(KeyboardInterrupt) as caught:
        run(producer, body_error=KeyboardInterrupt())
    assert producer.calls == ["begin", "abort"]
    assert "was aborted" in caught.value.__notes__[0]


def test_transactions_do_not_nest():
    producer = Producer()
    with pytest.raises(RuntimeError, match="do not nest"), transaction(producer), transaction(producer):
        pytest.fail("entered twice")
    assert producer.calls == ["begin", "abort"]


def test_a_block_must_not_commit_by_itself():
    producer = Producer()
    with pytest.raises(RuntimeError, match="leave the commit"), transaction(producer):
        producer._transaction_manager.begin_commit()
    assert producer.calls == ["begin", "commit"]


def test_a_producer_closed_inside_its_transaction_does_not_count_as_committed():
    producer = Producer()
    with pytest.raises(TransactionFatal, match="closed inside its transaction"), transaction(producer):
        producer.close()
    assert "commit" not in producer.calls


def test_init_transactions_is_asked_for():
    producer = Producer()
    producer._transaction_manager._current_state = TransactionState.UNINITIALIZED
    with pytest.raises(RuntimeError, match="init_transactions"):
        run(producer)
    assert producer.calls == []


def test_a_producer_that_is_beyond_repair_is_named_at_the_beginning():
    producer = Producer()
    producer._transaction_manager.fail_for_good(ProducerFencedError())
    with pytest.raises(ProducerFenced):
        run(producer)
    assert producer.calls == ["close"]


def test_a_producer_without_a_transactional_id_is_refused():
    producer = Producer()
    producer._transaction_manager = None
    with pytest.raises(TypeError, match="transactional_id"):
        transaction(producer)


def test_positions_are_committed_in_the_transaction():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: 3})
    run(producer, consumer=consumer)
    (_, (name, offsets, metadata), _) = producer.calls
    assert name == "offsets"
    assert offsets == {LEDGER: OffsetAndMetadata(7), AUDIT: OffsetAndMetadata(3)}
    assert metadata.member_id == "member"


def test_only_positions_that_moved_are_sent_again():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: 3})
    run(producer, consumer=consumer)
    consumer.positions[AUDIT] = 4
    run(producer, consumer=consumer, sends=0)
    run(producer, consumer=consumer, sends=0)
    assert offsets_sent(producer)[1:] == [{AUDIT: OffsetAndMetadata(4)}]


def test_a_new_generation_sends_all_positions_again():
    producer, consumer = Producer(), Consumer({LEDGER: 7})
    run(producer, consumer=consumer)
    consumer.generation = 2
    run(producer, consumer=consumer)
    assert len(offsets_sent(producer)) == 2


def test_a_rebalance_inside_the_block_aborts():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(TransactionAborted, match="rebalanced") as caught, transaction(producer, consumer=consumer):
        consumer.generation = 2
    assert caught.value.retriable
    assert offsets_sent(producer) == []
    assert consumer.positions == {LEDGER: 5}


def test_the_first_join_inside_the_block_is_no_rebalance():
    producer, consumer = Producer(), Consumer({})
    consumer.generation = -1
    with transaction(producer, consumer=consumer):
        consumer.generation, consumer.positions = 1, {LEDGER: 7}
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_a_member_that_was_thrown_out_does_not_commit():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    consumer.generation = -1
    with pytest.raises(TransactionAborted, match="no longer a member"):
        run(producer, consumer=consumer)
    assert offsets_sent(producer) == []


def test_partitions_assigned_by_hand_need_no_membership():
    producer, consumer = Producer(), Consumer({LEDGER: 7})
    consumer.generation, consumer.topics = -1, None
    run(producer, consumer=consumer)
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_a_partition_without_a_position_is_left_out():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: None})
    run(producer, consumer=consumer)
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_an_abort_takes_the_consumer_back_to_the_committed_positions():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: 3}, committed={LEDGER: 5})
    with pytest.raises(ValueError):
        run(producer, consumer=consumer, body_error=ValueError())
    assert consumer.positions == {LEDGER: 5, AUDIT: "beginning"}


def test_without_a_committed_position_a_latest_consumer_goes_back_to_where_the_block_began():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, auto_offset_reset="latest")
    with pytest.raises(ValueError), transaction(producer, consumer=consumer):
        consumer.positions[LEDGER] = 9
        raise ValueError
    assert consumer.positions == {LEDGER: 7}


def test_a_rebalance_before_the_commit_aborts_and_forgets_the_offsets():
    producer, consumer = Producer(offsets=IllegalGenerationError()), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(TransactionAborted, match="rebalanced") as caught:
        run(producer, consumer=consumer)
    assert caught.value.retriable
    assert consumer.positions == {LEDGER: 5}
    assert producer._transaction_manager._pending_txn_offset_commits == {}


def test_offsets_without_an_answer_abort_the_transaction():
    producer, consumer = Producer(offsets="never"), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(TransactionAborted, match="no answer to the offsets"):
        run(producer, consumer=consumer)
    assert consumer.positions == {LEDGER: 5}


def test_a_fenced_producer_leaves_the_consumer_at_the_committed_positions():
    producer, consumer = Producer(commit=ProducerFencedError()), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(ProducerFenced):
        run(producer, consumer=consumer)
    assert consumer.positions == {LEDGER: 5}


def test_a_consumer_that_cannot_go_back_must_not_be_used_again():
    producer, consumer = Producer(), Consumer({LEDGER: 7})
    consumer.offsets = KafkaTimeoutError("no answer")
    with pytest.raises(TransactionFatal) as caught:
        run(producer, consumer=consumer, body_error=ValueError())
    assert "close it too" in caught.value.__notes__[0]
    assert producer.calls[-1] == "close"


@pytest.mark.parametrize("config", [{"group_id": None}, {"enable_auto_commit": True}])
def test_a_consumer_that_cannot_commit_in_a_transaction_is_refused(config):
    producer = Producer()
    with pytest.raises(ValueError, match=next(iter(config))):
        run(producer, consumer=Consumer({LEDGER: 7}, **config))
    assert producer.calls == []


def test_importing_the_package_does_not_load_the_client_library():
    code = "import sys, ottla.client; assert 'kafka' not in sys.modules; assert callable(ottla.client.transaction)"
    subprocess.run([sys.executable, "-c", code], check=True)
