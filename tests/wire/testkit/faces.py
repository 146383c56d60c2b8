"""The three client libraries behind one interface, so that a recipe is written once and played with each.

A producer has `begin_transaction`, `send` (which waits until the record is in the log), `commit_transaction` and
`abort_transaction`; a consumer has `take(count)`, the next values, and `at_end()`. `errors` is what a library raises.
"""

import asyncio
import threading

import pytest

from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.once_more import one_at_hand_others_slow

LIBRARIES = {"kafka-python": "kafka", "aiokafka": "aiokafka", "confluent-kafka": "confluent_kafka"}
EACH_LIBRARY = one_at_hand_others_slow(LIBRARIES)
PATIENCE_MS = EVENT_TIMEOUT_S * 1000


def face(name, bootstrap):
    """Return the interface of a library; skip the test if the library is not installed."""
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")
    return {"kafka-python": KafkaPython, "aiokafka": Aiokafka, "confluent-kafka": Confluent}[name](bootstrap)


class KafkaPython:
    def __init__(self, bootstrap):
        from kafka.errors import KafkaError

        self.errors = KafkaError
        self.bootstrap = bootstrap
        self.opened = []

    def txn_producer(self, name, **config):
        producer = self.producer(transactional_id=name, **config)
        producer.library.init_transactions()
        return producer

    def producer(self, **config):
        from kafka import KafkaProducer

        patience = {"max_block_ms": PATIENCE_MS, "retry_backoff_ms": 20}
        made = KafkaProducer(bootstrap_servers=self.bootstrap, **patience, **config)
        self.opened.append(lambda: made.close(timeout=0.2))
        return KafkaPythonProducer(made)

    def consumer(self, topic, partition=0, *, isolation="read_committed", start=0):
        from kafka import KafkaConsumer, TopicPartition

        made = KafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level=isolation, group_id=None)
        self.opened.append(made.close)
        made.assign([TopicPartition(topic, partition)])
        made.seek(TopicPartition(topic, partition), start)
        return KafkaPythonConsumer(made, TopicPartition(topic, partition))

    def close(self):
        close_all(self.opened)


class KafkaPythonProducer:
    def __init__(self, library):
        self.library = library
        self.begin_transaction = library.begin_transaction
        self.commit_transaction = library.commit_transaction
        self.abort_transaction = library.abort_transaction

    def send(self, topic, value, partition=0):
        self.library.send(topic, value, partition=partition).get(EVENT_TIMEOUT_S)

    def send_offsets(self, offsets, group):
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        told = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self.library.send_offsets_to_transaction(told, group)


class KafkaPythonConsumer:
    def __init__(self, library, place):
        self.library, self.place = library, place

    def take(self, count):
        self.library.config["consumer_timeout_ms"] = PATIENCE_MS
        return [next(self.library).value for _ in range(count)]

    def at_end(self):
        """Read to the end of the partition and return the values read on the way."""
        end = self.library.end_offsets([self.place])[self.place]
        found = []
        while self.library.position(self.place) < end:
            polled = self.library.poll(timeout_ms=100)
            found += [record.value for records in polled.values() for record in records]
        return found


class Confluent:
    def __init__(self, bootstrap):
        from confluent_kafka import KafkaException

        self.errors = KafkaException
        self.bootstrap = bootstrap
        self.opened = []

    def txn_producer(self, name, **config):
        producer = self.producer(**{"transactional.id": name}, **config)
        producer.library.init_transactions(EVENT_TIMEOUT_S)
        return producer

    def producer(self, **config):
        from confluent_kafka import Producer

        quick = {"linger.ms": 0, "log_level": 0, "retry.backoff.ms": 20}
        made = Producer({"bootstrap.servers": self.bootstrap, **quick, **config})
        self.opened.append(lambda: (made.purge(), made.flush(0.2)))
        return ConfluentProducer(made, self)

    def consumer(self, topic, partition=0, *, isolation="read_committed", start=0):
        from confluent_kafka import Consumer, TopicPartition

        config = {"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        made = Consumer({**config, "isolation.level": isolation, "enable.partition.eof": True, "log_level": 0})
        self.opened.append(made.close)
        made.assign([TopicPartition(topic, partition, start)])
        return ConfluentConsumer(made)

    def close(self):
        close_all(self.opened)


class ConfluentProducer:
    def __init__(self, library, client):
        self.library, self.client = library, client
        self.begin_transaction = library.begin_transaction

    def send(self, topic, value, partition=0):
        from confluent_kafka import KafkaException

        failed = []
        self.library.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        self.library.flush(EVENT_TIMEOUT_S)
        if failed:
            raise KafkaException(failed[0])

    def commit_transaction(self):
        self.library.commit_transaction(EVENT_TIMEOUT_S)

    def abort_transaction(self):
        self.library.abort_transaction(EVENT_TIMEOUT_S)

    def send_offsets(self, offsets, group):
        from confluent_kafka import Consumer, TopicPartition

        member = Consumer({"bootstrap.servers": self.client.bootstrap, "group.id": group})
        self.client.opened.append(member.close)
        told = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self.library.send_offsets_to_transaction(told, member.consumer_group_metadata(), EVENT_TIMEOUT_S)


class ConfluentConsumer:
    def __init__(self, library):
        self.library = library

    def take(self, count):
        found = []
        while len(found) < count:
            message = self.library.poll(EVENT_TIMEOUT_S)
            assert message is not None, f"{found} and no more"
            if message.error() is None:
                found.append(message.value())
        return found

    def at_end(self):
        """Read to the end of the partition and return the values read on the way."""
        from confluent_kafka import KafkaError

        found = []
        while True:
            message = self.library.poll(EVENT_TIMEOUT_S)
            assert message is not None, f"{found} and no end"
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found


class Aiokafka:
    """aiokafka on an event loop in a thread."""

    def __init__(self, bootstrap):
        from aiokafka.errors import KafkaError

        self.errors = KafkaError
        self.bootstrap = bootstrap
        self.opened = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def within(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(EVENT_TIMEOUT_S)

    def txn_producer(self, name, **config):
        return self.producer(transactional_id=name, **config)

    def producer(self, **config):
        from aiokafka import AIOKafkaProducer

        async def start():
            made = AIOKafkaProducer(bootstrap_servers=self.bootstrap, retry_backoff_ms=20, **config)
            self.opened.append(lambda: self.within(asyncio.wait_for(made.stop(), 0.2)))
            await made.start()
            return made

        return AiokafkaProducer(self, self.within(start()))

    def consumer(self, topic, partition=0, *, isolation="read_committed", start=0):
        from aiokafka import AIOKafkaConsumer, TopicPartition

        place = TopicPartition(topic, partition)

        async def begin():
            made = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level=isolation, group_id=None)
            self.opened.append(lambda: self.within(made.stop()))
            await made.start()
            made.assign([place])
            made.seek(place, start)
            return made

        return AiokafkaConsumer(self, self.within(begin()), place)

    def close(self):
        close_all(self.opened)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(EVENT_TIMEOUT_S)
        self.loop.close()


class AiokafkaProducer:
    def __init__(self, client, library):
        self.client, self.library = client, library

    def begin_transaction(self):
        self.client.within(self.library.begin_transaction())

    def send(self, topic, value, partition=0):
        self.client.within(self.library.send_and_wait(topic, value, partition=partition))

    def commit_transaction(self):
        self.client.within(self.library.commit_transaction())

    def abort_transaction(self):
        self.client.within(self.library.abort_transaction())

    def send_offsets(self, offsets, group):
        from aiokafka import TopicPartition

        told = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self.client.within(self.library.send_offsets_to_transaction(told, group))


class AiokafkaConsumer:
    def __init__(self, client, library, place):
        self.client, self.library, self.place = client, library, place

    def take(self, count):
        async def take():
            return [(await self.library.getone()).value for _ in range(count)]

        return self.client.within(take())

    def at_end(self):
        """Read to the end of the partition and return the values read on the way."""

        async def read():
            end = (await self.library.end_offsets([self.place]))[self.place]
            found = []
            while await self.library.position(self.place) < end:
                polled = await self.library.getmany(timeout_ms=100)
                found += [record.value for records in polled.values() for record in records]
            return found

        return self.client.within(read())


def close_all(opened):
    """Close all clients. Ignore errors of producers that are fenced or whose broker has stopped."""
    while opened:
        try:
            opened.pop()()
        except Exception:  # it is over
            continue
