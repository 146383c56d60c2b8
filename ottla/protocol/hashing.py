"""Partition of an internal topic that owns a transactional id or a group. pure frozen

Source: `java.lang.String.hashCode`, `org.apache.kafka.common.utils.Utils.abs`, `TransactionStateManager.partitionFor`.
"""

from struct import unpack
from typing import Final

_MIN_INT32: Final = -(2**31)


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 units, wrapped to a signed int32."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in unpack(f"<{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition of `__transaction_state` or `__consumer_offsets` for `key`. A hash of -2^31 counts as 0."""
    value = java_hash(key)
    return 0 if value == _MIN_INT32 else abs(value) % partitions
