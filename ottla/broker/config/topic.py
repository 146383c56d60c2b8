"""The configs of a topic: each field of `TopicConfig` is one. pure

Names, ranges and broker synonyms are Kafka's (`LogConfig` and `ServerTopicConfigSynonyms` of 4.3.1).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.config.broker import OPTION_OF_KEY, Config
from ottla.broker.config.option import INT64_MAX, START, Option, boolean, int64, items, option_field, options_of


def _from_broker(key: str, meaning: str = "") -> Any:
    """Make a field an option with the type, range and value of the broker's option `key`, and its meaning if no other
    is given."""
    option = OPTION_OF_KEY[key]
    return option_field(
        dataclasses.replace(option, meaning=meaning or option.meaning, also={}, broker=key, scope=START)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configs of a topic, in Kafka's order. `LogConfig` has the values in force for one topic."""

    segment_bytes: int = _from_broker("log.segment.bytes", "The size at which a segment is closed.")
    segment_ms: int = _from_broker("log.roll.ms", "The age at which a segment is closed.")
    segment_jitter_ms: int = _from_broker("log.roll.jitter.ms")
    segment_index_bytes: int = _from_broker("log.index.size.max.bytes")
    flush_messages: int = _from_broker("log.flush.interval.messages", "The records after which the log is synced.")
    flush_ms: int = int64(INT64_MAX, "The time after which the log is synced.", acted_on=False)
    retention_bytes: int = _from_broker(
        "log.retention.bytes", "The size of the log above which segments are deleted; -1 keeps them."
    )
    retention_ms: int = _from_broker("log.retention.ms")
    max_message_bytes: int = _from_broker("message.max.bytes")
    index_interval_bytes: int = _from_broker("log.index.interval.bytes")
    delete_retention_ms: int = _from_broker("log.cleaner.delete.retention.ms")
    min_compaction_lag_ms: int = _from_broker("log.cleaner.min.compaction.lag.ms")
    max_compaction_lag_ms: int = _from_broker("log.cleaner.max.compaction.lag.ms")
    file_delete_delay_ms: int = _from_broker(
        "log.segment.delete.delay.ms", "The time that files of deleted segments stay on disk."
    )
    min_cleanable_dirty_ratio: float = _from_broker("log.cleaner.min.cleanable.ratio")
    cleanup_policy: str = _from_broker("log.cleanup.policy")
    unclean_leader_election_enable: bool = boolean(False, "Ottla has no elections.", acted_on=False)
    min_insync_replicas: int = _from_broker("min.insync.replicas")
    compression_type: str = _from_broker("compression.type")
    compression_gzip_level: str = _from_broker("compression.gzip.level")
    compression_lz4_level: int = _from_broker("compression.lz4.level")
    compression_zstd_level: int = _from_broker(
        "compression.zstd.level",
        "The compression level of zstd. For batches of more than 2 MB it is lowered to a level that needs at most "
        "48 MiB of memory, such as 18 instead of 22.",
    )
    preallocate: bool = boolean(False, "Whether segments are created at full size.", acted_on=False)
    message_timestamp_type: str = _from_broker("log.message.timestamp.type")
    message_timestamp_before_max_ms: int = _from_broker("log.message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _from_broker("log.message.timestamp.after.max.ms")
    leader_replication_throttled_replicas: str = items("", "Ottla has no replication.", acted_on=False)
    follower_replication_throttled_replicas: str = items("", "Ottla has no replication.", acted_on=False)


TOPIC_OPTIONS: Final[tuple[Option, ...]] = options_of(TopicConfig)

_BY_KEY: Final = {option.key: option for option in TOPIC_OPTIONS}


def topic_values(config: Config, own: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each field of `TopicConfig` for a topic whose `own` configs were checked with
    `topic_config_problem`: the topic's value, the broker's, or the default.

    Unknown keys are ignored: a log directory of Kafka's may hold configs of features that Ottla lacks.
    """
    values = {
        option.attribute: getattr(config, OPTION_OF_KEY[option.broker].attribute) if option.broker else option.default
        for option in TOPIC_OPTIONS
    }
    return values | {_BY_KEY[key].attribute: _BY_KEY[key].parse(text) for key, text in own.items() if key in _BY_KEY}


def topic_config_problem(own: Mapping[str, str | None]) -> str:
    """Return the reason why these configs cannot be a topic's (INVALID_CONFIG), or an empty string."""
    for key, given in own.items():
        option = _BY_KEY.get(key)
        if option is None:
            return f"Unknown topic config name: {key}"
        if given is None:
            return f"Null value not supported for topic configs: {key}"
        problem = option.detect_invalid(given)
        if problem:
            return problem
    values = topic_values(Config(), {key: text for key, text in own.items() if text is not None})
    least_ms, most_ms = values["min_compaction_lag_ms"], values["max_compaction_lag_ms"]
    if least_ms > most_ms:
        return f"conflict topic config setting min.compaction.lag.ms ({least_ms}) > max.compaction.lag.ms ({most_ms})"
    return ""
