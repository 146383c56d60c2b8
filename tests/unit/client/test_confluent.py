"""The decisions of transaction() over confluent-kafka, on a scripted producer that answers as librdkafka does."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ottla.client import CommitUnknown, ProducerFenced, TransactionAborted, TransactionFatal, transaction
from ottla.protocol.errors import ErrorCode

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
KafkaError, KafkaException, TopicPartition = (
    confluent_kafka.KafkaError,
    confluent_kafka.KafkaException,
    confluent_kafka.TopicPartition,
)
TOO_LARGE = KafkaException(KafkaError(10, "ProduceRequest for t [0] failed", txn_requires_abort=True))
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "retry call to resume", retriable=True))
CONFIG = {"group.id": "settlement", "enable.auto.commit": False, "auto.offset.reset": "earliest"}


def refusal(state):
    return KafkaException(KafkaError(KafkaError._STATE, f"Operation not valid in state {state}"))


class Producer:
    """`script` maps a call to what it raises, one for each call; "never" answers with a timeout for ever."""

    __module__ = "cimpl"

    def __init__(self, unanswered=0, **script):
        self.script, self.unanswered, self.undelivered = script, unanswered, 0
        self.calls, self.state, self.error = [], "Ready", None

    def _step(self, name, allowed, then):
        if self.error is not None and (name != "abort" or self.error.args[0].fatal()):
            raise self.error
        if self.state not in allowed:
            raise refusal(self.state)
        self.calls.append(name)
        script = self.script.get(name, [])
        if script == "never":
            raise TIMED_OUT
        if script and (error := script.pop(0)) is not None:
            if not error.args[0].retriable():
                self.error = error
            raise error
        self.state, self.error = then, None

    def begin_transaction(self):
        self._step("begin", ["Ready"], "InTransaction")

    def commit_transaction(self, timeout):
        self._step("commit", ["InTransaction"], "Ready")

    def abort_transaction(self, timeout):
        self._step("abort", ["InTransaction"], "Ready")

    def send_offsets_to_transaction(self, offsets, metadata, timeout):
        self._step("offsets", ["InTransaction"], "InTransaction")
        self.offsets = [(tp.topic, tp.partition, tp.offset) for tp in offsets], metadata

    def flush(self, timeout):
        self.undelivered = 0
        return self.unanswered

    def produce(self):
        self.undelivered += 1

    def __len__(self):
        return self.undelivered

    def purge(self):
        self.calls.append("purge")

    def close(self):
        self.calls.append("close")


def run(producer, body=None, **options):
    options = {"timeout_ms": 20} | options
    with transaction(producer, **options):
        if body is not None:
            body()


def give_up():
    raise ZeroDivisionError


def test_a_block_that_ends_is_committed_and_one_that_raises_is_aborted():
    producer = Producer()
    run(producer)
    with pytest.raises(ZeroDivisionError):
        run(producer, give_up)
    run(producer)
    assert producer.calls == ["begin", "commit", "begin", "abort", "begin", "commit"]


def test_a_record_that_failed_aborts():
    producer = Producer(commit=[TOO_LARGE])
    with pytest.raises(TransactionAborted, match=r"max\.message\.bytes") as caught:
        run(producer)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert caught.value.__cause__ is TOO_LARGE
    assert producer.calls == ["begin", "commit", "abort"]


def test_a_commit_that_timed_out_is_resumed():
    producer = Producer(commit=[TIMED_OUT, TIMED_OUT])
    run(producer, timeout_ms=60_000)
    assert producer.calls == ["begin", "commit", "commit", "commit"]


def test_a_commit_that_times_out_for_ever_is_unknown():
    producer = Producer(commit="never")
    with pytest.raises(CommitUnknown, match="within 20 ms"):
        run(producer)
    assert producer.calls[-2:] == ["purge", "close"]
    assert "abort" not in producer.calls


def test_an_abort_that_times_out_for_ever_closes_the_producer():
    producer = Producer(abort="never")
    with pytest.raises(TransactionFatal, match="did not confirm the abort"):
        run(producer, give_up)
    assert producer.calls[-1] == "close"


def test_a_fenced_producer_is_closed():
    producer = Producer(commit=[FENCED])
    with pytest.raises(ProducerFenced) as caught:
        run(producer)
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert producer.calls == ["begin", "commit", "purge", "close"]


def test_a_producer_that_was_fenced_before_is_named_at_the_beginning():
    producer = Producer()
    producer.error = FENCED
    with pytest.raises(ProducerFenced):
        run(producer)
    assert producer.calls == ["purge", "close"]


def test_an_error_inside_the_block_is_found_though_the_block_hid_it():
    producer = Producer()

    def hidden():
        producer.error = TOO_LARGE

    with pytest.raises(TransactionAborted):
        run(producer, hidden)
    assert producer.calls == ["begin", "abort"]


def test_the_librarys_own_error_in_the_block_becomes_a_typed_abort():
    producer = Producer()

    def refuse():
        producer.error = TOO_LARGE
        raise refusal("AbortableError")

    with pytest.raises(TransactionAborted) as caught:
        run(producer, refuse)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_error_in_a_callback_is_known_by_its_cause():
    producer = Producer(commit=[None])
    hidden = SystemError("returned a result with an exception set")
    hidden.__cause__ = FENCED

    def flush(timeout):
        producer.error = FENCED
        raise hidden

    producer.flush = flush
    with pytest.raises(ProducerFenced):
        run(producer)


@pytest.mark.parametrize(("partition", "retriable"), [(None, False), (0, True)])
def test_a_record_that_timed_out_without_a_partition_may_have_a_topic_that_is_not_there(partition, retriable):
    producer = Producer()
    message = SimpleNamespace(topic=lambda: "ledger", partition=lambda: partition)
    with pytest.raises(TransactionAborted) as caught, transaction(producer, timeout_ms=20) as block:
        block.on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), message)
    assert caught.value.retriable is retriable
    assert ("ledger" in str(caught.value)) is not retriable


def test_a_delivery_report_names_the_topic():
    message = SimpleNamespace(topic=lambda: "ledger", partition=lambda: None)
    named = pytest.raises(TransactionAborted, match="INVALID_TOPIC_EXCEPTION: 'ledger'")
    with named, transaction(Producer(), timeout_ms=20) as block:
        block.on_delivery(KafkaError(17), message)


def test_records_without_an_answer_abort_and_the_producer_is_spent():
    """librdkafka would give their sequences to the next transaction, which Kafka may acknowledge and drop."""
    producer = Producer(unanswered=2)
    with pytest.raises(TransactionFatal, match="use their sequence numbers again"):
        run(producer, give_up)
    assert producer.calls == ["begin", "abort", "purge", "close"]


def test_a_block_must_not_commit_by_itself():
    producer = Producer()
    with pytest.raises(RuntimeError, match="leave the commit"):
        run(producer, lambda: producer.commit_transaction(1))
    run(producer)
    assert producer.state == "Ready"


def test_a_producer_without_init_transactions_is_refused():
    producer = Producer()
    producer.state = "Init"
    with pytest.raises(RuntimeError, match="init_transactions"):
        run(producer)


def test_a_producer_without_a_transactional_id_is_refused():
    producer = Producer()
    producer.error = KafkaException(KafkaError(KafkaError._NOT_CONFIGURED))
    with pytest.raises(TypeError, match=r"no transactional\.id"):
        run(producer)


@pytest.mark.slow
def test_a_close_that_hangs_does_not_hold_the_block():
    producer = Producer(commit="never")
    producer.close = lambda: time.sleep(3600)
    with pytest.raises(CommitUnknown):
        run(producer)


def test_an_asynchronous_with_is_refused():
    with pytest.raises(TypeError, match="without async"):
        transaction(Producer()).__aenter__().send(None)


class Consumer:
    __module__ = "cimpl"

    def __init__(self, positions, committed=-1001):
        self.positions, self.stored, self.sought, self.member = positions, committed, [], b"generation 1"
        self.id = "member"

    def assignment(self):
        return [TopicPartition("ledger", number) for number in self.positions]

    def position(self, partitions):
        return [TopicPartition(tp.topic, tp.partition, self.positions[tp.partition]) for tp in partitions]

    def committed(self, partitions, timeout):
        return [TopicPartition(tp.topic, tp.partition, self.stored) for tp in partitions]

    def seek(self, partition):
        self.sought.append((partition.partition, partition.offset))
        self.positions[partition.partition] = confluent_kafka.OFFSET_INVALID

    def consumer_group_metadata(self):
        return self.member

    def memberid(self):
        return self.id


def test_positions_are_committed_in_the_transaction_but_not_where_nothing_was_consumed():
    producer = Producer()
    run(producer, consumer=Consumer({0: 7, 1: confluent_kafka.OFFSET_INVALID}), consumer_config=CONFIG)
    assert producer.offsets == ([("ledger", 0, 7)], b"generation 1")


@pytest.mark.parametrize(("committed", "offset"), [(5, 5), (-1001, confluent_kafka.OFFSET_BEGINNING)])
def test_an_abort_takes_the_consumer_back(committed, offset):
    consumer = Consumer({0: 7}, committed)
    with pytest.raises(ZeroDivisionError):
        run(Producer(), give_up, consumer=consumer, consumer_config=CONFIG)
    assert consumer.sought == [(0, offset)]


def test_a_rebalance_inside_the_block_aborts():
    producer, consumer = Producer(), Consumer({0: 7}, 5)
    with pytest.raises(TransactionAborted, match="rebalanced"):
        run(producer, lambda: setattr(consumer, "member", b"generation 2"), consumer=consumer, consumer_config=CONFIG)
    assert consumer.sought == [(0, 5)]


def test_a_rebalance_in_the_block_that_clears_positions_aborts():
    producer, consumer = Producer(), Consumer({0: 7}, 5)

    def rebalance():
        consumer.member, consumer.positions[0] = b"generation 2", confluent_kafka.OFFSET_INVALID

    with pytest.raises(TransactionAborted, match="rebalanced") as caught:
        run(producer, rebalance, consumer=consumer, consumer_config=CONFIG)
    assert caught.value.retriable and producer.calls == ["begin", "abort"]


def test_an_empty_poll_sends_no_positions():
    producer, consumer = Producer(), Consumer({0: 7})
    run(producer, consumer=consumer, consumer_config=CONFIG)
    run(producer, consumer=consumer, consumer_config=CONFIG)
    assert producer.calls == ["begin", "offsets", "commit", "begin", "commit"]
    consumer.positions[0] = 8
    run(producer, consumer=consumer, consumer_config=CONFIG)
    assert producer.offsets == ([("ledger", 0, 8)], b"generation 1")


def test_positions_are_sent_again_after_a_rebalance_or_without_member_id():
    producer, consumer = Producer(), Consumer({0: 7})
    run(producer, consumer=consumer, consumer_config=CONFIG)
    consumer.member = b"generation 2"
    run(producer, consumer=consumer, consumer_config=CONFIG)
    by_hand = Consumer({0: 7})
    by_hand.id = None
    run(producer, consumer=by_hand, consumer_config=CONFIG)
    run(producer, consumer=by_hand, consumer_config=CONFIG)
    assert producer.calls.count("offsets") == 4


def test_positions_polled_before_an_abort_are_not_sent_again():
    producer, consumer = Producer(), Consumer({0: 7}, 5)
    with pytest.raises(ZeroDivisionError):
        run(producer, give_up, consumer=consumer, consumer_config=CONFIG)
    with pytest.raises(RuntimeError, match="Poll inside the code that you run again"):
        run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    producer.undelivered = 0  # the block waited for its deliveries: nothing shows that it sent anything
    run(producer, consumer=consumer, consumer_config=CONFIG)
    assert producer.calls == ["begin", "abort"] * 3
    consumer.positions[0] = 7
    run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    assert producer.calls[-3:] == ["begin", "offsets", "commit"]


def test_a_member_that_was_thrown_out_before_the_block_does_not_commit():
    """Without a member id the broker would accept the offsets from any client."""
    producer, consumer = Producer(), Consumer({0: 7})
    run(producer, consumer=consumer, consumer_config=CONFIG)
    consumer.id, consumer.member, consumer.positions[0] = None, b"no generation", 8
    with pytest.raises(TransactionAborted, match="no longer a member") as caught:
        run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    assert caught.value.retriable
    assert producer.calls[-2:] == ["begin", "abort"]
    consumer.positions[0] = 8  # like manually assigned partitions, at the address of the former member
    run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    assert producer.offsets == ([("ledger", 0, 8)], b"no generation")


def test_positions_polled_before_a_rebalance_are_not_sent():
    producer, consumer = Producer(), Consumer({0: 7})
    run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    consumer.member, consumer.positions[0] = b"generation 2", confluent_kafka.OFFSET_INVALID
    with pytest.raises(TransactionAborted, match="rebalanced") as caught:
        run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    assert caught.value.retriable
    with pytest.raises(RuntimeError, match="Poll inside the code that you run again"):
        run(producer, producer.produce, consumer=consumer, consumer_config=CONFIG)
    assert producer.calls[-4:] == ["begin", "abort"] * 2


def test_a_group_that_begins_with_the_latest_record_does_not_go_back_by_guess():
    """Otherwise the records read before the block would be lost, or all earlier records repeated."""
    producer, consumer = Producer(), Consumer({0: 7})
    with pytest.raises(TransactionFatal) as caught:
        run(producer, give_up, consumer=consumer, consumer_config=CONFIG | {"auto.offset.reset": "latest"})
    assert "commit a position before" in caught.value.__notes__[0]
    assert consumer.sought == []


def test_a_consumer_without_consumer_config_is_refused():
    with pytest.raises(TypeError, match="consumer_config="):
        transaction(Producer(), consumer=Consumer({0: 7}))


@pytest.mark.parametrize("missing", ["enable.auto.commit", "group.id"])
def test_a_consumer_that_cannot_commit_in_a_transaction_is_refused(missing):
    config = {key: value for key, value in CONFIG.items() if key != missing}
    with pytest.raises(ValueError, match=missing):
        run(Producer(), consumer=Consumer({0: 7}), consumer_config=config)


def test_importing_the_package_loads_no_client_library():
    code = "import sys, ottla.client; assert not {'kafka', 'confluent_kafka', 'aiokafka'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
