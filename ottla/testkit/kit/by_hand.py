"""A producer whose requests a test sends one by one, valid or not. shell

    producer = ottla_broker.producer_by_hand("tx-1")
    assert producer.send("orders", b"one") == ErrorCode.NONE
    assert producer.commit() == ErrorCode.NONE

Requests are not retried, and errors are returned, so a test sees the errors that a client of any language gets. The
producer looks for its coordinator at the start and after NOT_COORDINATOR, and for leaders before each batch. Each
request opens a new connection, so a held request does not hold other requests.
"""

import time
from collections import Counter
from typing import Any, Final

from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ProducerIdAndEpoch
from ottla.testkit.in_memory import wire as requests
from ottla.testkit.in_memory.wire import V1, V2, Generation, Request
from ottla.testkit.kit.wire import TRANSACTION, KafkaError, Wire, connect, when_ready

__tracebackhide__ = True  # pytest then shows the line of the test and the message
CLIENT_ID: Final = "by-hand"
_GENERATIONS: Final = {1: V1, 2: V2}


class ProducerByHand:
    """A producer whose requests a test sends one by one.

    `identity` is (producer id, epoch). Without it, the producer sends InitProducerId, which fences the current producer
    of the id. `version` is the `transaction.version` of its requests. With 1, AddPartitionsToTxn (`add`) adds the
    partitions, and an epoch is valid until it is fenced. With 2, the broker adds the partitions, and each transaction
    has its own epoch. Without a transactional id it is an idempotent producer. Raises KafkaError if it cannot start.
    """

    def __init__(
        self, wire: Wire, transactional_id: str | None, version: int = 2, identity: tuple[int, int] | None = None
    ) -> None:
        self.transactional_id = transactional_id
        self._wire = wire
        self._generation: Generation = _GENERATIONS[version]
        self._added: set[tuple[str, int]] = set()
        self._sent: Counter[tuple[str, int]] = Counter()
        self._coordinator = None if transactional_id is None else wire.coordinator(transactional_id, TRANSACTION)
        self.identity = self._init_producer_id() if identity is None else ProducerIdAndEpoch(*identity)

    def _init_producer_id(self) -> ProducerIdAndEpoch:
        reply = when_ready(
            lambda: self._send(requests.init_producer_id(self.transactional_id, 60_000), self._coordinator),
            f"a producer id for {self.transactional_id}",
        )
        return ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)

    def become(self, producer_id: int, epoch: int) -> None:
        """Use this producer id and epoch from now on, with sequence numbers from 0."""
        self.identity = ProducerIdAndEpoch(producer_id, epoch)
        self._sent.clear()

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        """Send AddPartitionsToTxn."""
        reply = self._send(requests.add_partitions(self._id, self.identity, [(topic, partition)]), self._coordinator)
        error = ErrorCode(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        if not error:
            self._added.add((topic, partition))
        return self._follow(error)

    def send(self, topic: str, *values: bytes, partition: int = 0, compression: int = 0) -> ErrorCode:
        """Send one batch, after AddPartitionsToTxn for a new partition if `transaction.version` is 1."""
        place = topic, partition
        if self.transactional_id is not None and self._generation.adds_by_itself and place not in self._added:
            error = self.add(topic, partition)
            if error:
                return error
        return self.produce(topic, *values, partition=partition, compression=compression)

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, sequence: int | None = None, compression: int = 0
    ) -> ErrorCode:
        """Send only Produce. `sequence` replaces the next sequence number; `compression` is Kafka's codec number."""
        batch = build_batch(
            [(None, value) for value in values],
            timestamp_ms=int(time.time() * 1000),
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self._sent[topic, partition] if sequence is None else sequence,
            transactional=self.transactional_id is not None,
            compression=compression,
        )
        request = requests.produce(self._generation, self.transactional_id, topic, partition, bytes(batch))
        reply = self._send(request, self._wire.leader(topic, partition))
        error = ErrorCode(reply.responses[0].partition_responses[0].error_code)
        if not error and sequence is None:
            self._sent[topic, partition] += len(values)
        return error

    def commit(self) -> ErrorCode:
        """Send EndTxn to commit."""
        return self._end(commit=True)

    def abort(self) -> ErrorCode:
        """Send EndTxn to abort."""
        return self._end(commit=False)

    def _end(self, *, commit: bool) -> ErrorCode:
        reply = self._send(requests.end_txn(self._generation, self._id, self.identity, commit), self._coordinator)
        if not reply.error_code:
            self._added.clear()
            if self._generation is V2:
                self.become(reply.producer_id, reply.producer_epoch)
        return self._follow(ErrorCode(reply.error_code))

    def _follow(self, error: ErrorCode) -> ErrorCode:
        """Return the error. If the coordinator has moved, the next request goes to the new one."""
        if error == ErrorCode.NOT_COORDINATOR:
            self._coordinator = self._wire.coordinator(self._id, TRANSACTION)
        return error

    @property
    def _id(self) -> str:
        if self.transactional_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer without a transactional id has no transactions")
        return self.transactional_id

    def _send(self, request: Request, address: str | None) -> Any:
        with connect(address or self._wire.bootstrap, CLIENT_ID) as connection:
            return connection.send(request.message, request.version)
