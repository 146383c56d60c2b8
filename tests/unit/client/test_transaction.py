"""The decisions of transaction(), on a scripted producer that keeps kafka-python's state machine."""

import pytest
from kafka.errors import (
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.producer.transaction_manager import TransactionState

from ottla.client import CommitUnknown, ProducerFenced, TransactionAborted, TransactionFatal, transaction
from ottla.protocol.errors import ErrorCode
from tests.unit.client.scripted import Producer, run


def test_a_block_that_ends_is_committed():
    producer = Producer()
    run(producer, sends=2)
    assert producer.calls == ["begin", "commit"]
    assert "send" not in vars(producer)


def test_a_block_that_raises_is_aborted_and_reraises_its_exception():
    producer = Producer()
    mine = ValueError("no such account")
    with pytest.raises(ValueError) as caught:
        run(producer, body_error=mine)
    assert caught.value is mine
    assert producer.calls == ["begin", "abort"]
    assert "send" not in vars(producer)


def test_a_producer_commits_the_next_transaction_after_an_abort():
    producer = Producer()
    with pytest.raises(ValueError):
        run(producer, body_error=ValueError())
    run(producer)
    assert producer.calls == ["begin", "abort", "begin", "commit"]


def test_an_unchecked_failed_send_aborts_and_bumps_the_epoch():
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


def test_a_client_error_from_outside_the_producer_is_reraised():
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
def test_a_fatal_error_closes_the_producer_and_gives_the_reason(error, code, words):
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
    with pytest.raises(TransactionFatal, match="an earlier record") as caught, transaction(producer):
        producer.send("financial-ledger", b"1").failure(lost)
        producer._transaction_manager.fail_for_good(ProducerFencedError())
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.calls == ["begin", "close"]


def test_an_epoch_bump_inside_the_block_counts_as_an_abort():
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


@pytest.mark.slow
def test_records_that_are_never_acknowledged_abort_the_transaction():
    producer = Producer(flush="never")
    with pytest.raises(TransactionAborted) as caught:
        run(producer)
    assert caught.value.retriable
    assert producer.calls == ["begin", "abort"]


def test_an_interrupt_aborts_and_is_reraised_with_a_note():
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


def test_a_producer_without_init_transactions_is_refused():
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


def test_an_object_that_is_no_kafka_producer_is_refused_by_its_class_name():
    producer = Producer()
    producer._transaction_manager = None
    with pytest.raises(TypeError, match="and this is a Producer; make it with"):
        transaction(producer)


def test_the_missing_transactional_id_of_a_kafka_producer_is_named():
    of_kafka_python = type("KafkaProducer", (), {"__module__": "kafka.producer.kafka", "_transaction_manager": None})
    with pytest.raises(TypeError, match="and this KafkaProducer has no transactional_id; make it with"):
        transaction(of_kafka_python())


def test_a_commit_that_the_library_gives_up_is_unknown():
    """No error code refused the commit: the coordinator may have carried it out."""
    producer = Producer(commit=KafkaError("Could not execute transactional request", RequestTimedOutError()))
    with pytest.raises(CommitUnknown) as caught:
        run(producer)
    assert isinstance(caught.value.__cause__, KafkaError)
    assert producer.calls[-1] == "close"


def test_an_interrupt_while_records_are_flushed_aborts():
    producer = Producer()

    def interrupt(timeout=None):
        raise KeyboardInterrupt

    producer.flush = interrupt
    with pytest.raises(KeyboardInterrupt) as caught:
        run(producer)
    assert producer.calls == ["begin", "abort"]
    assert "was aborted" in caught.value.__notes__[0]
