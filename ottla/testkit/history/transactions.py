"""Assignment of producer requests to transactions, as the client sees them. pure

A transaction begins with the first request after the end of the previous one (AddPartitionsToTxn, AddOffsetsToTxn, a
batch, a commit of offsets) and lasts until its EndTxn. With transactions V2 (KIP-890) each has its own epoch; with V1
they share one. An EndTxn directly after another of the same producer is a retry, not a new transaction. An abort after
a refused commit ends the same transaction again.
"""

from collections import Counter
from typing import Any

from ottla.testkit.checks.operations import OK
from ottla.testkit.history.calls import Call
from ottla.testkit.history.certainty import outcome
from ottla.testkit.history.operation import Operation

Producer = tuple[int, int]


class Transactions:
    """Transactions of all producers. `operations` has their init and end operations."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._open: dict[Producer, str] = {}
        self._ended: dict[Producer, Operation] = {}
        self._numbers: Counter[str] = Counter()

    def join(self, transactional_id: str, producer: Producer) -> str:
        """Return the name of the producer's open transaction; begin a new one if there is none."""
        name = self._open.get(producer)
        if name is None:
            self._numbers[transactional_id] += 1
            name = self._open[producer] = f"{transactional_id}/{self._numbers[transactional_id]}"
            self._ended.pop(producer, None)
        return name

    def init(self, call: Call) -> None:
        """Add an InitProducerId."""
        message, reply = call.message, call.reply
        transactional_id = message.transactional_id
        proc = transactional_id or f"{call.client_id}@{call.entry.peer}"
        operation = Operation("init", proc, call.entry, txn_id=transactional_id)
        result = None
        if reply is not None and reply.error_code == 0:
            result = {"txn_id": transactional_id, "pid": reply.producer_id, "epoch": reply.producer_epoch}
        operation.attempt(call.entry, _status(reply), result)
        self.operations.append(operation)

    def add(self, call: Call) -> None:
        """Add an AddPartitionsToTxn of a client."""
        message = call.message
        if call.api_version <= 3:  # brokers send the later versions
            producer = message.v3_and_below_producer_id, message.v3_and_below_producer_epoch
            self.join(message.v3_and_below_transactional_id, producer)

    def add_offsets(self, call: Call) -> None:
        """Add an AddOffsetsToTxn."""
        self.join(call.message.transactional_id, (call.message.producer_id, call.message.producer_epoch))

    def end_transaction(self, call: Call) -> None:
        """Add an EndTxn, which may be a retry."""
        message, reply = call.message, call.reply
        producer, commit = (message.producer_id, message.producer_epoch), bool(message.committed)
        result: dict[str, Any] = {}
        if call.api_version >= 5 and reply is not None and reply.producer_id >= 0:
            result = {"pid": reply.producer_id, "epoch": reply.producer_epoch}
        self._ending(call, producer, commit).attempt(call.entry, _status(reply), result)

    def _ending(self, call: Call, producer: Producer, commit: bool) -> Operation:
        last = None if producer in self._open else self._ended.get(producer)
        transactional_id = call.message.transactional_id
        if last is None or last.status == OK:
            name = self.join(transactional_id, producer)
        elif last.invocation["commit"] == commit:
            return last
        else:
            name = last.invocation["txn"]
        fields = {"txn": name, "commit": commit, "pid": producer[0], "epoch": producer[1]}
        operation = Operation("end", transactional_id, call.entry, **fields)
        self.operations.append(operation)
        self._open.pop(producer, None)
        self._ended[producer] = operation
        return operation


def _status(reply: Any) -> str:
    return outcome(-1 if reply is None else reply.error_code)
