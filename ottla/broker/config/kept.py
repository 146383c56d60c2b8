"""Configs that Kafka's brokers and groups have and Ottla keeps, checks and shows, but has no use for. pure

Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF`, `GroupConfig.CONFIG_DEF` of 4.3.1; the ranges
of groups are those of a broker that sets none).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.broker.config.entry import DEFAULT_CONFIG, GROUP_CONFIG, ConfigEntry
from ottla.broker.config.option import (
    INT64_MAX,
    Kind,
    Option,
    boolean,
    int32,
    int64,
    options_of,
    ratio,
    text,
    value_text,
)

DOUBLE_MAX: Final = 1.7976931348623157e308
_THREADS: Final = "Broker threads; there are none to be counted."
_REMOTE: Final = "There is no remote storage."
_OTHER_GROUPS: Final = "There are no groups of KIP-848, share groups or streams groups."
_QUOTA: Final = "There is no replication."


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConfig:
    """Dynamic configs of a broker that Kafka has and Ottla has not."""

    background_threads: int = int32(10, _THREADS, at_least=1, acted_on=False)
    follower_fetch_last_tiered_offset_enable: bool = boolean(False, _REMOTE, acted_on=False)
    follower_replication_throttled_rate: int = int64(INT64_MAX, _QUOTA, acted_on=False)
    group_consumer_assignment_interval_ms: int = int32(1000, _OTHER_GROUPS, acted_on=False)
    group_coordinator_cached_buffer_max_bytes: int = int32(
        1048588, "There is no such buffer.", at_least=524288, acted_on=False
    )
    group_share_assignment_interval_ms: int = int32(1000, _OTHER_GROUPS, acted_on=False)
    group_streams_assignment_interval_ms: int = int32(1000, _OTHER_GROUPS, acted_on=False)
    leader_replication_throttled_rate: int = int64(INT64_MAX, _QUOTA, acted_on=False)
    log_cleaner_io_buffer_load_factor: float = ratio(0.9, "There is no such buffer.", acted_on=False)
    log_cleaner_io_buffer_size: int = int32(524288, "There is no such buffer.", acted_on=False)
    log_cleaner_io_max_bytes_per_second: float = text(
        DOUBLE_MAX, "There is no such limit.", kind=Kind.DOUBLE, at_most=DOUBLE_MAX, acted_on=False
    )
    log_cleaner_threads: int = int32(1, _THREADS, acted_on=False)
    log_flush_interval_ms: int = int64(INT64_MAX, "The time after which a log is synced.", acted_on=False)
    log_local_retention_bytes: int = int64(-2, _REMOTE, at_least=-2, acted_on=False)
    log_local_retention_ms: int = int64(-2, _REMOTE, at_least=-2, acted_on=False)
    log_preallocate: bool = boolean(False, "Whether segments are created at full size.", acted_on=False)
    min_insync_replicas: int = int32(1, "Replicas needed for acks=all; there is one.", at_least=1, acted_on=False)
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
        INT64_MAX, "There is one log directory.", acted_on=False
    )
    share_coordinator_cached_buffer_max_bytes: int = int32(1048588, _OTHER_GROUPS, at_least=524288, acted_on=False)
    unclean_leader_election_enable: bool = boolean(False, "There is no election.", acted_on=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The configs of a group: all of kinds of groups that are not served."""

    consumer_session_timeout_ms: int = int32(
        45000,
        _OTHER_GROUPS,
        at_least=45000,
        at_most=60000,
        broker="group.consumer.session.timeout.ms",
        acted_on=False,
    )
    consumer_heartbeat_interval_ms: int = int32(
        5000,
        _OTHER_GROUPS,
        at_least=5000,
        at_most=15000,
        broker="group.consumer.heartbeat.interval.ms",
        acted_on=False,
    )
    consumer_assignment_interval_ms: int = int32(
        1000, _OTHER_GROUPS, at_most=15000, broker="group.consumer.assignment.interval.ms", acted_on=False
    )
    share_session_timeout_ms: int = int32(
        45000, _OTHER_GROUPS, at_least=45000, at_most=60000, broker="group.share.session.timeout.ms", acted_on=False
    )
    share_heartbeat_interval_ms: int = int32(
        5000, _OTHER_GROUPS, at_least=5000, at_most=15000, broker="group.share.heartbeat.interval.ms", acted_on=False
    )
    share_assignment_interval_ms: int = int32(
        1000, _OTHER_GROUPS, at_most=15000, broker="group.share.assignment.interval.ms", acted_on=False
    )
    share_record_lock_duration_ms: int = int32(
        30000,
        _OTHER_GROUPS,
        at_least=15000,
        at_most=60000,
        broker="group.share.record.lock.duration.ms",
        acted_on=False,
    )
    share_delivery_count_limit: int = int32(
        5, _OTHER_GROUPS, at_least=2, at_most=10, broker="group.share.delivery.count.limit", acted_on=False
    )
    share_partition_max_record_locks: int = int32(
        2000, _OTHER_GROUPS, at_least=100, at_most=4000, broker="group.share.partition.max.record.locks", acted_on=False
    )
    share_auto_offset_reset: str = text("latest", _OTHER_GROUPS, acted_on=False)
    share_isolation_level: str = text(
        "read_uncommitted", _OTHER_GROUPS, one_of=("read_committed", "read_uncommitted"), acted_on=False
    )
    share_renew_acknowledge_enable: bool = boolean(True, _OTHER_GROUPS, acted_on=False)
    streams_session_timeout_ms: int = int32(
        45000, _OTHER_GROUPS, at_least=45000, at_most=60000, broker="group.streams.session.timeout.ms", acted_on=False
    )
    streams_heartbeat_interval_ms: int = int32(
        5000, _OTHER_GROUPS, at_least=5000, at_most=15000, broker="group.streams.heartbeat.interval.ms", acted_on=False
    )
    streams_assignment_interval_ms: int = int32(
        1000, _OTHER_GROUPS, at_most=15000, broker="group.streams.assignment.interval.ms", acted_on=False
    )
    streams_initial_rebalance_delay_ms: int = int32(
        3000, _OTHER_GROUPS, broker="group.streams.initial.rebalance.delay.ms", acted_on=False
    )
    streams_num_standby_replicas: int = int32(
        0, _OTHER_GROUPS, at_most=2, broker="group.streams.num.standby.replicas", acted_on=False
    )


KEPT_OPTIONS: Final[tuple[Option, ...]] = options_of(KeptConfig)
GROUP_OPTIONS: Final = {option.key: option for option in options_of(GroupConfig)}

_RESET: Final = re.compile(
    r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def group_config_problem(own: Mapping[str, str]) -> str:
    """Why these cannot be a group's configs (INVALID_CONFIG), or an empty string."""
    for key, given in own.items():
        option = GROUP_OPTIONS.get(key)
        if option is None:
            return f"Unknown group config name: {key}"
        try:
            option.parse(given)
        except ValueError:
            return f"Invalid value {given} for configuration {key}: must be {option.range}"
        if key == "share.auto.offset.reset" and not _RESET.fullmatch(given):
            words = "latest, earliest or by_duration:PnDTnHnMn.nS"
            return f"Invalid value {given} for configuration {key}: must be {words}"
    return ""


def describe_group(own: Mapping[str, str]) -> list[ConfigEntry]:
    """Every config of a group as DescribeConfigs shows it: the group's own value, then the default."""
    entries = []
    for key, option in GROUP_OPTIONS.items():
        default = (option.broker or key, value_text(option.default), DEFAULT_CONFIG)
        synonyms = ((key, own[key], GROUP_CONFIG), default) if key in own else (default,)
        _, value, source = synonyms[0]
        entries.append(ConfigEntry(key, value, source, option.kind, False, option.described, synonyms))
    return entries
