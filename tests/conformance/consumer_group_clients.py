"""Consumers of the consumer protocol on a broker, and their records in `__consumer_offsets`.

Run as a program, it writes the records of a real Apache Kafka 4.3.1 to `tests/data/consumer-groups/kafka-4.3.1.txt`:
a line for each, with the key and the value in hexadecimal (`-`: a tombstone).
"""

import sys
import tempfile
import time
from pathlib import Path

from targets import ApacheKafka

from ottla.testkit.scanner import scan_partition

RECORDED = Path(__file__).parents[1] / "data" / "consumer-groups" / "kafka-4.3.1.txt"
QUICK = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}
OTHER_TYPES = (0, 1, 2)  # offsets and classic groups
EVENT_TIMEOUT_S = 60


def consume(bootstrap, group, client_id, *topics, on_lost=lambda *_: None, **options):
    """Return a consumer that has subscribed. An option has underscores for points."""
    from confluent_kafka import Consumer

    config = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer", "client.id": client_id}
    config |= {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(config | {name.replace("_", "."): value for name, value in options.items()})
    consumer.subscribe(list(topics), on_lost=on_lost)
    return consumer


def settle(consumers, count):
    """Poll until the consumers share this number of partitions and each has one; return all values that they polled."""
    deadline, values = time.monotonic() + EVENT_TIMEOUT_S, []
    while sum(found := [len(consumer.assignment()) for consumer in consumers]) != count or not all(found):
        assert time.monotonic() < deadline, f"{found} partitions instead of {count}"
        values += poll(*consumers)
    return values


def poll(*consumers):
    """Poll each consumer once and return the values."""
    messages = [consumer.poll(0.05) for consumer in consumers]
    return [message.value() for message in messages if message is not None and message.error() is None]


def create_topics(bootstrap, **partitions):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()]).values():
        future.result()
    return admin


def play_groups(bootstrap):
    """Groups of each assignor and kind of member, and one that is deleted; return the consumers that stay."""
    admin = create_topics(bootstrap, orders=3, payments=2)
    auditors = [consume(bootstrap, "auditors", "one", "orders", "payments")]
    settle(auditors, 5)
    options = {"group_instance_id": "instance-2", "client_rack": "rack-b"}
    auditors.append(consume(bootstrap, "auditors", "two", "orders", "payments", **options))
    settle(auditors, 5)
    third = consume(bootstrap, "auditors", "three", "orders")
    settle([*auditors, third], 5)
    third.close()
    settle(auditors, 5)
    billing = consume(bootstrap, "billing", "range", "payments", group_remote_assignor="range")
    settle([billing], 2)
    watchers = consume(bootstrap, "watchers", "regex", "^pay.*")
    settle([watchers], 2)
    deleted = consume(bootstrap, "deleted", "gone", "orders")
    settle([deleted], 3)
    deleted.close()
    for future in admin.delete_consumer_groups(["deleted"]).values():
        future.result()
    mixed = [consume(bootstrap, "mixed", "new", "payments")]
    settle(mixed, 2)
    mixed.append(consume(bootstrap, "mixed", "classic", "payments", group_protocol="classic"))
    settle(mixed, 2)
    return [*auditors, billing, watchers, *mixed]


def record_lines(partition):
    """Yield a line for each record of consumer groups in a partition of `__consumer_offsets`, without its offsets."""
    for batch in scan_partition(partition).batches:
        for record in batch.records():
            if int.from_bytes(record.key[:2], "big") not in OTHER_TYPES:
                yield f"{record.key.hex()} {'-' if record.value is None else record.value.hex()}\n"


def main():
    with tempfile.TemporaryDirectory() as directory:
        kafka = ApacheKafka(Path(directory), QUICK).start()
        try:
            consumers = play_groups(kafka.bootstrap)
            kafka.stop()
        finally:
            kafka.kill()
        RECORDED.parent.mkdir(exist_ok=True)
        RECORDED.write_text("".join(record_lines(kafka.data_dir / "__consumer_offsets-0")))
        print(len(consumers), "members stay")


if __name__ == "__main__":
    sys.exit(main())
