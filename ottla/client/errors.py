"""Outcomes of a transaction as typed errors, with their reason and what to do next. pure

The classification follows `TransactionManager.TxnRequestHandler` of Kafka's own client and
KIP-360, KIP-588 and KIP-890: errors that fence or break the producer are fatal, all others abort and leave it usable.
"""

import re
from typing import Any, Final

from ottla.protocol.errors import ErrorCode

# RD_KAFKA_RESP_ERR__FENCED; _AUTHENTICATION; _UNKNOWN_TOPIC and _UNKNOWN_PARTITION, which `produce` raises when records
# before it reached no partition.
_OF_LIBRDKAFKA: Final = {
    -144: ErrorCode.PRODUCER_FENCED,
    -169: ErrorCode.SASL_AUTHENTICATION_FAILED,
    -188: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    -190: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
# RD_KAFKA_RESP_ERR__INCONSISTENT: a commit with records that reached no partition. Delivery reports have the reason.
UNDELIVERED: Final = -149
_OUTDATED = {"IllegalGeneration": ErrorCode.ILLEGAL_GENERATION, "UnknownMemberId": ErrorCode.UNKNOWN_MEMBER_ID}
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

# Remedies: until then, the same records would fail again.
_REMEDIES: Final = {
    # Each library has looked for the topic again until it gave up.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or allow this user WRITE on it",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise both limits",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "shorten the metadata of the offsets",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
    ErrorCode.RECORD_LIST_TOO_LARGE: "make the client's batches smaller than the topic's segment.bytes",
    ErrorCode.INVALID_REQUIRED_ACKS: "produce with acks=all",
    ErrorCode.INVALID_GROUP_ID: "give the consumer another group id",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow this user WRITE on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "allow this user READ on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "allow this user IDEMPOTENT_WRITE on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this user WRITE on the transactional id",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "correct the user's name or password",
    ErrorCode.INVALID_TIMESTAMP: "send timestamps that the topic's message.timestamp.* options allow",
    ErrorCode.UNSUPPORTED_VERSION: "use a broker that supports transactions",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "use a broker that supports transactions",
    ErrorCode.POLICY_VIOLATION: "follow the policy of the broker",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use another compression",
    ErrorCode.INVALID_RECORD: "correct the record: a compacted topic needs keys",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower transaction_timeout_ms, or raise the limit of the broker",
    ErrorCode.FENCED_INSTANCE_ID: "stop this consumer, or give it a group.instance.id of its own",
}

_OF_A_RECORD = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
    }
)

# Their exceptions name the topics or the group.
_NAMING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)

_REASONS = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker did not get, or no longer has, an earlier record",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker has forgotten this producer's records",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the broker has forgotten this transactional id: it was idle for longer "
    "than transactional.id.expiration.ms, or the broker's data is gone",
    ErrorCode.INVALID_TXN_STATE: "producer and coordinator disagree about the state of the transaction",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no permission to write with this transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "no permission for idempotent writes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "no permission to write to a topic, or to see it",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "a topic or a partition does not exist, or this user may not see it",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "no permission to commit offsets for the group",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is above the broker's transaction.max.timeout.ms",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is above the topic's max.message.bytes or the client's own limit",
    ErrorCode.ILLEGAL_GENERATION: "the consumer has not joined its group yet, or the group rebalanced meanwhile",
    ErrorCode.UNKNOWN_MEMBER_ID: "the consumer is no longer a member of its group",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer took over this group.instance.id",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name of a topic is invalid",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of an offset is above the broker's offset.metadata.max.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "a batch is above the topic's segment.bytes",
    ErrorCode.INVALID_REQUIRED_ACKS: "transactions need acks=all",
    ErrorCode.INVALID_GROUP_ID: "the consumer's group id is invalid",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the broker refused the login",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is outside the range of the topic",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support a request that transactions need",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format has no transactions",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker refused the request",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not support the compression of the records",
    ErrorCode.INVALID_RECORD: "the broker refused a record",
    ErrorCode.REQUEST_TIMED_OUT: "a broker did not answer a request in time",
}

_START_AGAIN = (
    "The producer is closed. Make a new one and call init_transactions() (start() of aiokafka), which aborts or "
    "finishes the open transaction; "
    "then continue from the committed offsets"
)


class TransactionError(Exception):
    """The transaction did not end in a known commit.

    `code` is the broker's error code, if any. `retriable` is true if the same block may run again with the same
    producer. The client's own exception is the `__cause__`.
    """

    retriable = False

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class TransactionAborted(TransactionError):
    """Nothing of the transaction is visible, and the producer is usable.

    `retriable` is false where the same records would fail again (too large, not permitted, invalid).
    """

    def __init__(self, message: str, *, code: ErrorCode | None = None, retriable: bool = True) -> None:
        super().__init__(message, code=code)
        self.retriable = retriable


class TransactionFatal(TransactionError):
    """The producer cannot continue and was closed. Uncommitted records will not become visible."""


class ProducerFenced(TransactionFatal):
    """A newer producer has this transactional id, or the transaction outlived its timeout. The producer was closed."""


class CommitUnknown(TransactionError):
    """The commit was sent and not answered, so it may have happened or not. The producer was closed."""


def root_cause(error: BaseException) -> BaseException:
    """Return the innermost exception. kafka-python wraps as `KafkaError(error)` and `KafkaError("...", error)`,
    aiokafka by `raise KafkaError("Unexpected error ...") from error`. `KafkaPythonProducer` sets a timeout's cause."""
    for argument in error.args:
        if isinstance(argument, BaseException):
            return root_cause(argument)
    if error.__cause__ is not None and _library(error) in ("aiokafka", "kafka"):
        return root_cause(error.__cause__)
    return error


def is_of_a_record(error: BaseException) -> bool:
    """Return whether a library's error says that a record will never be sent."""
    return code_of(error) in _OF_A_RECORD


def is_hopeless(error: BaseException) -> bool:
    """Return whether running the same block again would fail the same way."""
    return code_of(error) in _REMEDIES or is_undelivered(error)


def is_undelivered(error: BaseException) -> bool:
    """Return whether librdkafka reports undelivered records without the reason."""
    return _librdkafka_number(root_cause(error)) == UNDELIVERED


def choose_error(first: BaseException | None, second: BaseException) -> BaseException:
    """Return the more specific reason of a failed transaction, the first one if both are equal.

    After a refused record, a client still sends later requests, and so reports INVALID_TXN_STATE after the reason.
    """
    return second if first is None or _rank(second) < _rank(first) else first


def _rank(error: BaseException) -> int:
    code = code_of(error)
    if is_hopeless(error):
        return 0
    return 2 if code == ErrorCode.INVALID_TXN_STATE else 1


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _number(error: BaseException) -> int | None:
    """Return the number of an error of any library. kafka-python has some numbers only as text `[Error 49] ...`."""
    library = _library(error)
    number: Any = _librdkafka_number(error)
    if number is not None:
        number = _OF_LIBRDKAFKA.get(number, number)
    elif library == "aiokafka" and type(error).__name__ == "ProducerFenced":
        number = ErrorCode.PRODUCER_FENCED.value
    elif library in ("aiokafka", "kafka"):  # other exceptions, for example OSError, have an errno too
        number = getattr(error, "errno", None)
        if number is None and (found := re.search(r"\[Error (-?\d+)\]", str(error))):
            number = int(found[1])
        if number is None and (found := re.search(r"\b(IllegalGeneration|UnknownMemberId)Error$", str(error))):
            number = _OUTDATED[found[1]].value
    return number if isinstance(number, int) else None


def _librdkafka_number(error: BaseException) -> int | None:
    is_its = _library(error) in ("cimpl", "confluent_kafka") and error.args and hasattr(error.args[0], "code")
    return error.args[0].code() if is_its else None


def code_of(error: BaseException) -> ErrorCode | None:
    """Return the broker's error code that caused an exception of a client library."""
    number = _number(root_cause(error))
    if number is None:
        return None
    try:
        return ErrorCode(number)
    except ValueError:
        return None


def _text(error: BaseException) -> str:
    kafka_error: Any = error.args[0] if error.args else None
    if _library(error) in ("cimpl", "confluent_kafka") and hasattr(kafka_error, "str"):
        return str(kafka_error.str())
    return str(error) or type(error).__name__


def _why(error: BaseException) -> str:
    code = code_of(error)
    if code is None:
        return _text(root_cause(error))
    reason = _REASONS.get(code)
    return f"{reason} ({code.name}{_where(error, code)})" if reason else code.name


def _where(error: BaseException, code: ErrorCode) -> str:
    """Return the topic or the group of an error, if the library names it."""
    if code not in _NAMING:
        return ""
    cause = root_cause(error)
    names = getattr(cause, "topic", None) or (cause.args[0] if cause.args else None)
    if isinstance(names, set | frozenset):
        names = min(names, default=None)
    return f": {names!r}" if isinstance(names, str) else ""


def _remedy(error: BaseException) -> str:
    """Return the remedy that is necessary before the same records can be sent."""
    if is_undelivered(error):
        return (
            "find the reason (a topic does not exist, has an invalid name, or is hidden from this user) in the "
            "delivery reports, produce(..., on_delivery=block.on_delivery) of `with transaction(...) as block`"
        )
    code = code_of(error)
    return _REMEDIES[code] if code is not None else ""


def describe_refusal(error: BaseException) -> str:
    """Return the reason why a record or a producer failed, with the remedy if it would fail again."""
    return f"{_why(error)}: {_remedy(error)}" if is_hopeless(error) else _why(error)


def make_abort_error(transactional_id: str, error: BaseException) -> TransactionAborted:
    """Return the outcome of a transaction that was aborted because of `error`. The producer is usable."""
    retriable = not is_hopeless(error)
    advice = "Run it again" if retriable else f"Running it again would fail again: first {_remedy(error)}"
    return TransactionAborted(
        f"the transaction of {transactional_id!r} was aborted: {_why(error)}. {advice}; the producer is usable.",
        code=code_of(error),
        retriable=retriable,
    )


def fatal(transactional_id: str, error: BaseException, since: BaseException | None = None) -> TransactionFatal:
    """Return the outcome for a producer that cannot continue because of `error`. The caller closes it.

    `since` is the earlier reason for the abort. The message has it too if it would recur.
    """
    code = code_of(error)
    first = _earlier(since) if since is not None and code_of(since) is not code else ""
    if code in _FENCED:
        return ProducerFenced(
            f"the producer {transactional_id!r} was fenced ({code.name}): a newer producer with the same transactional "
            "id has taken over, or a transaction outlived its transaction_timeout_ms and the broker aborted it. "
            "The producer is closed. If another instance runs, stop this one; if it was the timeout, make a new "
            f"producer, call init_transactions() and continue from the committed offsets.{first}",
            code=code,
        )
    why = f"the producer {transactional_id!r} has failed: {_why(error)}."
    if is_hopeless(error):
        why += f" A new one would fail again: first {_remedy(error)}."
    return TransactionFatal(f"{why} {_START_AGAIN}.{first}", code=code)


def _earlier(since: BaseException) -> str:
    """Return a sentence about the first failure, if it would recur."""
    return f" Before that: {_why(since)}; first {_remedy(since)}." if is_hopeless(since) else ""


def unconfirmed_abort(transactional_id: str, timeout_ms: int, since: BaseException) -> TransactionFatal:
    """Return the outcome of an abort without an answer. No record becomes visible: the coordinator will abort it."""
    return TransactionFatal(
        f"the coordinator of {transactional_id!r} did not confirm the abort within {timeout_ms} ms, or records sent "
        "before it had no answer. The records stay invisible to read_committed; the broker aborts the transaction when "
        f"its timeout ends. {_START_AGAIN}.{_earlier(since)}"
    )


def commit_unknown(transactional_id: str, timeout_ms: int) -> CommitUnknown:
    """Return the outcome of a commit without an answer."""
    return CommitUnknown(
        f"the coordinator of {transactional_id!r} did not confirm the commit within {timeout_ms} ms: it may have "
        f"happened or not. Do not send the records again before you know. {_START_AGAIN} (these offsets of the "
        "group, or the last record of a read_committed consumer, show whether it happened)."
    )
