"""Hashes: the coordinator's partition of a transactional id or a group, and the checksum of LZ4's headers. pure frozen

Source: `java.lang.String.hashCode`, `org.apache.kafka.common.utils.Utils.abs`, `TransactionStateManager.partitionFor`;
the specification of xxHash.
"""

from struct import unpack, unpack_from

from ottla.protocol.varints import Buffer

_MIN_INT32 = -(2**31)
_UINT32 = 0xFFFFFFFF
_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, wrapped to a signed int32."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in unpack(f"<{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def coordinator_partition(key: str, partitions: int) -> int:
    """Partition of `__transaction_state` or `__consumer_offsets` for `key`. The absolute value of -2^31 is 0 here."""
    value = java_hash(key)
    return 0 if value == _MIN_INT32 else abs(value) % partitions


def xxh32_short(content: Buffer) -> int:
    """Return the 32-bit xxHash, seed 0, of fewer than 16 bytes."""
    assert len(content) < 16
    one, two, three, four, five = _PRIMES
    value = five + len(content)
    words = len(content) // 4 * 4
    for at in range(0, words, 4):
        value = _rotated(value + unpack_from("<I", content, at)[0] * three, 17) * four
    for byte in content[words:]:
        value = _rotated(value + byte * five, 11) * one
    value &= _UINT32
    value = (value ^ value >> 15) * two & _UINT32
    value = (value ^ value >> 13) * three & _UINT32
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> (32 - bits)) & _UINT32
