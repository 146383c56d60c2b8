"""The three client libraries behind one interface, so that a test of transaction() is written once.

A block is a list of steps: ("send", topic, value), "settle" (wait until all of it is acknowledged), "commit" by hand,
an exception to raise, or a function to call, which may use other producers of the same face.
"""

import asyncio
import gc
import threading

import pytest

from ottla.client import transaction
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.once_more import one_at_hand_others_slow

POLL_MS = 2000  # the most that a poll takes: less than a busy machine takes to join a group would never end
LIBRARIES = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka", "aiokafka": "aiokafka"}
EACH_LIBRARY = one_at_hand_others_slow(LIBRARIES)


def client(name):
    """Return the interface of a library; skip the test if the library is not installed."""
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")
    return {"kafka-python": KafkaPython, "confluent-kafka": Confluent, "aiokafka": Aiokafka}[name]()


def consumer_config(bootstrap, group, session_ms):
    """Return the options that have the same names in kafka-python and aiokafka."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": session_ms // 10,
    }


class Client:
    """Base class of the libraries: clients that are closed at the end.

    `consumer` subscribes to a topic, or takes the partitions of some numbers; it returns also what transaction() gets.
    """

    rebalances_in_the_background = False

    def __init__(self):
        self.opened = []

    def run(self, producer, steps, **options):
        with transaction(producer, **options):
            for step in steps:
                self.take(producer, step)

    def take(self, producer, step):
        if isinstance(step, BaseException):
            raise step
        if step == "settle":
            self.settle(producer)
        elif step == "commit":
            producer.commit_transaction()
        elif callable(step):
            step()
        else:
            self.send(producer, *step[1:])


class KafkaPython(Client):
    name = "kafka-python"

    def producer(self, bootstrap, name, *, timeout_ms=60_000, **options):
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            **{"retry_backoff_ms": 20} | options,
        )
        self.opened.append(producer)
        producer.init_transactions()
        return producer

    def send(self, producer, topic, value):
        producer.send(topic, value.encode())

    def settle(self, producer):
        producer.flush(timeout=EVENT_TIMEOUT_S)

    def consumer(self, bootstrap, topic, group, *, session_ms=45_000, numbers=None):
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(**consumer_config(bootstrap, group, session_ms))
        self.opened.append(consumer)
        if numbers is None:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, number) for number in numbers])
        return consumer, {"consumer": consumer}

    def poll(self, consumer):
        polled = consumer.poll(timeout_ms=POLL_MS, max_records=3)
        return [record.value.decode() for records in polled.values() for record in records]

    def is_closed(self, producer):
        return producer._closed

    def close(self):
        for opened in self.opened:
            opened.close()


class Confluent(Client):
    name = "confluent-kafka"

    def producer(self, bootstrap, name, *, timeout_ms=60_000, **options):
        from confluent_kafka import Producer

        config = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        # The time that its close() waits after an abandoned abort.
        patience = {"socket.timeout.ms": min(5000, timeout_ms), "reconnect.backoff.max.ms": 500}
        producer = Producer({**config, **patience, "log_level": 0, **options})
        producer.init_transactions(EVENT_TIMEOUT_S)
        self.opened.append(producer)  # one that failed raises its error out of close() too
        return producer

    def send(self, producer, topic, value):
        producer.produce(topic, value)

    def settle(self, producer):
        producer.flush(EVENT_TIMEOUT_S)

    def consumer(self, bootstrap, topic, group, *, session_ms=45_000, numbers=None):
        from confluent_kafka import Consumer, TopicPartition

        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 10,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        consumer = Consumer(config)
        if numbers is None:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, number) for number in numbers])
        self.opened.append(consumer)
        return consumer, {"consumer": consumer, "consumer_config": config}

    def poll(self, consumer):
        first = consumer.poll(POLL_MS / 1000)  # consume() waits for all of its records
        found = [first, *consumer.consume(2, 0)] if first is not None else []
        return [message.value().decode() for message in found if message.error() is None]

    def is_closed(self, producer):
        with pytest.raises(RuntimeError, match="closed"):
            producer.begin_transaction()
        return True

    def close(self):
        for opened in self.opened:
            opened.close()


class Aiokafka(Client):
    """aiokafka on an event loop in a thread, so that a step may wait for another producer."""

    name = "aiokafka"
    rebalances_in_the_background = True

    def __init__(self):
        super().__init__()
        self.reported = []
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.reported.append(context))
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def within(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(EVENT_TIMEOUT_S)

    def producer(self, bootstrap, name, *, timeout_ms=60_000, **options):
        from aiokafka import AIOKafkaProducer

        async def start():
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                **{"retry_backoff_ms": 20} | options,
            )
            self.opened.append(producer)
            await producer.start()
            return producer

        return self.within(start())

    def run(self, producer, steps, **options):
        async def block():
            async with transaction(producer, **options):
                for step in steps:
                    if callable(step):
                        await asyncio.to_thread(step)
                    elif isinstance(step, tuple):
                        await producer.send(step[1], step[2].encode())
                    elif step == "settle":
                        await producer.flush()
                    elif step == "commit":
                        await producer.commit_transaction()
                    else:
                        raise step

        self.within(block())

    def consumer(self, bootstrap, topic, group, *, session_ms=45_000, numbers=None):
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def start():
            consumer = AIOKafkaConsumer(**consumer_config(bootstrap, group, session_ms))
            self.opened.append(consumer)
            if numbers is None:
                consumer.subscribe([topic])
            await consumer.start()
            if numbers is not None:
                consumer.assign([TopicPartition(topic, number) for number in numbers])
            return consumer

        consumer = self.within(start())
        return consumer, {"consumer": consumer}

    def poll(self, consumer):
        polled = self.within(consumer.getmany(timeout_ms=POLL_MS, max_records=3))
        return [record.value.decode() for records in polled.values() for record in records]

    def is_closed(self, producer):
        return producer._closed

    def errors_of_asyncio(self):
        """Close the clients and return the errors that asyncio has logged so far."""
        self._stop()
        gc.collect()  # a future reports an exception that was not retrieved when it is freed
        return [f"{one['message']}: {one.get('future')!r}" for one in self.reported]

    def _stop(self):
        while self.opened:
            self.within(self.opened.pop().stop())

    def close(self):
        self._stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(EVENT_TIMEOUT_S)
        self.loop.close()
