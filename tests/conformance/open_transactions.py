"""Transactions left open on a broker by a raw client, and ones that their coordinator never knew."""

import time

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

READY_S = 60.0
FOREIGN_PRODUCER_ID = 7_000_000
# So that batches of a producer id that no coordinator gave out are taken.
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


class Client:
    """A raw connection to one broker."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self.connection = BlockingConnection(host, int(port), timeout_s=15)

    def close(self):
        self.connection.close()

    def create_topic(self, name, partitions=1):
        request = codec.request_class(ApiKey.CREATE_TOPICS)
        topic = request.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        reply = self.connection.send(request(topics=[topic], timeout_ms=10_000, validate_only=False))
        assert reply.topics[0].error_code == ErrorCode.NONE, reply
        for index in range(partitions):
            self.until(lambda index=index: self.end_offset(name, index) == 0)
        return name

    def begin(self, transactional_id, places, timeout_ms=60_000, *, two_phase=False):
        """A transaction with one record in each (topic, partition), perhaps of two-phase commit. Return (producer id,
        epoch)."""
        producer_id, epoch = self.init_producer_id(transactional_id, timeout_ms, two_phase=two_phase)
        self.add_partitions(transactional_id, producer_id, epoch, places)
        for name, index in places:
            self.produce(name, index, transactional_id, producer_id, epoch)
        return producer_id, epoch

    def init_producer_id(self, transactional_id, timeout_ms, *, two_phase=False):
        """Return (producer id, epoch)."""
        find = codec.request_class(ApiKey.FIND_COORDINATOR)
        self.until(lambda: not self.connection.send(find(key=transactional_id, key_type=1), 2).error_code)
        init = codec.request_class(ApiKey.INIT_PRODUCER_ID)
        asked = init(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, enable2_pc=two_phase)
        version = 6 if two_phase else 4
        granted = self.until(lambda: (reply := self.connection.send(asked, version)).error_code == 0 and reply)
        return granted.producer_id, granted.producer_epoch

    def add_partitions(self, transactional_id, producer_id, epoch, places):
        add = codec.request_class(ApiKey.ADD_PARTITIONS_TO_TXN)
        topic = add.AddPartitionsToTxnTopic
        joined = self.connection.send(
            add(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[topic(name=name, partitions=[index]) for name, index in places],
            ),
            3,
        )
        rows = [row for topic in joined.results_by_topic_v3_and_below for row in topic.results_by_partition]
        assert {row.partition_error_code for row in rows} == {ErrorCode.NONE}, joined

    def produce(self, name, index, transactional_id=None, producer_id=-1, epoch=-1, sequence=0, count=1):
        """`count` records; the offset of the first."""
        request = codec.request_class(ApiKey.PRODUCE)
        now_ms = round(time.time() * 1000)
        records = build_batch(
            [(b"k", b"v")] * count,
            timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional_id is not None,
        )
        topic = request.TopicProduceData
        data = topic(name=name, partition_data=[topic.PartitionProduceData(index=index, records=bytes(records))])
        asked = request(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])
        row = self.connection.send(asked, 9).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NONE, row
        return row.base_offset

    def orphan(self, name, index, number=0):
        """A transaction that no coordinator knows; its producer id. The broker must be `UNVERIFIED`."""
        producer_id = FOREIGN_PRODUCER_ID + number
        self.produce(name, index, "unknown-to-all", producer_id, 0)
        return producer_id

    def end(self, transactional_id, producer_id, epoch, commit):
        request = codec.request_class(ApiKey.END_TXN)
        asked = request(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        assert self.connection.send(asked, 3).error_code == ErrorCode.NONE

    def delete_records(self, name, index, before):
        """Delete the records with offsets below `before`."""
        request = codec.request_class(ApiKey.DELETE_RECORDS)
        topic = request.DeleteRecordsTopic
        rows = [topic(name=name, partitions=[topic.DeleteRecordsPartition(partition_index=index, offset=before)])]
        (row,) = self.connection.send(request(topics=rows, timeout_ms=10_000)).topics[0].partitions
        assert (row.error_code, row.low_watermark) == (ErrorCode.NONE, before), row

    def end_offset(self, name, index, isolation=0):
        request = codec.request_class(ApiKey.LIST_OFFSETS)
        topic = request.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
        topics = [topic(name=name, partitions=[partition])]
        asked = request(replica_id=-1, isolation_level=isolation, topics=topics)
        row = self.connection.send(asked, 6).topics[0].partitions[0]
        return None if row.error_code else row.offset

    def last_stable_offset(self, name, index):
        return self.end_offset(name, index, 1)

    def until(self, answer):
        """The first answer that is true."""
        deadline = time.monotonic() + READY_S
        while not (given := answer()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return given
