"""Values that every package uses: partitions, producers, and the values that mean none. pure

Source: `org.apache.kafka.common.TopicPartition`, `ProducerIdAndEpoch`, `RecordBatch`, `Uuid`, and of
`org.apache.kafka.common.requests` `OffsetsForLeaderEpochResponse` and `ListOffsetsResponse` (4.3.1).
"""

from typing import Final, NamedTuple, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""Name of the topic and index of the partition. A plain tuple, because requests make thousands."""

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NEVER_TIMES_OUT_MS: Final = 2147483647
"""The timeout of transactions with two-phase commit (KIP-939): only their producer ends them."""
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

UNDEFINED_EPOCH: Final = NO_PARTITION_LEADER_EPOCH
"""The epoch in the response for an unknown leader epoch, with the offset `UNDEFINED_EPOCH_OFFSET`."""
UNDEFINED_EPOCH_OFFSET: Final = NO_PARTITION_LEADER_EPOCH

UNKNOWN_OFFSET: Final = -1

MAX_PRODUCER_EPOCH: Final = 2**15 - 1
"""The largest epoch. A coordinator fences with it and never assigns it to a producer."""

ZERO_UUID: Final = bytes(16)
"""Value for no topic id, on the wire and on disk."""


class ProducerIdAndEpoch(NamedTuple):
    """Producer id and epoch. The epoch distinguishes a producer from earlier ones with the same id."""

    producer_id: int
    epoch: int


class TransactionMarker(NamedTuple):
    """End of a producer's transaction, as WriteTxnMarkers carries it (KIP-98; `transaction_version` from KIP-1228)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
