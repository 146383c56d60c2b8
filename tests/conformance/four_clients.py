"""Two thousand transactions of four client libraries, for the sake of the files that they leave.

Every codec, recompression, both generations of transactions (the Java client speaks V2), positions of groups,
transactions that are committed, aborted, timed out or left open; rolls by size, time and full indexes; retention,
compaction and DeleteRecords while all this goes on.
"""

import random
import threading

from clients import DriverError, eventually, start_client
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

CLIENTS = ("kafka-python", "aiokafka", "confluent-kafka", "java")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUPS = ("billing", "auditors")
SEGMENT_BYTES = 1 << 20  # Kafka 4 takes no less
LEAST = str(SEGMENT_BYTES)
COMPACTED = {"segment.ms": "700", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "500"}
# {topic: (partitions, configs)}
TOPICS = {
    "financial-ledger": (2, {"segment.bytes": LEAST, "segment.ms": "600000"}),
    "audit-log": (2, {"retention.bytes": "400000", "segment.ms": "1500"}),
    "orders": (2, {}),
    "balances": (2, {"cleanup.policy": "compact", **COMPACTED}),
    "sessions": (1, {"cleanup.policy": "compact,delete", "retention.bytes": "300000", **COMPACTED}),
    "compacted-zstd": (1, {"cleanup.policy": "compact", "compression.type": "zstd", **COMPACTED}),
    "many-index-entries": (1, {"segment.index.bytes": "256", "index.interval.bytes": "512"}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime", "segment.ms": "1000"}),
    **{f"as-{codec}": (1, {"compression.type": codec}) for codec in ("uncompressed", *CODECS[1:])},
}
COMPACTED_TOPICS = {name for name, (_, configs) in TOPICS.items() if "cleanup.policy" in configs}
# What keeps everything that it was sent.
WHOLE = ("orders", "many-index-entries", *(name for name in TOPICS if name.startswith("as-")))
OVERRIDES = {
    "log.cleaner.backoff.ms": "150",
    "log.cleaner.delete.retention.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "300",
    "log.roll.ms": "2000",
    "log.segment.delete.delay.ms": "100",
}
ABORT_SHARE, OFFSETS_SHARE, TOMBSTONE_SHARE = 0.25, 0.2, 0.15


class Player(threading.Thread):
    """`count` transactions of one library, one after the other, by a producer for each codec that it has.

    `fates` has for each value whether its transaction was committed; `failure` is the error that ended the thread.
    """

    def __init__(self, client, seed, count):
        super().__init__(name=client.name, daemon=True)
        self.client, self.count, self.dice = client, count, random.Random(f"{seed}-{client.name}")
        self.fates, self.played, self.failure = {}, 0, None

    def run(self):
        try:
            codecs = [codec for codec in CODECS if f"codec-{codec}" not in self.client.missing]
            self.producers = [
                self.client.producer(f"{self.name}-{codec}", compression=codec, transaction_timeout_ms=600_000)
                for codec in codecs
            ]
            plain = [self.client.producer(compression=codec, idempotent=True) for codec in codecs[:2]]
            plain.append(self.client.producer(compression=codecs[-1], idempotent=False, acks="1"))
            while self.played < self.count:
                self.played += 1
                self.transaction(self.dice.choice(self.producers))
                if self.dice.random() < 0.05:
                    self.fates |= dict.fromkeys(self.send(self.dice.choice(plain)), True)
        except (AssertionError, DriverError, OSError, ValueError) as failure:
            self.failure = failure

    def transaction(self, producer):
        producer.begin()
        values = self.send(producer)
        if self.dice.random() < OFFSETS_SHARE:
            positions = {self.dice.randrange(2): self.dice.randrange(1000)}
            producer.send_offsets(self.dice.choice(GROUPS), "orders", positions)
        aborts = self.dice.random() < ABORT_SHARE
        (producer.abort if aborts else producer.commit)()
        self.fates |= dict.fromkeys(values, not aborts)

    def send(self, producer):
        """Send one to eight records to at most two topics. Return their values."""
        topics = self.dice.sample(list(TOPICS), 2)
        topics += self.dice.sample(("financial-ledger", "audit-log"), 1)
        rows = []
        for number in range(self.dice.randint(1, 8)):
            topic = self.dice.choice(topics)
            value = b"%s %d %d %s" % (self.name.encode(), self.played, number, self.filler())
            if topic in COMPACTED_TOPICS and self.dice.random() < TOMBSTONE_SHARE:
                value = None
            key = b"account-%d" % self.dice.randrange(40)
            headers = [("step", b"%d" % self.played)] if self.dice.random() < 0.3 else []
            rows.append((topic, self.dice.randrange(TOPICS[topic][0]), key, value, headers))
        producer.send_records(rows)
        return [(topic, value) for topic, _, _, value, _ in rows if value is not None]

    def filler(self):
        """Half of the time bytes that hardly compress; the rest compresses well."""
        size = self.dice.randrange(2400)
        return self.dice.randbytes(size).hex().encode() if self.dice.random() < 0.5 else b"." * size


class Play:
    """A broker with the topics and the clients."""

    def __init__(self, broker, directory, seed=1):
        self.broker, self.seed = broker, seed
        self.admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        self.clients = {}
        for name in CLIENTS:
            folder = directory / f"clients-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            self.clients[name] = start_client(name, broker.bootstrap, folder)
        self.players, self.open = [], []

    def create_topics(self):
        topics = [NewTopic(name, count, 1, topic_configs=configs) for name, (count, configs) in TOPICS.items()]
        self.admin.create_topics(topics)
        eventually(lambda: set(TOPICS) <= set(self.admin.list_topics()), "the topics are listed")

    def start(self, count):
        """`count` transactions, shared by the libraries."""
        share = count // len(self.clients)
        self.players = [Player(client, self.seed, share) for client in self.clients.values()]
        for player in self.players:
            player.start()

    @property
    def played(self):
        return sum(player.played for player in self.players)

    def wait_for(self, count):
        eventually(lambda: self.played >= count or self.failures(), f"{count} transactions", timeout_s=600)
        assert not self.failures()

    def failures(self):
        return [(player.name, player.played, player.failure) for player in self.players if player.failure]

    def finish(self):
        """Return for each (topic, value) whether its commit was acknowledged."""
        for player in self.players:
            player.join(600)
            assert not player.is_alive(), player.name
        assert self.failures() == []
        return {place: fate for player in self.players for place, fate in player.fates.items()}

    def delete_records(self, topic, partition, share):
        """Takes away a part of the log, by offsets."""
        place = TopicPartition(topic, partition)
        (row,) = self.admin.list_partition_offsets({place: -1}).values()
        self.admin.delete_records({place: int(row.offset * share)})

    def leave_open(self, name, timeout_ms, topics=("financial-ledger", "orders")):
        """Begin a transaction with records in some topics that no client ends. Return its values."""
        producer = self.clients[name].producer(f"{name}-left-open-{timeout_ms}", transaction_timeout_ms=timeout_ms)
        producer.begin()
        value = f"{name} left open {timeout_ms}".encode()
        producer.send_records([(topic, 0, b"k", value, []) for topic in topics])
        return [(topic, value) for topic in topics]

    def close(self):
        self.admin.close()
        for client in self.clients.values():
            client.close()

    def kill(self):
        """Ends the libraries as the broker ended: without a word."""
        self.admin.close()
        for client in self.clients.values():
            client.kill()
        for player in self.players:
            player.join(60)
