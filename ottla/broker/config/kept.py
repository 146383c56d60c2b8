"""Configs of Kafka's brokers that Ottla keeps, checks and shows, but does not use. pure

Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF` of 4.3.1).
"""

from dataclasses import dataclass
from typing import Final

from ottla.broker.config.option import INT64_MAX, Kind, Option, boolean, int32, int64, options_of, ratio, text

DOUBLE_MAX: Final = 1.7976931348623157e308
_THREADS: Final = "The number of threads; Ottla serves with one."
_REMOTE: Final = "Ottla has no remote storage."
OTHER_GROUPS: Final = "Ottla has no consumer groups of KIP-848, share groups or streams groups."
_QUOTA: Final = "Ottla has no replication."


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConfig:
    """Dynamic configs of a broker that Kafka uses and Ottla does not."""

    background_threads: int = int32(10, _THREADS, at_least=1, acted_on=False)
    follower_fetch_last_tiered_offset_enable: bool = boolean(False, _REMOTE, acted_on=False)
    follower_replication_throttled_rate: int = int64(INT64_MAX, _QUOTA, acted_on=False)
    group_consumer_assignment_interval_ms: int = int32(1000, OTHER_GROUPS, acted_on=False)
    group_coordinator_cached_buffer_max_bytes: int = int32(
        1048588, "Ottla has no such buffer.", at_least=524288, acted_on=False
    )
    group_share_assignment_interval_ms: int = int32(1000, OTHER_GROUPS, acted_on=False)
    group_streams_assignment_interval_ms: int = int32(1000, OTHER_GROUPS, acted_on=False)
    leader_replication_throttled_rate: int = int64(INT64_MAX, _QUOTA, acted_on=False)
    log_cleaner_io_buffer_load_factor: float = ratio(0.9, "Ottla has no such buffer.", acted_on=False)
    log_cleaner_io_buffer_size: int = int32(524288, "Ottla has no such buffer.", acted_on=False)
    log_cleaner_io_max_bytes_per_second: float = text(
        DOUBLE_MAX, "Ottla has no such limit.", kind=Kind.DOUBLE, at_most=DOUBLE_MAX, acted_on=False
    )
    log_cleaner_threads: int = int32(1, _THREADS, acted_on=False)
    log_flush_interval_ms: int = int64(INT64_MAX, "The time after which a log is synced.", acted_on=False)
    log_local_retention_bytes: int = int64(-2, _REMOTE, at_least=-2, acted_on=False)
    log_local_retention_ms: int = int64(-2, _REMOTE, at_least=-2, acted_on=False)
    log_preallocate: bool = boolean(False, "Whether segments are created at full size.", acted_on=False)
    min_insync_replicas: int = int32(1, "The replicas that acks=all needs; Ottla has one.", at_least=1, acted_on=False)
    num_io_threads: int = int32(8, _THREADS, at_least=1, acted_on=False)
    num_network_threads: int = int32(3, _THREADS, at_least=1, acted_on=False)
    num_recovery_threads_per_data_dir: int = int32(2, _THREADS, at_least=1, acted_on=False)
    num_replica_fetchers: int = int32(1, _QUOTA, at_least=1, acted_on=False)
    remote_fetch_max_wait_ms: int = int32(500, _REMOTE, at_least=1, acted_on=False)
    remote_list_offsets_request_timeout_ms: int = int64(30000, _REMOTE, at_least=1, acted_on=False)
    remote_log_index_file_cache_total_size_bytes: int = int64(1073741824, _REMOTE, at_least=1, acted_on=False)
    remote_log_manager_copier_thread_pool_size: int = int32(10, _REMOTE, at_least=1, acted_on=False)
    remote_log_manager_copy_max_bytes_per_second: int = int64(INT64_MAX, _REMOTE, at_least=1, acted_on=False)
    remote_log_manager_expiration_thread_pool_size: int = int32(10, _REMOTE, at_least=1, acted_on=False)
    remote_log_manager_fetch_max_bytes_per_second: int = int64(INT64_MAX, _REMOTE, at_least=1, acted_on=False)
    remote_log_manager_follower_thread_pool_size: int = int32(2, _REMOTE, at_least=1, acted_on=False)
    remote_log_reader_threads: int = int32(10, _REMOTE, at_least=1, acted_on=False)
    replica_alter_log_dirs_io_max_bytes_per_second: int = int64(
        INT64_MAX, "Ottla has one log directory.", acted_on=False
    )
    share_coordinator_cached_buffer_max_bytes: int = int32(1048588, OTHER_GROUPS, at_least=524288, acted_on=False)
    unclean_leader_election_enable: bool = boolean(False, "Ottla has no elections.", acted_on=False)


KEPT_OPTIONS: Final[tuple[Option, ...]] = options_of(KeptConfig)
