"""transaction() over every client library: the same failures, the same errors, and the same records in the log."""

import time
import traceback

import pytest
from kafka import KafkaProducer

from ottla.client import ProducerFenced, TransactionAborted, TransactionFatal
from ottla.protocol.errors import ErrorCode
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.libraries import LIBRARIES, client
from tests.wire.client.topics import committed_offsets, make_topic, values


def test_read_committed_omits_the_records_of_a_block_that_raises(kafka, broker, topic, name):
    producer = kafka.producer(broker.bootstrap, name)
    kafka.run(producer, [("send", topic, "1"), ("send", topic, "2")])
    with pytest.raises(ZeroDivisionError):
        kafka.run(producer, [("send", topic, "3"), "settle", ZeroDivisionError()])
    kafka.run(producer, [("send", topic, "4")])
    assert values(broker, topic) == ["1", "2", "4"]
    assert values(broker, topic, "read_uncommitted") == ["1", "2", "3", "4"]


def test_a_record_above_the_topics_limit_aborts_only_its_transaction(kafka, broker, name):
    topic = make_topic(broker, **{"max.message.bytes": "2000"})
    producer = kafka.producer(broker.bootstrap, name)
    with pytest.raises(TransactionAborted) as caught:
        kafka.run(producer, [("send", topic, "small"), "settle", ("send", topic, "x" * 5000)])
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not caught.value.retriable
    run_again(kafka, producer, [("send", topic, "after")])
    assert values(broker, topic) == ["after"]


def test_a_record_above_the_clients_limit_aborts_only_its_transaction(kafka, broker, topic, name):
    producer = kafka.producer(broker.bootstrap, name)
    with pytest.raises(TransactionAborted) as caught:
        kafka.run(producer, [("send", topic, "small"), "settle", ("send", topic, "x" * 2_000_000)])
    assert (caught.value.code, caught.value.retriable) == (ErrorCode.MESSAGE_TOO_LARGE, False)
    kafka.run(producer, [("send", topic, "after")])
    assert values(broker, topic) == ["after"]


def run_again(kafka, producer, steps):
    """Run again as the errors say: librdkafka needs a transaction to notice the lost sequences of a refused batch."""
    try:
        kafka.run(producer, steps)
    except TransactionAborted as error:
        assert error.retriable
        kafka.run(producer, steps)


def test_a_second_instance_fences_the_first_at_its_commit(kafka, broker, topic, name):
    first = kafka.producer(broker.bootstrap, name)

    def send_successor():
        kafka.run(kafka.producer(broker.bootstrap, name), [("send", topic, "successor")])

    with pytest.raises(ProducerFenced):
        kafka.run(first, [("send", topic, "zombie"), "settle", send_successor])
    assert kafka.is_closed(first)
    assert values(broker, topic) == ["successor"]


@pytest.mark.parametrize("behind", [[], ["settle"]], ids=["at the commit", "in the block"])
def test_a_zombie_that_writes_is_fenced_too(kafka, broker, topic, name, behind):
    first = kafka.producer(broker.bootstrap, name)
    succeed = [("send", topic, "zombie"), "settle", lambda: kafka.producer(broker.bootstrap, name)]
    with pytest.raises(ProducerFenced) as caught:  # out of the block too, where librdkafka raises what is no exception
        kafka.run(first, [*succeed, ("send", topic, "zombie again"), *behind])
    assert "fenced" in "".join(traceback.format_exception(caught.value))
    assert kafka.is_closed(first)
    assert values(broker, topic) == []


def test_records_whose_reply_is_lost_are_sent_again_without_duplicates(kafka, broker, proxy, topic, name):
    producer = kafka.producer(proxy.bootstrap, name)
    kafka.run(producer, [("send", topic, "first")])
    fault = proxy.add(at="reply", api="Produce", do="drop")
    kafka.run(producer, [("send", topic, "second")])
    assert fault.hits
    assert values(broker, topic, "read_uncommitted") == values(broker, topic) == ["first", "second"]


@pytest.mark.slow
def test_an_abort_that_is_never_answered_is_fatal_and_stays_invisible(kafka, broker, proxy, topic, name):
    producer = kafka.producer(proxy.bootstrap, name)
    fault = proxy.add(at="reply", api="EndTxn", do="lose")
    with pytest.raises(TransactionFatal, match="did not confirm the abort"):
        kafka.run(producer, [("send", topic, "aborted"), "settle", ZeroDivisionError()], timeout_ms=1500)
    assert fault.hits
    kafka.producer(broker.bootstrap, name)
    assert values(broker, topic) == []


@pytest.mark.slow
def test_an_abort_with_records_unanswered_never_ends_in_records_that_are_acknowledged_and_lost(
    kafka, broker, proxy, topic, name
):
    producer = kafka.producer(proxy.bootstrap, name)
    kafka.run(producer, [("send", topic, "first")])
    fault = proxy.add(at="reply", api="Produce", do="lose")
    steps = [("send", topic, "given up"), lambda: proxy.await_hits(fault), ZeroDivisionError()]
    try:
        kafka.run(producer, steps, timeout_ms=1500)
    except TransactionFatal:
        assert kafka.is_closed(producer)
        producer = kafka.producer(broker.bootstrap, name)
    except ZeroDivisionError:
        pass
    kafka.run(producer, [("send", topic, "next")])
    assert fault.hits
    assert values(broker, topic) == ["first", "next"]


@pytest.mark.slow
def test_a_broker_that_is_away_for_a_while_is_waited_for(kafka, broker, proxy, topic, name):
    producer = kafka.producer(proxy.bootstrap, name)
    away = [("send", topic, "before"), "settle", lambda: proxy.hang_up(0.5), ("send", topic, "behind")]
    kafka.run(producer, away)
    assert values(broker, topic) == ["before", "behind"]


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_transaction_continues_after_a_kill_of_the_broker(library, own_broker, name):
    broker = own_broker()
    kafka = client(library)
    topic = make_topic(broker)
    producer = kafka.producer(broker.bootstrap, name)

    def restart():
        broker.kill()
        broker.start()

    try:
        kafka.run(producer, [("send", topic, "before"), "settle", restart, ("send", topic, "behind")])
        assert values(broker, topic) == ["before", "behind"]
    finally:
        kafka.close()


def test_a_block_that_commits_by_itself_raises_runtime_error(kafka, broker, topic, name):
    producer = kafka.producer(broker.bootstrap, name)
    with pytest.raises(RuntimeError, match="leave the commit"):
        kafka.run(producer, [("send", topic, "by hand"), "commit"])
    kafka.run(producer, [("send", topic, "by transaction()")])
    assert values(broker, topic) == ["by hand", "by transaction()"]


def copy(kafka, consumer, options, producer, target, count, fail_at=None):
    done, deadline = 0, time.monotonic() + EVENT_TIMEOUT_S
    while done < count and time.monotonic() < deadline:
        polled = kafka.poll(consumer)
        steps = [("send", target, value) for value in polled]
        if fail_at is not None and done + len(polled) >= fail_at:
            steps += ["settle", ZeroDivisionError()]
        kafka.run(producer, steps, **options)
        done += len(polled)
    return done


@pytest.mark.slow
def test_positions_are_committed_with_the_records_or_not_at_all(kafka, broker, name):
    source, target = make_topic(broker, 2), make_topic(broker)
    feeder = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(8):
        feeder.send(source, b"%d" % number, partition=number % 2)
    feeder.close()
    producer = kafka.producer(broker.bootstrap, name)
    consumer, options = kafka.consumer(broker.bootstrap, source, f"group-of-{name}")
    with pytest.raises(ZeroDivisionError):
        copy(kafka, consumer, options, producer, target, 8, fail_at=5)
    before = len(values(broker, target))
    assert before < 5
    assert copy(kafka, consumer, options, producer, target, 8 - before) == 8 - before
    assert sorted(values(broker, target)) == [str(number) for number in range(8)]
    assert committed_offsets(broker, f"group-of-{name}") == [4, 4]
