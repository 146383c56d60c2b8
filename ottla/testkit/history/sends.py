"""Operations of producers: one for each batch, including its retries. pure

A retry of an idempotent producer is recognized by producer id, epoch and sequence. Other batches are recognized by the
timestamps of their records; after an acknowledgement, an equal batch is a new one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ottla.protocol.errors import ProtocolError
from ottla.testkit.checks.operations import FAIL, INFO, OK
from ottla.testkit.history.batches import Batch, Named, read_batches
from ottla.testkit.history.calls import Call
from ottla.testkit.history.certainty import outcome
from ottla.testkit.history.operation import Operation
from ottla.testkit.history.transactions import Transactions


class Send:
    """A batch and its operation."""

    __slots__ = ("base_offset", "key", "operation", "records")

    def __init__(self, key: str, records: tuple[Named, ...], operation: Operation) -> None:
        self.key = key
        self.records = records
        self.operation = operation
        self.base_offset = -1


class Sends:
    """Sends from all Produce requests."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._known: dict[tuple[object, ...], Send] = {}
        self.all: list[Send] = []

    def produce(self, call: Call) -> None:
        """Add the batches of a Produce request."""
        told = {
            (call.topic_of(topic), row.index): row
            for topic in (call.reply.responses if call.reply is not None else ())
            for row in topic.partition_responses
        }
        for topic in call.message.topic_data:
            name = call.topic_of(topic)
            for row in topic.partition_data:
                if name is not None and row.records:
                    self._partition(call, f"{name}/{row.index}", row.records, told.get((name, row.index)))

    def _partition(self, call: Call, key: str, records: Any, told: Any) -> None:
        try:
            batches = list(read_batches(key, records))
        except ProtocolError:
            return  # the broker refuses it
        for batch in batches:
            send = self._send(call, key, batch)
            if told is None:
                send.operation.attempt(call.passage, INFO)
                continue
            status = outcome(told.error_code)
            if status == OK and send.base_offset < 0 and told.error_code == 0:
                send.base_offset = told.base_offset
            send.operation.attempt(call.passage, status)

    def _send(self, call: Call, key: str, batch: Batch) -> Send:
        header, values = batch.header, tuple(record.value for record in batch.records)
        producer = header.producer_id, header.producer_epoch
        if header.producer_id >= 0:
            identity: tuple[object, ...] = (key, *producer, header.base_sequence, values)
        else:
            identity = (key, header.base_timestamp, header.max_timestamp, values)
        known = self._known.get(identity)
        if known is not None and (header.producer_id >= 0 or known.operation.status != OK):
            return known
        transactional_id = call.message.transactional_id
        txn = None
        proc = f"{call.client_id}@{call.passage.peer}"
        if header.is_transactional and transactional_id:
            txn, proc = self._transactions.join(transactional_id, producer), transactional_id
        elif header.producer_id >= 0:
            proc = f"{call.client_id}/{header.producer_id}"
        operation = Operation("send", proc, call.passage, txn_id=transactional_id, txn=txn, pid=producer[0])
        operation.asked["epoch"] = producer[1]
        send = self._known[identity] = Send(key, batch.records, operation)
        self.all.append(send)
        return send

    def list_final(self) -> list[Send]:
        """Return the sends, without refused batches whose records were sent again: producers split large batches."""
        times = Counter((send.key, record.value) for send in self.all for record in send.records)
        return [
            send
            for send in self.all
            if send.operation.status != FAIL or all(times[send.key, record.value] == 1 for record in send.records)
        ]


def repeated_values(sends: list[Send]) -> set[str]:
    """Return the values that more than one record has."""
    times = Counter(record.value for send in sends for record in send.records)
    return {value for value, count in times.items() if count > 1}


def same_names(sends: list[Send], repeated: set[str]) -> set[str]:
    """Return the names that more than one record has even with producer and sequence."""
    times = Counter(record.name_apart for send in sends for record in send.records if record.value in repeated)
    return {name for name, count in times.items() if count > 1}


def iter_operations(sends: list[Send], repeated: set[str], same: set[str]) -> Iterator[Operation]:
    """Yield the operations, with the names of the records that they send."""
    for send in sends:
        mops, acknowledged = [], []
        for delta, record in enumerate(send.records):
            name = record.name_apart if record.value in repeated else record.value
            if name in same:
                continue
            mops.append(["send", send.key, name])
            offset = send.base_offset + delta if send.base_offset >= 0 else -1
            acknowledged.append(["send", send.key, name, offset])
        operation = send.operation
        if mops:
            operation.asked["mops"] = mops
            operation.told = {"mops": acknowledged}
            if operation.asked["pid"] < 0 and operation.attempts > 1:
                operation.proc += f"#{operation.began[0]}"  # a retry without sequence numbers may be reordered
            yield operation
