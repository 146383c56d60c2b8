"""The configs of a group: each field of `GroupConfig` is one. pure

Names, defaults and ranges are Kafka's (`GroupConfig.CONFIG_DEF` of 4.3.1; the ranges are those of a broker that sets
none).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.broker.config.entry import DEFAULT_CONFIG, GROUP_CONFIG, ConfigEntry
from ottla.broker.config.kept import OTHER_GROUPS
from ottla.broker.config.option import boolean, int32, options_of, text, value_text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The configs of a group. All are for kinds of groups that Ottla does not serve."""

    consumer_session_timeout_ms: int = int32(
        45000,
        OTHER_GROUPS,
        at_least=45000,
        at_most=60000,
        broker="group.consumer.session.timeout.ms",
        acted_on=False,
    )
    consumer_heartbeat_interval_ms: int = int32(
        5000,
        OTHER_GROUPS,
        at_least=5000,
        at_most=15000,
        broker="group.consumer.heartbeat.interval.ms",
        acted_on=False,
    )
    consumer_assignment_interval_ms: int = int32(
        1000, OTHER_GROUPS, at_most=15000, broker="group.consumer.assignment.interval.ms", acted_on=False
    )
    share_session_timeout_ms: int = int32(
        45000, OTHER_GROUPS, at_least=45000, at_most=60000, broker="group.share.session.timeout.ms", acted_on=False
    )
    share_heartbeat_interval_ms: int = int32(
        5000, OTHER_GROUPS, at_least=5000, at_most=15000, broker="group.share.heartbeat.interval.ms", acted_on=False
    )
    share_assignment_interval_ms: int = int32(
        1000, OTHER_GROUPS, at_most=15000, broker="group.share.assignment.interval.ms", acted_on=False
    )
    share_record_lock_duration_ms: int = int32(
        30000,
        OTHER_GROUPS,
        at_least=15000,
        at_most=60000,
        broker="group.share.record.lock.duration.ms",
        acted_on=False,
    )
    share_delivery_count_limit: int = int32(
        5, OTHER_GROUPS, at_least=2, at_most=10, broker="group.share.delivery.count.limit", acted_on=False
    )
    share_partition_max_record_locks: int = int32(
        2000, OTHER_GROUPS, at_least=100, at_most=4000, broker="group.share.partition.max.record.locks", acted_on=False
    )
    share_auto_offset_reset: str = text("latest", OTHER_GROUPS, acted_on=False)
    share_isolation_level: str = text(
        "read_uncommitted", OTHER_GROUPS, one_of=("read_committed", "read_uncommitted"), acted_on=False
    )
    share_renew_acknowledge_enable: bool = boolean(True, OTHER_GROUPS, acted_on=False)
    streams_session_timeout_ms: int = int32(
        45000, OTHER_GROUPS, at_least=45000, at_most=60000, broker="group.streams.session.timeout.ms", acted_on=False
    )
    streams_heartbeat_interval_ms: int = int32(
        5000, OTHER_GROUPS, at_least=5000, at_most=15000, broker="group.streams.heartbeat.interval.ms", acted_on=False
    )
    streams_assignment_interval_ms: int = int32(
        1000, OTHER_GROUPS, at_most=15000, broker="group.streams.assignment.interval.ms", acted_on=False
    )
    streams_initial_rebalance_delay_ms: int = int32(
        3000, OTHER_GROUPS, broker="group.streams.initial.rebalance.delay.ms", acted_on=False
    )
    streams_num_standby_replicas: int = int32(
        0, OTHER_GROUPS, at_most=2, broker="group.streams.num.standby.replicas", acted_on=False
    )


GROUP_OPTIONS: Final = {option.key: option for option in options_of(GroupConfig)}

_RESET: Final = re.compile(
    r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def group_config_problem(own: Mapping[str, str]) -> str:
    """Return the reason why these cannot be a group's configs (INVALID_CONFIG), or an empty string."""
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
    """Return every config of a group as DescribeConfigs shows it: the group's own value, then the default."""
    entries = []
    for key, option in GROUP_OPTIONS.items():
        default = (option.broker or key, value_text(option.default), DEFAULT_CONFIG)
        synonyms = ((key, own[key], GROUP_CONFIG), default) if key in own else (default,)
        _, value, source = synonyms[0]
        entries.append(ConfigEntry(key, value, source, option.kind, False, option.described, synonyms))
    return entries
