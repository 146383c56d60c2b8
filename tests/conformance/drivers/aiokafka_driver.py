"""The conformance driver of aiokafka: its clients live on one event loop in a thread of their own."""

import asyncio
import ssl
import threading
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from jsonl import COPIER_OPTIONS, EVENT_TIMEOUT_S, Copier, Driver, Member, record, serve, to_bytes

LOOP = asyncio.new_event_loop()


def wait(coroutine, timeout_s=40):
    return asyncio.run_coroutine_threadsafe(coroutine, LOOP).result(timeout_s)


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

    async def _start(self):
        self.consumer = AIOKafkaConsumer(*self.topics, **self.options)
        await self.consumer.start()

    def open(self):
        wait(self._start())

    def poll_once(self):
        polled = wait(self.consumer.getmany(timeout_ms=100))
        return [record_of(r) for records in polled.values() for r in records]

    def assignment_now(self):
        return [[tp.topic, tp.partition] for tp in self.consumer.assignment()]

    def commit_now(self):
        wait(self.consumer.commit())

    def shut(self):
        wait(self.consumer.stop())


class GroupCopier(Copier, ConsumerRebalanceListener):
    """The only member of its group: aiokafka sends no member id and generation with the offsets of a transaction.

    So a member that lost its partitions could still commit. The start of the next producer ends its transaction.
    aiokafka does not ask for stable offsets either: after a rejoin within a transaction it reads the offsets before it.
    So the copier keeps those that it has committed.
    """

    producer = consumer = None
    has_rejoined = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.positions, self.done = {}, {}

    async def on_partitions_revoked(self, revoked):
        """Do nothing: the transaction continues."""

    async def on_partitions_assigned(self, assigned):
        self.has_rejoined = True

    async def _start(self):
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            client_id=self.transactional_id,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=20_000,
            **self.driver.login,
        )
        await self.producer.start()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_id=self.transactional_id,
            group_id=self.group,
            **(COPIER_OPTIONS | self.driver.login),
        )
        await self.consumer.start()
        self.consumer.subscribe([self.source], listener=self)

    def open(self):
        wait(self._start(), 120)

    def poll(self):
        if self.has_rejoined:
            self.has_rejoined = False
            self.rewind()
        polled = wait(self.consumer.getmany(timeout_ms=100, max_records=200))
        return [(r.partition, r.offset, r.key, r.value) for records in polled.values() for r in records]

    def begin(self):
        wait(self.producer.begin_transaction())

    async def _send(self, records):
        for partition, _, key, value in records:
            await self.producer.send(self.sink, partition=partition, key=key, value=value)

    def send(self, records):
        wait(self._send(records), 120)

    def send_offsets(self, positions):
        offsets = {TopicPartition(self.source, partition): offset for partition, offset in positions.items()}
        self.positions = positions
        wait(self.producer.send_offsets_to_transaction(offsets, self.group), 120)

    def commit(self):
        wait(self.producer.commit_transaction(), 120)
        self.done |= self.positions

    def abort(self):
        wait(self.producer.abort_transaction(), 120)

    async def _rewind(self):
        for place in self.consumer.assignment():
            committed = await self.consumer.committed(place) or 0
            self.consumer.seek(place, max(committed, self.done.get(place.partition, 0)))

    def rewind(self):
        wait(self._rewind(), 120)

    def shut(self):
        for client in (self.consumer, self.producer):
            if client is not None:
                wait(client.stop(), 120)
        self.consumer = self.producer = None


class AiokafkaDriver(Driver):
    new_copier = GroupCopier

    @staticmethod
    def login_options(security):
        ca = security.get("ca")
        return Driver.login_options(security) | ({"ssl_context": ssl.create_default_context(cafile=ca)} if ca else {})

    def op_hello(self):
        missing = {
            "consumer-protocol": "aiokafka has the classic protocol only, no KIP-848",
            "group-metadata": "aiokafka sends no member id and generation with transactional offsets (KIP-447)",
            "null-record": "aiokafka refuses a record without key and value",
        }
        return {"client": "aiokafka", "version": aiokafka.__version__, "missing": missing}

    async def _with_admin(self, work):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, **self.login)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    def op_create_topics(self, topics):
        new = [NewTopic(t["name"], t["partitions"], 1, topic_configs=t["configs"]) for t in topics]
        self._check_topics(wait(self._with_admin(lambda admin: admin.create_topics(new, timeout_ms=20_000))))

    def op_delete_topics(self, names):
        answer = wait(self._with_admin(lambda admin: admin.delete_topics(names, timeout_ms=20_000)))
        failed = [code for _, code in answer.topic_error_codes if code]
        if failed:
            raise aiokafka.errors.for_code(failed[0])

    @staticmethod
    def _check_topics(answer):
        failed = [(topic, code) for topic, code, *_ in answer.topic_errors if code]
        if failed:
            raise aiokafka.errors.for_code(failed[0][1])(str(failed))

    def op_list_topics(self):
        return sorted(wait(self._with_admin(lambda admin: admin.list_topics())))

    def op_producer_open(
        self,
        id,
        transactional_id,
        acks,
        compression,
        idempotent,
        transaction_timeout_ms,
        bootstrap,
        request_timeout_ms=10_000,
    ):
        options = {"transactional_id": transactional_id, "transaction_timeout_ms": transaction_timeout_ms}

        async def make():
            # Kept unstarted: `start` is what runs InitProducerId, and the scenario wants that under `init`.
            return AIOKafkaProducer(
                bootstrap_servers=bootstrap or self.bootstrap,
                acks="all" if acks == "all" else int(acks),
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent,
                request_timeout_ms=request_timeout_ms,
                **(self.login | (options if transactional_id else {})),
            )

        self.producers[id] = wait(make())
        if not transactional_id:
            wait(self.producers[id].start())

    def op_init(self, id):
        wait(self.producers[id].start())

    def op_begin(self, id):
        wait(self.producers[id].begin_transaction())

    def op_send(self, id, records, awaited=True):
        producer = self.producers[id]

        async def send():
            futures = [
                await producer.send(
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
            answers = await asyncio.gather(*futures)
            return [-1 if answer is None else answer.offset for answer in answers]

        return wait(send())

    def op_send_offsets(self, id, group, offsets, member):
        positions = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        wait(self.producers[id].send_offsets_to_transaction(positions, group))

    def op_commit(self, id):
        wait(self.producers[id].commit_transaction())

    def op_abort(self, id):
        wait(self.producers[id].abort_transaction())

    def op_producer_close(self, id):
        wait(self.producers.pop(id).stop())

    def op_read(self, topics, isolation):
        return wait(self._read(topics, isolation))

    async def _read(self, topics, isolation):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=10,
            **self.login,
        )
        await consumer.start()
        try:
            found, deadline = [], time.monotonic() + EVENT_TIMEOUT_S
            metadata = await consumer._client.fetch_all_metadata()
            partitions = [TopicPartition(t, p) for t in topics for p in sorted(metadata.partitions_for_topic(t))]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            while [tp for tp in partitions if await consumer.position(tp) < ends[tp]]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"stuck before {ends}")
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record_of(r) for r in records]
            return found
        finally:
            await consumer.stop()

    def op_committed(self, group, partitions, isolation):
        return wait(self._fetch_offsets(group, partitions, isolation))

    async def _fetch_offsets(self, group, partitions, isolation):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            isolation_level=isolation,
            enable_auto_commit=False,
            **self.login,
        )
        await consumer.start()
        try:
            wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
            consumer.assign(wanted)
            return [await consumer.committed(tp) for tp in wanted]
        finally:
            await consumer.stop()

    def new_member(self, group, topics, isolation):
        return GroupMember(self, group, topics, isolation)


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    serve(AiokafkaDriver)
