"""Records of groups of the consumer protocol by Apache Kafka 4.3.1, and a log of `__consumer_offsets` with them."""

from pathlib import Path

from ottla.protocol.batch import build_batch
from ottla.protocol.internal_topics.offsets_records import OffsetValue, encode_offset_value, group_key, offset_key

RECORDED = Path(__file__).parent / "data" / "consumer-groups" / "kafka-4.3.1.txt"
POSITIONS = {("auditors", "orders", 0): 41, ("auditors", "orders", 1): 7, ("mixed", "payments", 0): 3}
"""Committed offsets of groups of the consumer protocol in `write_consumer_offsets`."""
PARTITION = "__consumer_offsets-0"
COMMIT_MS = 1_000
UNKNOWN_TYPES = (9, 10, 17, 99, -1)
"""Types of keys that are of no classic group and of no group of the consumer protocol."""
_GROUP_METADATA = 3


def read_records():
    """Yield the key and the value of each record, as bytes; a tombstone is None."""
    for line in RECORDED.read_text().splitlines():
        key, value = line.split()
        yield bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)


def unknown_records():
    """Return records that a broker skips at loading: of unknown types, and of known types with an unknown version."""
    version, rest = (99).to_bytes(2, "big"), b"\1\2\3"
    keys = [kind.to_bytes(2, "big", signed=True) + b"\0\5other" for kind in UNKNOWN_TYPES]
    found = [(key, value) for key in keys for value in (b"\0\0" + rest, None)]
    known = (offset_key("auditors", "orders", 0), group_key("old"), _GROUP_METADATA.to_bytes(2, "big") + b"\0\3new")
    return [*found, *((key, version + rest) for key in known)]


def _commit(place):
    return offset_key(*place), encode_offset_value(OffsetValue(POSITIONS[place], 0, "", COMMIT_MS))


def write_consumer_offsets(write_log):
    """Write the log of `PARTITION` and return its directory.

    It has the recorded records, positions of two groups, one of them committed in a transaction, a deleted position
    and records that a broker skips.
    """
    plain, in_transaction, other = POSITIONS
    log = write_log("__consumer_offsets")
    for records in ([*read_records()], [_commit(plain), _commit(other)], unknown_records()):
        log.append(build_batch(records, timestamp_ms=COMMIT_MS, base_sequence=0))
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append(build_batch([_commit(in_transaction)], timestamp_ms=COMMIT_MS, **producer))
    log.marker(5, True, timestamp_ms=COMMIT_MS)
    deleted = offset_key("auditors", "orders", 2)
    value = encode_offset_value(OffsetValue(1, 0, "", COMMIT_MS))
    log.append(build_batch([(deleted, value), (deleted, None)], timestamp_ms=COMMIT_MS, base_sequence=0))
    return write_log.root
