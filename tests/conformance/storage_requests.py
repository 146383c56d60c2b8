"""Raw requests about configs, partitions and log ends to one broker, and a transcript that two brokers can share.

Rows of an answer are sorted: Kafka keeps no order. Of the message about a value that cannot be, only the first half
counts: each broker has words of its own for what the value should have been.
"""

import time

from group_requests import TIMEOUT_S, part, request

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.wire.connection import BlockingConnection

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4
OLD_MS = 1_700_000_000_000


class StorageRequests:
    """A broker and the transcript so far. Topics are named after the script."""

    def __init__(self, bootstrap, script):
        host, _, port = bootstrap.rpartition(":")
        self.connection = BlockingConnection(host, int(port), timeout_s=TIMEOUT_S)
        self.lines, self._script = [], script

    def close(self):
        self.connection.close()

    def topic(self, name):
        return f"{self._script}-{name}" if name in ("a", "b", "nope") else name

    def _ask(self, key, version, **fields):
        return self.connection.send(request(key, **fields), version)

    def _tell(self, label, rows):
        self.lines.append((label, *sorted(rows, key=str)))

    def create(self, name, partitions=1, **configs):
        rows = [
            part(ApiKey.CREATE_TOPICS, "CreatableTopic.CreatableTopicConfig", name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        created = part(
            ApiKey.CREATE_TOPICS,
            "CreatableTopic",
            name=self.topic(name),
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=rows,
        )
        reply = self._ask(ApiKey.CREATE_TOPICS, 7, topics=[created], timeout_ms=10_000, validate_only=False)
        assert [row.error_code for row in reply.topics] == [0], reply
        # Kafka's broker leads the partitions a moment after its controller has answered.
        deadline = time.monotonic() + TIMEOUT_S
        while not all(self._leads(name, index) for index in range(partitions)):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _leads(self, name, index):
        row = part(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            "OffsetForLeaderTopic.OffsetForLeaderPartition",
            partition=index,
            leader_epoch=0,
        )
        topic = part(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopic", topic=self.topic(name), partitions=[row])
        reply = self._ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=[topic])
        return reply.topics[0].partitions[0].error_code == 0

    def produce(self, name, records=1, index=0, timestamp_ms=None):
        now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        row = part(
            ApiKey.PRODUCE,
            "TopicProduceData.PartitionProduceData",
            index=index,
            records=bytes(build_batch([(b"k", b"v")] * records, timestamp_ms=now_ms)),
        )
        data = part(ApiKey.PRODUCE, "TopicProduceData", name=self.topic(name), partition_data=[row])
        reply = self._ask(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[data])
        (answered,) = reply.responses[0].partition_responses
        self._tell("produced", [(ErrorCode(answered.error_code).name, answered.base_offset)])

    # --- configs --------------------------------------------------------------------------------------------------

    def _alter(self, key, version, resources, validate_only):
        reply = self._ask(key, version, resources=resources, validate_only=validate_only)
        self._tell(
            f"{key.title} v{version}",
            [
                (row.resource_type, row.resource_name, ErrorCode(row.error_code).name, words(row.error_message))
                for row in reply.responses
            ],
        )

    def change(self, *resources, version=1, validate_only=False):
        """Each resource is (type, name, (config, operation, value)...)."""
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        rows = [
            part(
                key,
                "AlterConfigsResource",
                resource_type=kind,
                resource_name=self.topic(name),
                configs=[
                    part(
                        key,
                        "AlterConfigsResource.AlterableConfig",
                        name=config,
                        config_operation=operation,
                        value=value,
                    )
                    for config, operation, value in changes
                ],
            )
            for kind, name, *changes in resources
        ]
        self._alter(key, version, rows, validate_only)

    def replace(self, *resources, version=2, validate_only=False):
        """Each resource is (type, name, (config, value)...)."""
        rows = [
            part(
                ApiKey.ALTER_CONFIGS,
                "AlterConfigsResource",
                resource_type=kind,
                resource_name=self.topic(name),
                configs=[
                    part(ApiKey.ALTER_CONFIGS, "AlterConfigsResource.AlterableConfig", name=config, value=value)
                    for config, value in values
                ],
            )
            for kind, name, *values in resources
        ]
        self._alter(ApiKey.ALTER_CONFIGS, version, rows, validate_only)

    def describe(self, name, *configs):
        """Name, value and source of configs, once Kafka's broker has heard of what its controller has answered."""
        time.sleep(0.3)
        asked = part(
            ApiKey.DESCRIBE_CONFIGS,
            "DescribeConfigsResource",
            resource_type=TOPIC,
            resource_name=self.topic(name),
            configuration_keys=list(configs),
        )
        (result,) = self._ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=False).results
        self._tell("described", [(row.name, row.value, row.config_source) for row in result.configs])

    # --- partitions -----------------------------------------------------------------------------------------------

    def add(self, *topics, version=3, validate_only=False):
        """Each topic is (name, count[, assignments])."""
        key = ApiKey.CREATE_PARTITIONS
        rows = [
            part(
                key,
                "CreatePartitionsTopic",
                name=self.topic(name),
                count=count,
                assignments=[
                    part(key, "CreatePartitionsTopic.CreatePartitionsAssignment", broker_ids=ids) for ids in given[0]
                ]
                if given
                else None,
            )
            for name, count, *given in topics
        ]
        reply = self._ask(key, version, topics=rows, timeout_ms=10_000, validate_only=validate_only)
        self._tell(
            f"add v{version}",
            [(row.name, ErrorCode(row.error_code).name, words(row.error_message)) for row in reply.results],
        )

    def delete(self, *topics, version=2):
        """Each topic is (name, (index, offset)...)."""
        key = ApiKey.DELETE_RECORDS
        rows = [
            part(
                key,
                "DeleteRecordsTopic",
                name=self.topic(name),
                partitions=[
                    part(key, "DeleteRecordsTopic.DeleteRecordsPartition", partition_index=index, offset=offset)
                    for index, offset in offsets
                ],
            )
            for name, *offsets in topics
        ]
        reply = self._ask(key, version, topics=rows, timeout_ms=5_000)
        self._tell(
            f"delete v{version}",
            [
                (topic.name, row.partition_index, row.low_watermark, ErrorCode(row.error_code).name)
                for topic in reply.topics
                for row in topic.partitions
            ],
        )

    def sizes(self, *topics, version=4):
        """Each topic is (name, index...)."""
        key = ApiKey.DESCRIBE_LOG_DIRS
        rows = [part(key, "DescribableLogDirTopic", topic=self.topic(name), partitions=ids) for name, *ids in topics]
        reply = self._ask(key, version, topics=rows)
        (directory,) = reply.results
        self._tell(
            f"sizes v{version}",
            [
                (ErrorCode(directory.error_code).name, directory.log_dir.startswith("/")),
                version < 4 or 0 < directory.usable_bytes <= directory.total_bytes,
                *(
                    (topic.name, row.partition_index, row.partition_size, row.offset_lag, row.is_future_key)
                    for topic in directory.topics
                    for row in topic.partitions
                ),
            ],
        )

    # --- ends -----------------------------------------------------------------------------------------------------

    def offsets(self, *topics, version=11, isolation=0, replica=-1, epoch=-1):
        """Each topic is (name, (index, timestamp)...); the time of a record counts only if it is `OLD_MS` or before."""
        key = ApiKey.LIST_OFFSETS
        rows = [
            part(
                key,
                "ListOffsetsTopic",
                name=self.topic(name),
                partitions=[
                    part(
                        key,
                        "ListOffsetsTopic.ListOffsetsPartition",
                        partition_index=index,
                        timestamp=timestamp,
                        current_leader_epoch=epoch,
                    )
                    for index, timestamp in asked
                ],
            )
            for name, *asked in topics
        ]
        reply = self._ask(key, version, replica_id=replica, isolation_level=isolation, topics=rows, timeout_ms=1_000)
        self._tell(
            f"offsets v{version}",
            [
                (
                    *(topic.name, row.partition_index, ErrorCode(row.error_code).name, row.offset),
                    row.timestamp if row.timestamp <= OLD_MS else "now",
                    row.leader_epoch,
                )
                for topic in reply.topics
                for row in topic.partitions
            ],
        )

    def epoch_ends(self, *topics, version=4, current=-1, replica=-1):
        """Each topic is (name, (index, epoch)...)."""
        key = ApiKey.OFFSET_FOR_LEADER_EPOCH
        rows = [
            part(
                key,
                "OffsetForLeaderTopic",
                topic=self.topic(name),
                partitions=[
                    part(
                        key,
                        "OffsetForLeaderTopic.OffsetForLeaderPartition",
                        partition=index,
                        current_leader_epoch=current,
                        leader_epoch=epoch,
                    )
                    for index, epoch in asked
                ],
            )
            for name, *asked in topics
        ]
        reply = self._ask(key, version, replica_id=replica, topics=rows)
        self._tell(
            f"epoch ends v{version}",
            [
                (topic.topic, row.partition, ErrorCode(row.error_code).name, row.leader_epoch, row.end_offset)
                for topic in reply.topics
                for row in topic.partitions
            ],
        )


def words(message):
    """Return the part of a message that both brokers have: Ottla adds what to do, and each words a bad value itself."""
    if message and message.startswith("Invalid value "):
        return message.partition(": ")[0]
    return message and message.partition(" Ottla is one broker: ")[0]
