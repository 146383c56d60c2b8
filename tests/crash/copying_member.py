"""A member of a group of the consumer protocol that copies records in transactions, over confluent-kafka.

`copying_member.py BOOTSTRAP GROUP TRANSACTIONAL-ID TOPIC...` copies each record to the same partition of
`copy-of-TOPIC`. It writes a line with the partitions of each committed transaction. It ends at SIGTERM and at the
first error; its parent starts it again.
"""

import signal
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

CALL_S = 20
"""More than any call takes. Later, SIGALRM ends the process: `send_offsets_to_transaction` of librdkafka does not
return when the broker dies during the call (librdkafka issue 5456)."""
OPTIONS = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 250, "log_level": 0}


def open_clients(bootstrap, group, name):
    options = OPTIONS | {"bootstrap.servers": bootstrap}
    producer = Producer(options | {"transactional.id": name, "transaction.timeout.ms": 5000, "linger.ms": 0})
    protocol = {"group.id": group, "group.protocol": "consumer", "client.id": name}
    reading = {"isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    return producer, Consumer(options | protocol | reading)


def copy(producer, consumer, messages):
    """Copy the messages in a transaction and return the positions after them."""
    producer.begin_transaction()
    positions = {}
    for message in messages:
        producer.produce(f"copy-of-{message.topic()}", message.value(), partition=message.partition())
        positions[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(*partition, offset) for partition, offset in positions.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_S)
    producer.commit_transaction(CALL_S)
    return positions


def leave(*_):
    raise SystemExit(0)


def main():
    bootstrap, group, name, *topics = sys.argv[1:]
    signal.signal(signal.SIGTERM, leave)
    signal.alarm(CALL_S)
    producer, consumer = open_clients(bootstrap, group, name)
    producer.init_transactions(CALL_S)
    # With callbacks, partitions are revoked in `consume` only, and not while their records are copied.
    consumer.subscribe(topics, on_assign=lambda *_: None, on_revoke=lambda *_: None, on_lost=lambda *_: None)
    try:
        while True:
            signal.alarm(CALL_S)
            messages = [message for message in consumer.consume(20, 0.1) if message.error() is None]
            if messages:
                positions = copy(producer, consumer, messages)
                print(*(f"{topic}-{number}" for topic, number in positions), flush=True)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
