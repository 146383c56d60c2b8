"""For the people who write producers and consumers. free

`from ottla.client import transaction` costs no import of kafka-python: that is loaded by the producer it is given.
"""

from ottla.client.errors import CommitUnknown, ProducerFenced, TransactionAborted, TransactionError, TransactionFatal
from ottla.client.transaction import transaction

__all__ = [
    "CommitUnknown",
    "ProducerFenced",
    "TransactionAborted",
    "TransactionError",
    "TransactionFatal",
    "transaction",
]
