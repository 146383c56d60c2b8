"""The conformance driver of confluent-kafka (librdkafka)."""

import time

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from jsonl import EVENT_TIMEOUT_S, Copier, Driver, Member, record, security_protocol, serve, to_bytes


def check(error):
    if error is not None:
        raise KafkaException(error)


def record_of(message):
    check(message.error())
    kind, timestamp_ms = message.timestamp()
    return record(
        message.topic(),
        message.partition(),
        message.offset(),
        (kind - TIMESTAMP_CREATE_TIME, timestamp_ms),
        message.key(),
        message.value(),
        message.headers(),
    )


class GroupMember(Member):
    def __init__(self, driver, group, topics, isolation, protocol):
        super().__init__()
        self.options = driver.login | {
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":  # the other has these on the broker
            self.options |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300}
        self.topics = topics

    def open(self):
        self.consumer = Consumer(self.options)
        self.consumer.subscribe(self.topics)

    def poll_once(self):
        messages = self.consumer.consume(100, timeout=0.1)
        self.group_metadata = self.consumer.consumer_group_metadata()
        return [record_of(message) for message in messages]

    def assignment_now(self):
        return [[tp.topic, tp.partition] for tp in self.consumer.assignment()]

    def commit_now(self):
        self.consumer.commit(asynchronous=False)

    def shut(self):
        self.consumer.close()


def call_again(call, *arguments):
    """Repeat a call while librdkafka reports that it may be repeated."""
    for _ in range(5):
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            last = error
    raise last


class GroupCopier(Copier):
    producer = consumer = None

    def open(self):
        options = self.driver.login | {"client.id": self.transactional_id}
        transactions = {"transactional.id": self.transactional_id, "transaction.timeout.ms": 20_000, "linger.ms": 1}
        self.producer = Producer(options | transactions)
        call_again(self.producer.init_transactions, 30)
        classic = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500, "group.protocol": "classic"}
        options |= classic if self.protocol == "classic" else {"group.protocol": self.protocol}
        options |= {"group.id": self.group, "isolation.level": "read_committed"}
        self.consumer = Consumer(options | {"enable.auto.commit": False, "auto.offset.reset": "earliest"})
        self.consumer.subscribe([self.source])

    def poll(self):
        records = []
        for message in self.consumer.consume(200, timeout=0.1):
            if message.error() is None:
                records.append((message.partition(), message.offset(), message.key(), message.value()))
            else:
                self.errors[f"poll: {message.error().name()}"] += 1
        return records

    def begin(self):
        self.producer.begin_transaction()

    def send(self, records):
        for partition, _, key, value in records:
            self.producer.produce(self.sink, partition=partition, key=key, value=value)

    def send_offsets(self, positions):
        offsets = [TopicPartition(self.source, partition, offset) for partition, offset in positions.items()]
        metadata = self.consumer.consumer_group_metadata()
        call_again(self.producer.send_offsets_to_transaction, offsets, metadata, 30)

    def commit(self):
        call_again(self.producer.commit_transaction, 30)

    def abort(self):
        call_again(self.producer.abort_transaction, 30)

    def rewind(self):
        for place in call_again(self.consumer.committed, self.consumer.assignment(), 30):
            check(place.error)
            place.offset = max(place.offset, 0)
            self.consumer.seek(place)

    def shut(self):
        if self.consumer is not None:
            self.consumer.close()
        self.consumer = self.producer = None


class ConfluentDriver(Driver):
    new_copier = GroupCopier

    def __init__(self, bootstrap, security):
        super().__init__(bootstrap, security)
        self.login["bootstrap.servers"] = bootstrap
        self.admin = AdminClient(self.login)

    @staticmethod
    def login_options(security):
        options = {"security.protocol": security_protocol(security)}
        if security.get("ca"):
            options["ssl.ca.location"] = security["ca"]
        if security.get("mechanism"):
            options |= {
                "sasl.mechanism": security["mechanism"],
                "sasl.username": security["username"],
                "sasl.password": security["password"],
            }
        return options

    def op_hello(self):
        version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
        return {"client": "confluent-kafka", "version": version, "missing": {}}

    def describe(self, error):
        if isinstance(error, SystemError) and error.__cause__ is not None:
            error = error.__cause__  # it calls back about deliveries with its exception for a fatal error set already
        inner = error if isinstance(error, KafkaError) else None
        if isinstance(error, KafkaException) and error.args:
            inner = error.args[0]
        if not isinstance(inner, KafkaError):
            return super().describe(error)
        return {"type": inner.name(), "code": inner.code(), "message": inner.str()}

    def op_create_topics(self, topics):
        new = [NewTopic(t["name"], t["partitions"], 1, config=t["configs"]) for t in topics]
        for future in self.admin.create_topics(new, operation_timeout=20).values():
            future.result()

    def op_delete_topics(self, names):
        for future in self.admin.delete_topics(names, operation_timeout=20).values():
            future.result()

    def op_list_topics(self):
        return sorted(self.admin.list_topics(timeout=20).topics)

    def op_producer_open(
        self,
        id,
        transactional_id,
        acks,
        compression,
        idempotent,
        transaction_timeout_ms,
        bootstrap,
        request_timeout_ms=None,
    ):
        options = self.login | {
            "bootstrap.servers": bootstrap or self.bootstrap,
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 1,
            "reconnect.backoff.ms": 50,
        }
        if request_timeout_ms is not None:
            options["socket.timeout.ms"] = request_timeout_ms
        if transactional_id:
            options["transactional.id"] = transactional_id
            options["transaction.timeout.ms"] = transaction_timeout_ms
            options["message.timeout.ms"] = transaction_timeout_ms
        self.producers[id] = Producer(options)

    def op_init(self, id):
        self.producers[id].init_transactions(30)

    def op_begin(self, id):
        self.producers[id].begin_transaction()

    def op_send(self, id, records, awaited=True):
        producer, offsets, errors = self.producers[id], [None] * len(records), []

        def confirm(index, error, message):
            offsets[index] = message.offset()
            if error is not None:
                errors.append(error)

        for index, r in enumerate(records):
            producer.produce(
                r["topic"],
                partition=r["partition"],
                key=to_bytes(r["key"]),
                value=to_bytes(r["value"]),
                headers=[(name, to_bytes(data)) for name, data in r["headers"]],
                on_delivery=lambda error, message, index=index: confirm(index, error, message),
            )
        if not awaited:
            return None
        producer.flush(30)
        check(errors[0] if errors else None)
        return offsets

    def op_send_offsets(self, id, group, offsets, member):
        if member:
            metadata = self.members[member].group_metadata
        else:
            consumer = Consumer(self.login | {"group.id": group})
            metadata = consumer.consumer_group_metadata()
            consumer.close()
        positions = [TopicPartition(topic, partition, offset) for topic, partition, offset in offsets]
        self.producers[id].send_offsets_to_transaction(positions, metadata, 30)

    def op_commit(self, id):
        self.producers[id].commit_transaction(30)

    def op_abort(self, id):
        self.producers[id].abort_transaction(30)

    def op_producer_close(self, id):
        self.producers.pop(id).flush(5)

    def op_read(self, topics, isolation):
        consumer = Consumer(
            self.login
            | {
                "group.id": "reader-without-a-group",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        partitions = [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic in topics
            for partition in consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ]
        consumer.assign(partitions)
        found, at_end, deadline = [], set(), time.monotonic() + EVENT_TIMEOUT_S
        while len(at_end) < len(partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {at_end} reached the end")
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF:
                    at_end.add((message.topic(), message.partition()))
                else:
                    found.append(record_of(message))
        consumer.close()
        return found

    def op_committed(self, group, partitions, isolation):
        consumer = Consumer(self.login | {"group.id": group, "isolation.level": isolation})
        answers = consumer.committed([TopicPartition(topic, partition) for topic, partition in partitions], 20)
        consumer.close()
        for answer in answers:
            check(answer.error)
        return [None if answer.offset < 0 else answer.offset for answer in answers]

    def new_member(self, group, topics, isolation, protocol="classic"):
        return GroupMember(self, group, topics, isolation, protocol)


if __name__ == "__main__":
    serve(ConfluentDriver)
