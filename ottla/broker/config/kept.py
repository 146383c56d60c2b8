"""Configs of groups, and configs of Kafka's brokers that Ottla keeps, checks and shows, but does not use. pure

Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF`, `DynamicConfig.Broker` and
`GroupConfig.CONFIG_DEF` of 4.3.1; the ranges of kinds of groups that Ottla does not serve are those of a broker that
sets none).
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Final

from ottla.broker.config.option import (
    DYNAMIC,
    INT64_MAX,
    Kind,
    boolean,
    int32,
    int64,
    items,
    number,
    options_of,
    text,
)

DOUBLE_MAX: Final = 1.7976931348623157e308
_THREADS: Final = "The number of threads; Ottla serves with one."
_REMOTE: Final = "Ottla has no remote storage."
_GROUPS: Final = "Ottla has no share groups or streams groups."
_LOGIN: Final = "Ottla logs in nowhere."
_QUOTA: Final = "Ottla has no replication."
_RESET: Final = re.compile(
    r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def _read_reset(given: str) -> str:
    if not _RESET.fullmatch(given):
        raise ValueError("latest, earliest or by_duration:PnDTnHnMn.nS")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConfig:
    """Dynamic configs of a broker that Kafka uses and Ottla does not."""

    background_threads: int = int32(10, _THREADS, at_least=1)
    follower_fetch_last_tiered_offset_enable: bool = boolean(False, _REMOTE)
    group_coordinator_cached_buffer_max_bytes: int = int32(1048588, "Ottla has no such buffer.", at_least=524288)
    group_share_assignment_interval_ms: int = int32(1000, _GROUPS)
    group_streams_assignment_interval_ms: int = int32(1000, _GROUPS)
    log_cleaner_io_buffer_load_factor: float = number(0.9, "Ottla has no such buffer.")
    log_cleaner_io_buffer_size: int = int32(524288, "Ottla has no such buffer.")
    log_cleaner_io_max_bytes_per_second: float = number(DOUBLE_MAX, "Ottla has no such limit.", at_most=DOUBLE_MAX)
    log_cleaner_threads: int = int32(1, _THREADS)
    log_flush_interval_ms: int = int64(INT64_MAX, "The time after which a log is synced.")
    log_local_retention_bytes: int = int64(-2, _REMOTE, at_least=-2)
    log_local_retention_ms: int = int64(-2, _REMOTE, at_least=-2)
    log_preallocate: bool = boolean(False, "Whether segments are created at full size.")
    num_io_threads: int = int32(8, _THREADS, at_least=1)
    num_network_threads: int = int32(3, _THREADS, at_least=1)
    num_recovery_threads_per_data_dir: int = int32(2, _THREADS, at_least=1)
    num_replica_fetchers: int = int32(1, _QUOTA, at_least=1)
    remote_fetch_max_wait_ms: int = int32(500, _REMOTE, at_least=1)
    remote_list_offsets_request_timeout_ms: int = int64(30000, _REMOTE, at_least=1)
    remote_log_index_file_cache_total_size_bytes: int = int64(1073741824, _REMOTE, at_least=1)
    remote_log_manager_copier_thread_pool_size: int = int32(10, _REMOTE, at_least=1)
    remote_log_manager_copy_max_bytes_per_second: int = int64(INT64_MAX, _REMOTE, at_least=1)
    remote_log_manager_expiration_thread_pool_size: int = int32(10, _REMOTE, at_least=1)
    remote_log_manager_fetch_max_bytes_per_second: int = int64(INT64_MAX, _REMOTE, at_least=1)
    remote_log_manager_follower_thread_pool_size: int = int32(2, _REMOTE, at_least=1)
    remote_log_reader_threads: int = int32(10, _REMOTE, at_least=1)
    share_coordinator_cached_buffer_max_bytes: int = int32(1048588, _GROUPS, at_least=524288)
    unclean_leader_election_enable: bool = boolean(False, "Ottla has no elections.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginConfig:
    """Configs of the login of a broker at other brokers, which Kafka changes for single brokers only."""

    sasl_kerberos_kinit_cmd: str = text("/usr/bin/kinit", _LOGIN)
    sasl_kerberos_min_time_before_relogin: int = int64(60000, _LOGIN, at_least=-INT64_MAX)
    sasl_kerberos_principal_to_local_rules: str = items("DEFAULT", _LOGIN)
    sasl_kerberos_service_name: str = text("", _LOGIN)
    sasl_kerberos_ticket_renew_jitter: float = number(0.05, _LOGIN, at_least=-DOUBLE_MAX, at_most=DOUBLE_MAX)
    sasl_kerberos_ticket_renew_window_factor: float = number(0.8, _LOGIN, at_least=-DOUBLE_MAX, at_most=DOUBLE_MAX)
    sasl_login_refresh_window_factor: float = number(0.8, _LOGIN, at_least=-DOUBLE_MAX, at_most=DOUBLE_MAX)
    sasl_login_refresh_window_jitter: float = number(0.05, _LOGIN, at_least=-DOUBLE_MAX, at_most=DOUBLE_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleConfig:
    """Configs of a broker that Kafka accepts only while it runs, and not in a file."""

    follower_replication_throttled_rate: int = int64(INT64_MAX, _QUOTA)
    leader_replication_throttled_rate: int = int64(INT64_MAX, _QUOTA)
    replica_alter_log_dirs_io_max_bytes_per_second: int = int64(INT64_MAX, "Ottla has one log directory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The configs of a group of the consumer protocol. `consumer_groups.py` checks the bounds."""

    consumer_session_timeout_ms: int = int32(45000, "How long a member of the group may be silent.", at_least=1)
    consumer_heartbeat_interval_ms: int = int32(
        5000, "How often a member of the group is to send a heartbeat.", at_least=1
    )
    consumer_assignment_interval_ms: int = int32(1000, "The least time between two target assignments of the group.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGroupConfig:
    """The configs of kinds of groups that Ottla does not serve."""

    share_session_timeout_ms: int = int32(45000, _GROUPS, at_least=45000, at_most=60000)
    share_heartbeat_interval_ms: int = int32(5000, _GROUPS, at_least=5000, at_most=15000)
    share_assignment_interval_ms: int = int32(1000, _GROUPS, at_most=15000)
    share_record_lock_duration_ms: int = int32(30000, _GROUPS, at_least=15000, at_most=60000)
    share_delivery_count_limit: int = int32(5, _GROUPS, at_least=2, at_most=10)
    share_partition_max_record_locks: int = int32(2000, _GROUPS, at_least=100, at_most=4000)
    share_auto_offset_reset: str = text("latest", _GROUPS, read=_read_reset)
    share_isolation_level: str = text("read_uncommitted", _GROUPS, one_of=("read_committed", "read_uncommitted"))
    share_renew_acknowledge_enable: bool = boolean(True, _GROUPS)
    streams_session_timeout_ms: int = int32(45000, _GROUPS, at_least=45000, at_most=60000)
    streams_heartbeat_interval_ms: int = int32(5000, _GROUPS, at_least=5000, at_most=15000)
    streams_assignment_interval_ms: int = int32(1000, _GROUPS, at_most=15000)
    streams_initial_rebalance_delay_ms: int = int32(3000, _GROUPS)
    streams_num_standby_replicas: int = int32(0, _GROUPS, at_most=2)


LOGIN_OPTIONS: Final = options_of(LoginConfig, scope=DYNAMIC, acted_on=False)
KEPT_OPTIONS: Final = (*options_of(KeptConfig, scope=DYNAMIC, acted_on=False), *LOGIN_OPTIONS)
THROTTLE_OPTIONS: Final = options_of(ThrottleConfig, scope=DYNAMIC, acted_on=False)
GROUP_OPTIONS: Final = {
    # Kafka's brokers have a default for each number.
    option.key: dataclasses.replace(option, broker=f"group.{option.key}" if option.kind is Kind.INT else "")
    for option in (*options_of(ConsumerGroupConfig), *options_of(KeptGroupConfig, acted_on=False))
}
