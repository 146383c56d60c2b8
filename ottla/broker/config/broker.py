"""The broker's options: each field of `Config` is one, and this is the only list. pure

A key is the field's name with dots. Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF` of 4.3.1);
where Ottla's default differs, the meaning has the reason. Kafka's other options are ignored (`unknown.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.broker.config.option import (
    DEFAULT,
    DYNAMIC,
    INT32_MAX,
    INT64_MAX,
    Kind,
    Option,
    Origin,
    boolean,
    int32,
    int64,
    items,
    number,
    options_of,
    text,
)
from ottla.broker.config.server import ServerConfig

_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_MIGRATIONS: Final = ("bidirectional", "upgrade", "downgrade", "disabled")
_GZIP_LEVELS: Final = ("-1", *map(str, range(1, 10)))
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


def _read_migration(value: str) -> str:
    """Read a policy in capital or small letters."""
    if value.strip().lower() not in _MIGRATIONS:
        raise ValueError(f"one of {', '.join(_MIGRATIONS)}")
    return value.strip().lower()


def _require_item(value: str) -> None:
    if not value:
        raise ValueError("a list with at least one item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ServerConfig):
    """The broker's configuration; `load_config` makes a checked one, and tests may make one directly."""

    unstable_api_versions_enable: bool = boolean(
        False, "Whether the versions of APIs are served that Kafka has not released: InitProducerId 6."
    )

    admin_show_records: bool = boolean(
        True, "Ottla's own: whether the admin port shows keys, values and headers of records."
    )

    # Topics and logs.
    auto_create_topics_enable: bool = boolean(True, "Whether a Metadata request creates the topics that it names.")
    default_replication_factor: int = int32(
        1,
        "Replicas of a topic that is created without a number of replicas; at most --brokers.",
        at_least=1,
        at_most=32767,
    )
    num_partitions: int = int32(1, "Partitions of a topic that is created without a number of partitions.", at_least=1)
    max_request_partition_size_limit: int = int32(
        2000, "The most partitions of a reply to DescribeTopicPartitions.", at_least=1
    )
    min_insync_replicas: int = int32(
        1,
        "The replicas in sync that acks=all needs; more than a partition has count as that number.",
        DYNAMIC,
        at_least=1,
    )
    message_max_bytes: int = int32(1048588, "The largest record batch, as compressed.", DYNAMIC)
    max_decompressed_message_bytes: int = int32(
        33554432, "Ottla's own: the largest record batch after decompression.", at_least=1024
    )
    log_segment_bytes: int = int32(1073741824, "The size at which a log segment is closed.", DYNAMIC, at_least=1048576)
    log_roll_ms: int = int64(
        7 * _DAY_MS, "The age at which a log segment is closed.", DYNAMIC, at_least=1, also={"log.roll.hours": _HOUR_MS}
    )
    log_roll_jitter_ms: int = int64(
        0,
        "The longest random time by which a segment is closed earlier.",
        DYNAMIC,
        also={"log.roll.jitter.hours": _HOUR_MS},
    )
    log_retention_ms: int = int64(
        7 * _DAY_MS,
        "The age at which a segment is deleted; -1 keeps it.",
        DYNAMIC,
        at_least=-1,
        also={"log.retention.minutes": 60_000, "log.retention.hours": _HOUR_MS},
    )
    log_retention_bytes: int = int64(
        -1, "The size of a log above which its oldest segments are deleted; -1 keeps them.", DYNAMIC, at_least=-(2**63)
    )
    metadata_log_segment_bytes: int = int32(
        1073741824, "The size at which a segment of the metadata log is closed.", at_least=8388608
    )
    metadata_log_segment_ms: int = int64(
        7 * _DAY_MS, "The age at which a segment of the metadata log is closed.", at_least=1
    )
    metadata_log_max_record_bytes_between_snapshots: int = int64(
        20971520, "The bytes of metadata records after which a snapshot is taken.", at_least=1
    )
    metadata_log_max_snapshot_interval_ms: int = int64(
        3600000, "The longest time from a change of the metadata to a snapshot; 0: no limit.", at_least=0
    )
    metadata_max_retention_bytes: int = int64(
        104857600, "The size of metadata log and snapshots above which the oldest are deleted.", at_least=-(2**63)
    )
    metadata_max_retention_ms: int = int64(
        604800000,
        "The age at which a snapshot, except the newest, and the log before it are deleted.",
        at_least=-(2**63),
    )
    log_retention_check_interval_ms: int = int64(
        300000, "How often the broker looks for segments to delete.", at_least=1
    )
    compression_type: str = text(
        "producer", "The codec of batches on disk; producer keeps the codec of the producer.", DYNAMIC, one_of=_CODECS
    )
    compression_gzip_level: str = text(
        "-1", "The compression level of gzip.", DYNAMIC, one_of=_GZIP_LEVELS, kind=Kind.INT
    )
    compression_lz4_level: int = int32(9, "The compression level of lz4.", DYNAMIC, at_least=1, at_most=17)
    compression_zstd_level: int = int32(3, "The compression level of zstd.", DYNAMIC, at_least=-131072, at_most=22)
    log_index_interval_bytes: int = int32(4096, "The bytes of log for each entry of the offset index.", DYNAMIC)
    log_index_size_max_bytes: int = int32(10485760, "The largest size of an index file.", DYNAMIC, at_least=4)
    log_segment_delete_delay_ms: int = int64(
        60000, "The time that files of deleted segments and topics stay on disk.", DYNAMIC
    )
    log_message_timestamp_type: str = text(
        "CreateTime",
        "The clock of record timestamps: the producer's (CreateTime) or the broker's.",
        DYNAMIC,
        one_of=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = int64(
        INT64_MAX, "The most by which a record's time may be before the broker's.", DYNAMIC
    )
    log_message_timestamp_after_max_ms: int = int64(
        _HOUR_MS, "The most by which a record's time may be after the broker's.", DYNAMIC
    )
    log_flush_interval_messages: int = int64(
        INT64_MAX,
        "The records after which a log is synced; with 1 a record is on disk before it is acknowledged.",
        DYNAMIC,
        at_least=1,
    )
    log_dir_failure_exit: bool = boolean(
        True,
        "Ottla's own: whether the broker exits with code 1 when its data directory fails, as Kafka does; false: it "
        "keeps running and answers KAFKA_STORAGE_ERROR.",
    )
    max_open_log_files: int = int32(
        0,
        "Ottla's own: the most log files that are open at once; the least recently used are closed, and opened again "
        "when needed. 0: half of the process's limit of file descriptors.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = int64(
        5000, "How often high watermarks, recovery points and log start offsets are written to their checkpoints."
    )

    # Compaction.
    log_cleanup_policy: str = items("delete", "What is done with old segments.", DYNAMIC, one_of=("compact", "delete"))
    log_cleaner_enable: bool = boolean(True, "Whether logs are compacted.")
    log_cleaner_backoff_ms: int = int64(15000, "How often the broker looks for logs to compact.", DYNAMIC, at_least=1)
    log_cleaner_dedupe_buffer_size: int = int64(
        134217728,
        "The memory for the keys of the log that is being compacted; Ottla needs 200 bytes for each key.",
        DYNAMIC,
        at_least=1048576,
    )
    log_cleaner_min_cleanable_ratio: float = number(0.5, "The dirty ratio from which on a log is compacted.", DYNAMIC)
    log_cleaner_min_compaction_lag_ms: int = int64(0, "The age below which a record is not compacted.", DYNAMIC)
    log_cleaner_max_compaction_lag_ms: int = int64(
        INT64_MAX, "The age above which a record must be compacted.", DYNAMIC, at_least=1
    )
    log_cleaner_delete_retention_ms: int = int64(_DAY_MS, "How long a compacted log keeps tombstones.", DYNAMIC)

    # Producers and transactions.
    producer_id_expiration_ms: int = int32(
        _DAY_MS, "The time after which a partition forgets an idle producer.", DYNAMIC, at_least=1
    )
    producer_id_expiration_check_interval_ms: int = int32(
        600000, "How often partitions look for expired producers.", at_least=1
    )
    producer_id_manager: str = text(
        "metadata",
        "Ottla's own: where blocks of producer ids are counted: metadata (the metadata log) or zookeeper, at the node "
        "latest_producer_id_block, as Kafka 0.11 to 3.x.",
        one_of=("metadata", "zookeeper"),
    )
    zookeeper_connect: str = text(
        "", "The ZooKeeper of producer.id.manager=zookeeper: host:port,host:port/root. Not used without it."
    )
    transactional_id_expiration_ms: int = int32(
        7 * _DAY_MS, "The time after which a transactional id without a transaction is forgotten.", at_least=1
    )
    transaction_max_timeout_ms: int = int32(
        900000, "The longest transaction timeout that a producer may request.", at_least=1
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False,
        "Whether a producer may ask for transactions that never time out (InitProducerId 6, with "
        "unstable.api.versions.enable).",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10000, "How often the broker looks for transactions that have timed out.", at_least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3600000, "How often the broker looks for expired transactional ids.", at_least=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "Whether a partition verifies transactional writes with the coordinator.", DYNAMIC
    )
    transaction_sequence_reuse_refuse: bool = boolean(
        True,
        "Ottla's own: whether to refuse a transactional batch that uses sequence numbers of an ended transaction, with "
        "UNKNOWN_PRODUCER_ID. Kafka may acknowledge such a batch as a duplicate and drop it (docs/in-the-log.md).",
    )
    producer_sequence_reuse_refuse: bool = boolean(
        False,
        "Ottla's own: whether to refuse a duplicate whose keys, values or headers differ from the batch in the log, "
        "with INVALID_RECORD; false: it is acknowledged and dropped, as in Kafka (docs/in-the-log.md).",
    )
    transaction_version: int = int32(
        2,
        "Ottla's own: the level of the feature transaction.version in a new data directory. Later only UpdateFeatures "
        "changes it.",
        at_most=2,
    )
    transaction_markers_wait_ms: int = int32(
        50,
        "Ottla's own: how long a request waits for the markers of the previous transaction of its transactional id "
        "before the reply is CONCURRENT_TRANSACTIONS. 0: it does not wait, and the broker writes the markers 5 ms "
        "after the reply to EndTxn, so that clients meet this error.",
        at_most=10000,
    )
    add_partitions_to_txn_retry_backoff_ms: int = int32(
        20, "The delay after which Produce tries again to add a partition to a transaction.", at_least=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = int32(
        100, "The time for which Produce tries again before it answers CONCURRENT_TRANSACTIONS."
    )
    transaction_state_log_num_partitions: int = int32(
        50, "Partitions of __transaction_state; fixed once it exists.", at_least=1
    )
    transaction_state_log_replication_factor: int = int32(
        3, "Replicas of __transaction_state; at most --brokers.", at_least=1, at_most=32767
    )
    transaction_state_log_min_isr: int = int32(
        2, "min.insync.replicas of __transaction_state, if it is created with --brokers.", at_least=1
    )
    transaction_state_log_segment_bytes: int = int32(
        104857600, "Segment size of __transaction_state.", at_least=1048576
    )

    # Groups and their offsets.
    offsets_topic_num_partitions: int = int32(50, "Partitions of __consumer_offsets; fixed once it exists.", at_least=1)
    offsets_topic_replication_factor: int = int32(
        3, "Replicas of __consumer_offsets; at most --brokers.", at_least=1, at_most=32767
    )
    offsets_topic_segment_bytes: int = int32(104857600, "Segment size of __consumer_offsets.", at_least=1048576)
    offsets_retention_minutes: int = int32(
        10080,
        "How long offsets are kept: of a group from the time when it has no members, of a client without group "
        "membership from its last commit.",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = int64(
        600000, "How often the broker looks for expired offsets.", at_least=1
    )
    offset_metadata_max_bytes: int = int32(4096, "The longest metadata string of a committed offset.")
    group_min_session_timeout_ms: int = int32(6000, "The shortest session timeout that a member may request.")
    group_max_session_timeout_ms: int = int32(1800000, "The longest session timeout that a member may request.")
    group_initial_rebalance_delay_ms: int = int32(
        0, "How long a new group waits for more members. Kafka's default is 3000, its server.properties has 0."
    )
    group_max_size: int = int32(INT32_MAX, "The most members of a group.", at_least=1)
    group_coordinator_rebalance_protocols: str = items(
        "classic,consumer",
        "The protocols of consumer groups that are served. Without consumer, clients need group.protocol=classic.",
        one_of=("classic", "consumer"),
    )
    group_consumer_session_timeout_ms: int = int32(
        45000, "How long a member of a group of the consumer protocol may be silent.", at_least=1
    )
    group_consumer_min_session_timeout_ms: int = int32(
        45000, "The least `group.consumer.session.timeout.ms`, for the broker and for a group.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = int32(
        60000, "The largest `group.consumer.session.timeout.ms`, for the broker and for a group.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = int32(
        5000, "How often a member of a group of the consumer protocol is to send a heartbeat.", at_least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = int32(
        5000, "The least `group.consumer.heartbeat.interval.ms`, for the broker and for a group.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = int32(
        15000, "The largest `group.consumer.heartbeat.interval.ms`, for the broker and for a group.", at_least=1
    )
    group_consumer_assignment_interval_ms: int = int32(
        1000, "The least time between two target assignments of a group of the consumer protocol.", DYNAMIC
    )
    group_consumer_min_assignment_interval_ms: int = int32(
        0, "The least `group.consumer.assignment.interval.ms`, for the broker and for a group."
    )
    group_consumer_max_assignment_interval_ms: int = int32(
        15000, "The largest `group.consumer.assignment.interval.ms`, for the broker and for a group."
    )
    group_consumer_regex_refresh_interval_ms: int = int32(
        600_000,
        "How often the regular expressions of a group of the consumer protocol are matched again, if no topics are "
        "created. It finds topics that its members may describe since.",
        at_least=10_000,
    )
    group_consumer_max_size: int = int32(INT32_MAX, "The most members of a group of the consumer protocol.", at_least=1)
    group_consumer_assignors: str = items(
        "uniform,range",
        "The assignors that members of the consumer protocol may name. The first is that of members that name none.",
        one_of=("uniform", "range"),
        check=_require_item,
    )
    group_consumer_migration_policy: str = text(
        "bidirectional",
        "The directions in which a group with members may change its protocol: upgrade is from classic to consumer.",
        one_of=_MIGRATIONS,
        read=_read_migration,
    )
    group_member_max_protocols: int = int32(
        20, "Ottla's own: the most protocols (assignors) of a group member.", at_least=1
    )
    group_member_max_metadata_bytes: int = int32(
        262144,
        "Ottla's own: the most bytes of metadata that a member may send for all its protocols (its subscription and "
        "the data of its assignors), of all regular expressions of a group, and of the topics that these match (48 for "
        "each, and its name).",
        at_least=1,
    )

    listener_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """{listener's name: {option: value}} of `listener.name.NAME.OPTION`."""
    jaas_file: str = field(default="", repr=False, compare=False)
    """The text of the file of Java's `java.security.auth.login.config`."""
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    # Set by dynamic changes (`dynamic.py`): the configuration at the start, and the values set since then, by source.
    static: "Config | None" = field(default=None, repr=False, compare=False)
    dynamic: tuple[tuple[int, Mapping[str, str]], ...] = field(default=(), repr=False, compare=False)

    def origin(self, key: str) -> Origin:
        """Return the source of an option's value."""
        return self.origins.get(key, DEFAULT)


BROKER_OPTIONS: Final[tuple[Option, ...]] = options_of(Config)
OPTION_OF_KEY: Final = {key: option for option in BROKER_OPTIONS for key in (option.key, *option.also)}
"""The options by each of their keys."""
