"""Records that cannot be sent: the outcome has the record's own error, whichever error the library reports after it."""

import pytest
from kafka.errors import (
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from ottla.client.errors import (
    _REASONS,
    _REMEDIES,
    choose_error,
    fatal,
    is_of_a_record,
    make_abort_error,
    unconfirmed_abort,
)
from ottla.protocol.errors import ErrorCode


def timeout_of_a_missing_topic():
    error = KafkaTimeoutError("Failed to update metadata after 60.0 secs.")
    error.__cause__ = UnknownTopicOrPartitionError("missing")
    return error


ERRORS = {
    "topic missing": (timeout_of_a_missing_topic(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "topic invalid": (InvalidTopicError("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "topic denied": (TopicAuthorizationFailedError({"t"}), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "too large": (MessageSizeTooLargeError("above max_request_size"), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize(("error", "code"), ERRORS.values(), ids=ERRORS)
def test_a_record_that_cannot_be_sent_is_not_to_be_run_again(error, code):
    outcome = make_abort_error("tx-1", error)
    assert is_of_a_record(error)
    assert (outcome.code, outcome.retriable) == (code, False)


@pytest.mark.parametrize("number", [-188, -190], ids=["_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"])
def test_librdkafkas_names_for_a_missing_topic_are_the_same_error(number):
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    outcome = make_abort_error("tx-1", confluent.KafkaException(confluent.KafkaError(number)))
    assert (outcome.code, outcome.retriable) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)


def test_records_that_librdkafka_did_not_deliver_for_an_unknown_reason_are_not_to_be_run_again():
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    outcome = make_abort_error(
        "tx-1", confluent.KafkaException(confluent.KafkaError(-149, "1 message(s) failed delivery"))
    )
    assert (outcome.code, outcome.retriable) == (None, False)
    assert "1 message(s) failed delivery" in str(outcome)
    assert "on_delivery=block.on_delivery" in str(outcome)


@pytest.mark.parametrize("code", _REMEDIES, ids=lambda code: code.name)
def test_an_error_that_would_recur_names_its_remedy(code):
    """No error of this kind suggests another run, or only another producer."""
    for outcome in (make_abort_error("tx-1", for_code(code)()), fatal("tx-1", for_code(code)())):
        assert (outcome.code, outcome.retriable) == (code, False)
        assert _REASONS[code] in str(outcome)
        assert f"would fail again: first {_REMEDIES[code]}" in str(outcome)
        assert "Run it again" not in str(outcome)


@pytest.mark.parametrize(
    "outcome",
    [
        lambda since: fatal("tx-1", ProducerFencedError(), since),
        lambda since: fatal("tx-1", KafkaError("the client gave up"), since),
        lambda since: unconfirmed_abort("tx-1", 1000, since),
    ],
    ids=["fenced", "fatal", "unconfirmed"],
)
def test_a_producer_that_is_lost_after_a_hopeless_record_names_both(outcome):
    """Waiting for a missing topic may outlast the transaction, and the next producer would wait again."""
    assert "Before that: a topic or a partition does not exist" in str(outcome(timeout_of_a_missing_topic()))
    assert "Before that" not in str(outcome(KafkaTimeoutError("no answer")))


def test_an_invalid_state_never_hides_the_reason_before_or_after_it():
    reason, state = TopicAuthorizationFailedError({"t"}), InvalidTxnStateError()
    assert choose_error(state, reason) is choose_error(reason, state) is reason


def test_a_timeout_without_a_known_cause_stays_the_callers():
    assert not is_of_a_record(KafkaTimeoutError("consumer timed out"))
