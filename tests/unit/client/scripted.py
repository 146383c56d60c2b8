"""A producer and a consumer whose results a test sets, with kafka-python's own state machine."""

from types import SimpleNamespace

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.future import Future
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionState
from kafka.structs import TopicPartition

from ottla.client import transaction

LEDGER = TopicPartition("financial-ledger", 0)
AUDIT = TopicPartition("audit-log", 0)


class Answer:
    """A TransactionalRequestResult that is ready, fails, or never comes."""

    def __init__(self, outcome=None):
        self.outcome = outcome

    def wait(self, timeout_ms):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome != "never"


class Manager:
    """kafka-python's TransactionManager as far as transaction() uses it. `script` holds the results of requests."""

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
        """Resolve what was sent. `sends` lists the error of each record, None for an acknowledgement."""
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
