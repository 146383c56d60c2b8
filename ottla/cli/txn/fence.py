"""`ottla txn fence`: end the transaction of a transactional id in all partitions, and its producer. shell"""

import time
from typing import Final

from ottla.cli.output import Output, ask_first, table_of
from ottla.cli.txn.states import is_open, state_row
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.times import duration
from ottla.verdict import NEVER_TIMES_OUT, KnownTransaction
from ottla.wire import Unanswered
from ottla.wire.cluster import RETRY_S, TRANSACTION, Cluster
from ottla.wire.login import error_name

DONE, REFUSED = 0, 1
ENDS_WITHIN_S: Final = 30.0
"""The time for the markers of an aborted transaction. The coordinator repeats them after it, too."""
_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def find(cluster: Cluster, transactional_id: str) -> KnownTransaction:
    """Return the state of an id at its coordinator. Raises Unanswered if it does not exist."""
    broker, address = cluster.find_coordinator(transactional_id, TRANSACTION)
    for known in cluster.describe(broker, address, [transactional_id]):
        return known
    raise Unanswered(f"the coordinator, broker {broker}, does not know the transactional id {transactional_id!r}")


def fence(cluster: Cluster, transactional_id: str, output: Output, agreed: bool) -> int:
    """Print what the id does, ask, fence its producer, and print the result. Return the exit code.

    A transaction of a two-phase commit is not aborted: other systems may have committed their part.
    """
    known, now_ms = find(cluster, transactional_id), round(time.time() * 1000)
    output.table("transactional id", *table_of([state_row(known, now_ms)]))
    if is_open(known) and known.never_times_out:
        output.line(
            "answer",
            f"{transactional_id!r} is not fenced: it {NEVER_TIMES_OUT}, and other systems may have committed their "
            "part. If none has, kafka-transactions.sh forceTerminateTransaction aborts it.",
        )
        output.close()
        return REFUSED
    state = f"{transactional_id!r} is {known.state}"
    ended = "no transaction was open"
    if known.state == "Ongoing":
        age, count = duration(max(0, now_ms - known.start_ms)), len(known.partitions)
        state += f" for {age}, in {count} {'partition' if count == 1 else 'partitions'}, and will be aborted"
        ended = "its transaction is aborted"
    elif is_open(known):
        ended = "its transaction had been decided, and has ended"
    ask_first(REFUSED, f"{state}. Further requests of its producer will be refused. Fence it?", agreed)
    producer_id, epoch = _take_over(cluster, known)
    output.line(
        "answer", f"{transactional_id!r} is fenced, {ended}: producer id {producer_id} is at epoch {epoch} from now on."
    )
    output.close()
    return DONE


def _take_over(cluster: Cluster, known: KnownTransaction) -> tuple[int, int]:
    """Request a new epoch of the id, with the timeout that it has. Return the producer id and the epoch."""
    request = codec.request_class(ApiKey.INIT_PRODUCER_ID)
    message = request(
        transactional_id=known.transactional_id,
        transaction_timeout_ms=known.timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    deadline = time.monotonic() + ENDS_WITHIN_S
    while True:
        _, address = cluster.find_coordinator(known.transactional_id, TRANSACTION)
        reply = cluster.ask(address, message)
        if not reply.error_code:
            return reply.producer_id, reply.producer_epoch
        if reply.error_code not in _AGAIN:
            raise Unanswered(f"{known.transactional_id!r} is not fenced: {error_name(reply.error_code)}")
        if time.monotonic() > deadline:
            raise Unanswered(
                f"{known.transactional_id!r} is not fenced after {ENDS_WITHIN_S:g} s ({error_name(reply.error_code)}): "
                "its coordinator cannot end the last transaction yet; `ottla txn list` shows the state"
            )
        time.sleep(RETRY_S)
