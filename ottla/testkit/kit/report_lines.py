"""Transactions and differences of records as lines of a failure report. pure"""

from collections import Counter
from collections.abc import Hashable
from itertools import islice
from typing import Final

from ottla.printable import printable
from ottla.testkit.kit.wire import OpenProducer, Transaction

_MOST_LISTED: Final = 10


def differences(what: str, records: Counter[Hashable]) -> str:
    """Return the number of these records and the first of them; an empty string if there are none."""
    if not records:
        return ""
    shown = "".join(
        f"\n    {value!r}{f' x {count}' if count > 1 else ''}" for value, count in islice(records.items(), _MOST_LISTED)
    )
    more = f"\n    and {len(records) - _MOST_LISTED} others" if len(records) > _MOST_LISTED else ""
    return f"\n  {what}, {records.total()}:{shown}{more}"


def transaction_line(transaction: Transaction) -> str:
    """Return the state and the first partitions of a transaction, on a line of its own."""
    places = ", ".join(f"{topic}-{index}" for topic, index in transaction.partitions[:_MOST_LISTED])
    return "\n  " + printable(
        f"{transaction.transactional_id}: {transaction.state}, producer id {transaction.producer_id}, epoch "
        f"{transaction.producer_epoch}, in {places or 'no partition'}"
    )


def hanging_line(producer: OpenProducer) -> str:
    """Return the place and the producer of a hanging transaction, on a line of its own."""
    return "\n  " + printable(
        f"{producer.topic}-{producer.partition} from offset {producer.first_offset}: producer id "
        f"{producer.producer_id}, epoch {producer.producer_epoch}, for which no coordinator has an open transaction"
    )
