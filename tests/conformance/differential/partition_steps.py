"""Steps that ask the leader of a partition."""

from uuid import UUID

from differential.asking import Asker, code, partition_rows
from differential.reading import PADDING, records_of

from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

PRODUCE, FETCH, LIST_OFFSETS, METADATA, WRITE_MARKERS, DESCRIBE_PRODUCERS = 0, 1, 2, 3, 27, 61
PRODUCE_BY_ID = 13


class PartitionSteps(Asker):
    def _produce(self, step):
        handle = self._handles[step["who"]]
        first, n = handle.sequence(step)
        transactional = bool(handle.id) if step["txn"] is None else step["txn"]
        batch = build_batch(
            [(b"k", f"{step['who']}{first}+{i}".ljust(step["size"], PADDING).encode()) for i in range(n)],
            timestamp_ms=self._answers.next_timestamp(),
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            base_sequence=first,
            transactional=transactional,
        )
        topic, index = self._place(step["partition"])
        data = codec.request_class(PRODUCE).TopicProduceData
        reply = self._ask(
            PRODUCE,
            step["version"],
            lambda reply: {reply.responses[0].partition_responses[0].error_code},
            transactional_id=self._name(handle.id) if transactional and step["name"] else None,
            acks=step["acks"],
            timeout_ms=10_000,
            topic_data=[
                data(
                    partition_data=[data.PartitionProduceData(index=index, records=bytes(batch))],
                    **({"topic_id": self._topic_id(topic)} if step["version"] >= PRODUCE_BY_ID else {"name": topic}),
                )
            ],
        )
        row = reply.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            handle.sent(step, first, n)
        start = row.log_start_offset if step["version"] >= 5 else None
        return [code(row), row.base_offset, self._answers.timestamp(row.log_append_time_ms), start]

    def _produce_many(self, step):
        """Rows of [partition, code, base offset]; batches of one partition travel together."""
        records = {}
        for row in step["batches"]:
            handle = self._handles[row["who"]]
            values = [(b"k", f"{row['who']}{row['seq']}+{i}".encode()) for i in range(row["n"])]
            records.setdefault(row["partition"], bytearray()).extend(
                build_batch(
                    values,
                    timestamp_ms=self._answers.next_timestamp(),
                    producer_id=handle.producer_id,
                    producer_epoch=handle.epoch,
                    base_sequence=row["seq"],
                    transactional=row["txn"],
                )
            )
        data = codec.request_class(PRODUCE).TopicProduceData
        partitions = [data.PartitionProduceData(index=index, records=bytes(r)) for index, r in records.items()]
        reply = self._connection.send(
            codec.request_class(PRODUCE)(
                transactional_id=self._name(step["id"]),
                acks=-1,
                timeout_ms=10_000,
                topic_data=[data(name=self._topic, partition_data=partitions)],
            ),
            step["version"],
        )
        return sorted([row.index, code(row), row.base_offset] for row in reply.responses[0].partition_responses)

    def _topic_id(self, name):
        """The zero id for a topic that does not exist."""
        request = codec.request_class(METADATA)
        asked = [request.MetadataRequestTopic(name=name)]
        reply = self._connection.send(request(topics=asked, allow_auto_topic_creation=False), 12)
        return reply.topics[0].topic_id or UUID(int=0)

    def _write_markers(self, step):
        marker_class = codec.request_class(WRITE_MARKERS).WritableTxnMarker
        topic_class = marker_class.WritableTxnMarkerTopic
        markers = [
            marker_class(
                **self._row(row),
                transaction_result=row["commit"],
                coordinator_epoch=row["coordinator_epoch"],
                **({"transaction_version": row["generation"]} if "generation" in row else {}),
                topics=[topic_class(name=n, partition_indexes=p) for n, p in self._topics(row["partitions"]).items()],
            )
            for row in step["markers"]
        ]
        reply = self._connection.send(codec.request_class(WRITE_MARKERS)(markers=markers), step.get("version", 1))
        rows = [
            [
                self._answers.producer(row.producer_id),
                sorted([each.partition_index, code(each)] for topic in row.topics for each in topic.partitions),
            ]
            for row in reply.markers
        ]
        return sorted(rows, key=str)

    def _fetch(self, step):
        topic_class = codec.request_class(FETCH).FetchTopic
        topic, index = self._place(step["partition"])
        asked = topic_class.FetchPartition(
            partition=index, fetch_offset=step["offset"], log_start_offset=-1, partition_max_bytes=step["max_bytes"]
        )
        reply = self._ask(
            FETCH,
            step["version"],
            lambda reply: {reply.responses[0].partitions[0].error_code},
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=step["isolation"],
            topics=[topic_class(topic=topic, partitions=[asked])],
            forgotten_topics_data=[],
            rack_id="",
        )
        row = reply.responses[0].partitions[0]
        aborted = row.aborted_transactions
        return {
            "error": code(row),
            "ends": [row.high_watermark, row.last_stable_offset, row.log_start_offset],
            "aborted": aborted and [[self._answers.producer(each.producer_id), each.first_offset] for each in aborted],
            "log": records_of(row.records, self._answers),
        }

    def _list_offsets(self, step):
        topic_class = codec.request_class(LIST_OFFSETS).ListOffsetsTopic
        topic, index = self._place(step["partition"])
        timestamp = step["timestamp"]
        asked = topic_class.ListOffsetsPartition(
            partition_index=index, timestamp=timestamp if timestamp < 0 else self._answers.clock_at(timestamp)
        )
        reply = self._ask(
            LIST_OFFSETS,
            step["version"],
            lambda reply: {reply.topics[0].partitions[0].error_code},
            replica_id=-1,
            isolation_level=step["isolation"],
            topics=[topic_class(name=topic, partitions=[asked])],
        )
        row = reply.topics[0].partitions[0]
        epoch = row.leader_epoch if step["version"] >= 4 else None
        return [code(row), row.offset, self._answers.timestamp(row.timestamp), epoch]

    def _describe_producers(self, step):
        topic_class = codec.request_class(DESCRIBE_PRODUCERS).TopicRequest
        topics = [topic_class(name=n, partition_indexes=p) for n, p in self._topics(step["partitions"]).items()]
        reply = self._ask(DESCRIBE_PRODUCERS, 0, lambda r: {row.error_code for row in partition_rows(r)}, topics=topics)
        rows = sorted(partition_rows(reply), key=lambda row: row.partition_index)
        return [[row.partition_index, code(row), self._answers.producers(row)] for row in rows]
