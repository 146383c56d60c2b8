"""Library for applications with producers and consumers. free

`from ottla.client import transaction` does not import kafka-python: the application has imported its library already.
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
