"""The conformance driver of kafka-python."""

import time

import kafka
from jsonl import COPIER_OPTIONS, EVENT_TIMEOUT_S, Copier, Driver, Member, record, serve, to_bytes
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.codec import has_snappy
from kafka.structs import OffsetAndMetadata


def record_of(r):
    return record(r.topic, r.partition, r.offset, (r.timestamp_type, r.timestamp), r.key, r.value, r.headers)


class GroupMember(Member):
    def __init__(self, driver, group, topics, isolation):
        super().__init__()
        self.options = driver.login | {
            "bootstrap_servers": driver.bootstrap,
            "group_id": group,
            "isolation_level": isolation,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 10_000,
            "heartbeat_interval_ms": 300,
        }
        self.topics = topics

    def open(self):
        self.consumer = KafkaConsumer(**self.options)
        self.consumer.subscribe(self.topics)

    def poll_once(self):
        # kafka-python 3.0.12 drops its assignment when a poll ends between the answers to JoinGroup and SyncGroup. It
        # joins anew 0.1 s after the first time, when it has metadata: one poll in ten of that length ends there.
        polled = self.consumer.poll(timeout_ms=1_000)
        self.group_metadata = self.consumer.group_metadata()
        return [record_of(r) for records in polled.values() for r in records]

    def assignment_now(self):
        return [[tp.topic, tp.partition] for tp in self.consumer.assignment()]

    def commit_now(self):
        self.consumer.commit()

    def shut(self):
        self.consumer.close()


class GroupCopier(Copier):
    producer = consumer = None

    def open(self):
        self.producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            client_id=self.transactional_id,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=20_000,
            **self.driver.login,
            max_block_ms=30_000,
        )
        self.producer.init_transactions()
        self.consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id=self.transactional_id,
            group_id=self.group,
            **(COPIER_OPTIONS | self.driver.login),
        )
        self.consumer.subscribe([self.source])

    def poll(self):
        polled = self.consumer.poll(timeout_ms=1_000, max_records=200)  # longer than a rejoin, see GroupMember
        self.metadata = self.consumer.group_metadata()
        return [(r.partition, r.offset, r.key, r.value) for records in polled.values() for r in records]

    def begin(self):
        self.producer.begin_transaction()

    def send(self, records):
        futures = [
            self.producer.send(self.sink, partition=partition, key=key, value=value)
            for partition, _, key, value in records
        ]
        # kafka-python 3.0.12 commits without the records of a batch that expired, and reports that here only.
        self.producer.flush()
        for future in futures:
            future.get(timeout=120)

    def send_offsets(self, positions):
        offsets = {TopicPartition(self.source, p): OffsetAndMetadata(offset, "", -1) for p, offset in positions.items()}
        self.producer.send_offsets_to_transaction(offsets, self.metadata)

    def commit(self):
        self.producer.commit_transaction()

    def abort(self):
        self.producer.abort_transaction()

    def rewind(self):
        for place in self.consumer.assignment():
            committed = self.consumer.committed(place, timeout_ms=30_000)
            self.consumer.seek(place, committed or 0)

    def shut(self):
        for client in (self.consumer, self.producer):
            if client is not None:
                client.close(timeout_ms=5_000) if client is self.consumer else client.close(timeout=5)
        self.consumer = self.producer = None


class KafkaPythonDriver(Driver):
    new_copier = GroupCopier

    @staticmethod
    def login_options(security):
        return Driver.login_options(security) | {"ssl_cafile": security.get("ca")}

    def op_hello(self):
        missing = {
            "consumer-protocol": "kafka-python has the classic protocol only, no KIP-848",
            "null-header": "kafka-python refuses a header without a value",
            "null-record": "kafka-python refuses a record without key and value",
            # Apache Kafka grants it: InitProducerId of an Ongoing id aborts whatever epoch the caller brings.
            "quiet-zombie": "kafka-python meets INVALID_PRODUCER_EPOCH with InitProducerId, which aborts what is open",
        }
        if not has_snappy():
            missing["codec-snappy"] = "kafka-python compresses snappy only with python-snappy"
        return {"client": "kafka-python", "version": kafka.__version__, "missing": missing}

    def _admin(self):
        return KafkaAdminClient(bootstrap_servers=self.bootstrap, **self.login)

    def op_create_topics(self, topics):
        admin = self._admin()
        admin.create_topics(
            [NewTopic(t["name"], t["partitions"], 1, topic_configs=t["configs"]) for t in topics], timeout_ms=20_000
        )
        admin.close()

    def op_delete_topics(self, names):
        admin = self._admin()
        admin.delete_topics(names, timeout_ms=20_000)
        admin.close()

    def op_list_topics(self):
        admin = self._admin()
        names = sorted(admin.list_topics())
        admin.close()
        return names

    def op_producer_open(
        self,
        id,
        transactional_id,
        acks,
        compression,
        idempotent,
        transaction_timeout_ms,
        bootstrap,
        request_timeout_ms=30_000,
    ):
        options = {"transactional_id": transactional_id, "transaction_timeout_ms": transaction_timeout_ms}
        self.producers[id] = KafkaProducer(
            bootstrap_servers=bootstrap or self.bootstrap,
            acks="all" if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_block_ms=30_000,
            request_timeout_ms=request_timeout_ms,
            **(self.login | (options if transactional_id else {})),
        )

    def op_init(self, id):
        self.producers[id].init_transactions()

    def op_begin(self, id):
        self.producers[id].begin_transaction()

    def op_send(self, id, records, awaited=True):
        producer = self.producers[id]
        futures = [
            producer.send(
                r["topic"],
                partition=r["partition"],
                key=to_bytes(r["key"]),
                value=to_bytes(r["value"]),
                headers=[(name, to_bytes(data)) for name, data in r["headers"]],
            )
            for r in records
        ]
        if not awaited:
            return None
        producer.flush(timeout=30)
        return [future.get(timeout=30).offset for future in futures]

    def op_send_offsets(self, id, group, offsets, member):
        positions = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for topic, partition, offset in offsets
        }
        metadata = self.members[member].group_metadata if member else group
        self.producers[id].send_offsets_to_transaction(positions, metadata)

    def op_commit(self, id):
        self.producers[id].commit_transaction()

    def op_abort(self, id):
        self.producers[id].abort_transaction()

    def op_producer_close(self, id):
        self.producers.pop(id).close(timeout=5)

    def op_read(self, topics, isolation):
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=10,
            **self.login,
        )
        partitions = [TopicPartition(t, p) for t in topics for p in sorted(consumer.partitions_for_topic(t))]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found, deadline = [], time.monotonic() + EVENT_TIMEOUT_S
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"stuck at {[consumer.position(tp) for tp in partitions]} before {ends}")
            for records in consumer.poll(timeout_ms=200).values():
                found += [record_of(r) for r in records]
        consumer.close()
        return found

    def op_committed(self, group, partitions, isolation):
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, isolation_level=isolation, **self.login
        )
        committed = [consumer.committed(TopicPartition(topic, partition)) for topic, partition in partitions]
        consumer.close(autocommit=False)
        return committed

    def new_member(self, group, topics, isolation):
        return GroupMember(self, group, topics, isolation)


if __name__ == "__main__":
    serve(KafkaPythonDriver)
