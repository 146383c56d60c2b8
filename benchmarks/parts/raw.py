"""Producers that speak the protocol themselves, to measure the CPU time of the broker alone. free"""

import time
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

VALUE = b"x" * 100
NEVER_TIMES_OUT_MS = 900_000
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,  # Kafka has created the partition of `__transaction_state` but not loaded it yet
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def open_connection(bootstrap: str) -> BlockingConnection:
    host, _, port = bootstrap.rpartition(":")
    return BlockingConnection(host, int(port))


def ask(connection: BlockingConnection, api_key: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
    return connection.send(codec.request_class(api_key)(**fields), version)


def check(error: int, *retriable: ErrorCode) -> bool:
    """Return True if the request has to be sent again. Exits for an error that is not retriable."""
    if error and error not in retriable:
        raise SystemExit(f"the broker answered {ErrorCode(error).name}")
    return bool(error)


def create_topic(connection: BlockingConnection, name: str, partitions: int = 1, **configs: str) -> None:
    request = codec.request_class(ApiKey.CREATE_TOPICS)
    topic = request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[request.CreatableTopic.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    (answer,) = connection.send(request(topics=[topic], timeout_ms=30_000, validate_only=False), 4).topics
    check(answer.error_code)


def produce_request(
    topic: str,
    partition: int,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional_id: str | None = None,
    transactional: bool = False,
) -> Any:
    """Return a Produce request of one record of 100 bytes."""
    batch = build_batch(
        [(None, VALUE)],
        timestamp_ms=time.time_ns() // 1_000_000,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    request = codec.request_class(ApiKey.PRODUCE)
    data = request.TopicProduceData
    return request(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=bytes(batch))])
        ],
    )


def check_produce(response: Any) -> None:
    check(response.responses[0].partition_responses[0].error_code)


class Transactional:
    """Transactional producer of one partition; with `v2` it speaks transactions V2 (KIP-890)."""

    def __init__(
        self, connection: BlockingConnection, transactional_id: str, topic: str, *, v2: bool, partition: int = 0
    ) -> None:
        self.connection = connection
        self._id = transactional_id
        self._topic = topic
        self._partition = partition
        self._v2 = v2
        self._sequence = 0
        ask(connection, ApiKey.FIND_COORDINATOR, 3, key=transactional_id, key_type=1)  # creates `__transaction_state`
        while True:
            answer = ask(
                connection,
                ApiKey.INIT_PRODUCER_ID,
                5 if v2 else 4,
                transactional_id=transactional_id,
                transaction_timeout_ms=NEVER_TIMES_OUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            if not check(answer.error_code, *NOT_YET):
                break
            time.sleep(0.02)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self) -> None:
        """Send AddPartitionsToTxn, as producers of transactions V1 do."""
        request = codec.request_class(ApiKey.ADD_PARTITIONS_TO_TXN)
        while True:
            answer = ask(
                self.connection,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=self._topic, partitions=[self._partition])],
            )
            row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            if not check(row.partition_error_code, ErrorCode.CONCURRENT_TRANSACTIONS):
                return
            time.sleep(0.001)

    def send_request(self) -> Any:
        """Return a Produce request of the next record."""
        return produce_request(
            self._topic, self._partition, self.producer_id, self.epoch, self._sequence, self._id, True
        )

    def send(self) -> None:
        check_produce(self.connection.send(self.send_request(), 12 if self._v2 else 11))
        self._sequence += 1

    def end_request(self, commit: bool = True) -> Any:
        return codec.request_class(ApiKey.END_TXN)(
            transactional_id=self._id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )

    def take_next(self, answer: Any) -> None:
        """Take the producer id and epoch of the next transaction from the EndTxn response."""
        check(answer.error_code)
        if self._v2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequence = 0

    def end(self, commit: bool = True) -> None:
        self.take_next(self.connection.send(self.end_request(commit), 5 if self._v2 else 4))

    def transact(self, commit: bool = True) -> None:
        """Run a transaction of one record: three requests, or two with transactions V2."""
        if not self._v2:
            self.add()
        self.send()
        self.end(commit)


def cpu_s(pid: int) -> float:
    """Return the user and system time of a process so far, with nanosecond resolution on Linux."""
    return time.clock_gettime((~pid << 3) | 2)
