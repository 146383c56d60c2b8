"""Settings of the transaction coordinator. pure"""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """Kafka's `transaction.max.timeout.ms`, `transactional.id.expiration.ms` and the two cleanup intervals.

    A request waits `markers_wait_ms` for the end of its id's marker phase; markers are written `markers_delay_ms` after
    the outcome is durable.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expire_interval_ms: int = 3_600_000
    markers_wait_ms: float = 50
    markers_delay_ms: float = 0
