"""Conversion of requests and replies into the history lines of the checker. pure

Each request becomes an attempt at an operation; a retry belongs to the same operation. It is `ok` once a reply reports
success, `fail` if every attempt was refused, and unknown if a reply was lost. Three notes about the whole history
follow the operations (see `ottla.testkit.checker`).
"""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.testkit.checks.exactly_once import SOURCE
from ottla.testkit.checks.operations import OK, Entry
from ottla.testkit.control.journal import Passage
from ottla.testkit.history.calls import Call, read_calls
from ottla.testkit.history.certainty import joint_outcome
from ottla.testkit.history.operation import Operation, in_order
from ottla.testkit.history.reads import Polls, fetched_offsets
from ottla.testkit.history.sends import Send, Sends, iter_operations, repeated_values, same_names
from ottla.testkit.history.transactions import Transactions


def checker_lines(passages: Iterable[Passage]) -> list[Entry]:
    """Return the lines in the order of time."""
    return _Telling(read_calls(passages)).lines()


class _Telling:
    def __init__(self, calls: Iterable[Call]) -> None:
        self._transactions = Transactions()
        self._sends = Sends(self._transactions)
        self._polls = Polls()
        self._others: list[Operation] = []
        self._commits: dict[tuple[object, ...], Operation] = {}
        tellers: dict[int, Callable[[Call], None]] = {
            ApiKey.INIT_PRODUCER_ID: self._transactions.init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._transactions.add,
            ApiKey.ADD_OFFSETS_TO_TXN: self._transactions.add_offsets,
            ApiKey.END_TXN: self._transactions.end_transaction,
            ApiKey.PRODUCE: self._sends.produce,
            ApiKey.TXN_OFFSET_COMMIT: self._commit,
            ApiKey.FETCH: self._polls.fetch,
            ApiKey.OFFSET_FETCH: self._fetch_offsets,
        }
        for call in calls:
            tell = tellers.get(call.api_key)
            if tell is not None and call.message is not None:
                tell(call)

    def lines(self) -> list[Entry]:
        sends = self._sends.list_final()
        repeated = repeated_values(sends)
        same = same_names(sends, repeated)
        operations = [
            *self._transactions.operations,
            *iter_operations(sends, repeated, same),
            *self._polls.iter_operations(repeated, same),
            *self._others,
        ]
        return in_order(operations, _notes(sends, repeated, same))

    def _commit(self, call: Call) -> None:
        """Add a TxnOffsetCommit. A retry with the same offsets in one transaction is the same operation."""
        message, reply = call.message, call.reply
        mops = [
            ["offset", f"{call.topic_of(topic)}/{row.partition_index}", row.committed_offset]
            for topic in message.topics
            for row in topic.partitions
        ]
        if not mops:
            return
        producer = message.producer_id, message.producer_epoch
        name = self._transactions.join(message.transactional_id, producer)
        identity = name, message.group_id, *map(tuple, mops)
        operation = self._commits.get(identity)
        if operation is None or operation.status == OK:
            asked = {"txn": name, "group": message.group_id, "pid": producer[0], "epoch": producer[1], "mops": mops}
            operation = Operation("offsets", message.transactional_id, call.passage, **asked)
            self._commits[identity] = operation
            self._others.append(operation)
        errors = [row.error_code for topic in (reply.topics if reply else ()) for row in topic.partitions]
        operation.attempt(call.passage, joint_outcome(errors))

    def _fetch_offsets(self, call: Call) -> None:
        self._others += fetched_offsets(call)


def _notes(sends: list[Send], repeated: set[str], same: set[str]) -> list[dict[str, Any]]:
    begins: dict[str, int] = {}
    for send in sends:
        if send.base_offset >= 0:
            begins[send.key] = min(send.base_offset, begins.get(send.key, send.base_offset))
    named = (SOURCE.search(record.value) for send in sends for record in send.records)
    sources = {match[1] for match in named if match is not None}
    return [
        {"f": "scope", "begins": begins, "sources": sorted(sources)},
        {"f": "repeated", "values": sorted(repeated)},
        {"f": "same", "names": sorted(same)},
    ]
