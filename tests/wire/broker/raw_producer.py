"""A transactional producer by hand: each call sends one request on a connection of its own and returns the error."""

import itertools

from rig import FIND_COORDINATOR

from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec

PRODUCE, LIST_OFFSETS, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 2, 22, 24, 26
FIRST = {FIND_COORDINATOR: 2, INIT_PRODUCER_ID: 4, ADD_PARTITIONS: 3, END_TXN: 4, PRODUCE: 11, LIST_OFFSETS: 5}
SECOND = {**FIRST, END_TXN: 5, PRODUCE: 12}
NOT_YET = (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)
READ_COMMITTED = 1
NAMES = (f"by-hand-{number}" for number in itertools.count())


class Client:
    """A producer by hand; `versions` are the API versions of its generation."""

    def __init__(self, rig, versions):
        self.rig, self.versions = rig, versions
        self.name = next(NAMES)
        self.producer = (-1, -1)
        self.sequence = 0

    def ask(self, api_key, **fields):
        version = self.versions[api_key]
        with self.rig.connect() as peer:
            peer.send(bytes(codec.encode_request(codec.request_class(api_key)(**fields), version, 7, "")))
            return peer.reply(api_key, version)

    def start(self):
        while True:
            self.ask(FIND_COORDINATOR, key=self.name, key_type=1)
            reply = self.ask(
                INIT_PRODUCER_ID,
                transactional_id=self.name,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            if reply.error_code not in NOT_YET:
                break
        self.producer = reply.producer_id, reply.producer_epoch
        return self

    def add(self):
        topic = codec.request_class(ADD_PARTITIONS).AddPartitionsToTxnTopic(name=self.rig.topic, partitions=[0])
        reply = self.ask(
            ADD_PARTITIONS,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[topic],
        )
        return E(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(self, producer, sequence, count=1):
        batch = build_batch(
            [(None, b"x", ())] * count,
            timestamp_ms=1,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        message = codec.request_class(PRODUCE)
        row = message.TopicProduceData.PartitionProduceData(index=0, records=bytes(batch))
        topic = message.TopicProduceData(name=self.rig.topic, partition_data=[row])
        reply = self.ask(PRODUCE, transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[topic])
        return E(reply.responses[0].partition_responses[0].error_code)

    def end(self, producer, committed):
        reply = self.ask(
            END_TXN,
            transactional_id=self.name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        if not reply.error_code and self.versions[END_TXN] >= 5:
            self.producer = reply.producer_id, reply.producer_epoch
        return E(reply.error_code)

    def offset(self, isolation):
        message = codec.request_class(LIST_OFFSETS)
        row = message.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topic = message.ListOffsetsTopic(name=self.rig.topic, partitions=[row])
        reply = self.ask(LIST_OFFSETS, replica_id=-1, isolation_level=isolation, topics=[topic])
        return reply.topics[0].partitions[0].offset

    @property
    def holds_readers_back(self):
        return self.offset(READ_COMMITTED) < self.offset(0)
