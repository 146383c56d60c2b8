"""A record that cannot be sent: the outcome has its own error, whichever error the library reports after it."""

import pytest
from kafka.errors import (
    InvalidTxnStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ottla.client.errors import aborted, is_of_a_record, more_telling
from ottla.protocol.errors import ErrorCode


def timeout_of_a_missing_topic():
    error = KafkaTimeoutError("Failed to update metadata after 60.0 secs.")
    error.__cause__ = UnknownTopicOrPartitionError("missing")
    return error


ERRORS = {
    "topic missing": (timeout_of_a_missing_topic(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "topic denied": (TopicAuthorizationFailedError({"t"}), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "too large": (MessageSizeTooLargeError("above max_request_size"), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize(("error", "code"), ERRORS.values(), ids=ERRORS)
def test_a_record_that_cannot_be_sent_is_not_to_be_run_again(error, code):
    outcome = aborted("tx-1", error)
    assert is_of_a_record(error)
    assert (outcome.code, outcome.retriable) == (code, False)


@pytest.mark.parametrize("number", [-149, -188, -190], ids=["_INCONSISTENT", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"])
def test_librdkafkas_names_for_a_missing_topic_are_the_same_error(number):
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    outcome = aborted("tx-1", confluent.KafkaException(confluent.KafkaError(number)))
    assert (outcome.code, outcome.retriable) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)


def test_an_invalid_state_never_hides_the_reason_before_or_after_it():
    reason, state = TopicAuthorizationFailedError({"t"}), InvalidTxnStateError()
    assert more_telling(state, reason) is more_telling(reason, state) is reason


def test_a_timeout_without_a_known_cause_stays_the_callers():
    assert not is_of_a_record(KafkaTimeoutError("consumer timed out"))
