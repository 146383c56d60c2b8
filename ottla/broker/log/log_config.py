"""Settings of logs and log directories, with Kafka's defaults. pure"""

from dataclasses import dataclass, field

MAX_INT64 = 2**63 - 1
PRODUCER_COMPRESSION = "producer"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log, immutable; a change replaces the whole object (`UnifiedLog.config`).

    Source: Kafka's class of this name.
    """

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    # Each segment is rolled earlier by a random part of this.
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4_096
    max_message_bytes: int = 1_048_588
    # message.timestamp.type=LogAppendTime
    log_append_time: bool = False
    timestamp_before_max_ms: int = MAX_INT64
    timestamp_after_max_ms: int = 3_600_000
    # cleanup.policy contains compact: records need keys
    cleanup_compact: bool = False
    # Records below are not needed: a power loss may keep the deletion of some segments there and undo others.
    needed_from_offset: int = 0
    # cleanup.policy contains delete: segments are deleted by age and size; negative limits: never.
    cleanup_delete: bool = True
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    # A log is compacted from this ratio of dirty bytes on, or when a record has the maximum age. Records below the
    # minimum age are not compacted.
    min_cleanable_dirty_ratio: float = 0.5
    max_compaction_lag_ms: int = MAX_INT64
    min_compaction_lag_ms: int = 0
    # How long tombstones and the markers of transactions without batches stay.
    delete_retention_ms: int = 86_400_000
    # A power loss may lose so many records; with 1, every acknowledged record is on the device.
    flush_messages: int = MAX_INT64
    # compression.type: "producer" keeps the codec of the batch
    compression_type: str = PRODUCER_COMPRESSION
    # Level of the codec in `compression_type`; None: the default of the codec.
    compression_level: int | None = None
    # How long a producer without an open transaction is remembered.
    producer_id_expiration_ms: int = 86_400_000
    # Whether to refuse a batch with sequences of an ended transaction; Kafka may take it for a duplicate.
    refuse_sequence_reuse: bool = True


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Settings of a log directory. A new directory gets `cluster_id`, or a random one if it is None."""

    directory: str
    node_id: int = 1
    # Whether the operator set the node id; if not, the id of an existing directory is used.
    node_id_given: bool = False
    cluster_id: str | None = None
    file_delete_delay_ms: int = 60_000
    # Names `<topic>-<index>` of damaged partitions that the operator allows to be cut where the damage begins.
    truncate_damaged: frozenset[str] = field(default_factory=frozenset)
