"""The configs of a topic: each field of `TopicConfig` is one. pure

Names, ranges and broker synonyms are Kafka's (`LogConfig` and `ServerTopicConfigSynonyms` of 4.3.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.config.broker import BROKER_OPTIONS, CODECS, GZIP_LEVELS, Config
from ottla.broker.config.dynamic import broker_synonyms
from ottla.broker.config.entry import DEFAULT_CONFIG, TOPIC_CONFIG, ConfigEntry, Synonym
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

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configs in force for one topic; `topic_config` merges them from the broker's and the topic's own."""

    segment_bytes: int = int32(
        1073741824, "The size at which a segment is closed.", at_least=1048576, broker="log.segment.bytes"
    )
    segment_ms: int = int64(7 * _DAY_MS, "The age at which a segment is closed.", at_least=1, broker="log.roll.ms")
    segment_index_bytes: int = int32(
        10485760, "The largest size of an index file.", at_least=4, broker="log.index.size.max.bytes"
    )
    index_interval_bytes: int = int32(
        4096, "The bytes of log for each entry of the offset index.", broker="log.index.interval.bytes"
    )
    max_message_bytes: int = int32(1048588, "The largest record batch, as compressed.", broker="message.max.bytes")
    message_timestamp_type: str = text(
        "CreateTime",
        "The clock of record timestamps: the producer's (CreateTime) or the broker's.",
        one_of=("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = int64(
        INT64_MAX,
        "The most by which a record's time may be before the broker's.",
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = int64(
        3600000,
        "The most by which a record's time may be after the broker's.",
        broker="log.message.timestamp.after.max.ms",
    )
    file_delete_delay_ms: int = int64(
        60000, "The time that files of deleted segments stay on disk.", broker="log.segment.delete.delay.ms"
    )
    cleanup_policy: str = text(
        "delete",
        "What is done with old segments.",
        kind=Kind.LIST,
        one_of=("compact", "delete"),
        broker="log.cleanup.policy",
    )
    retention_ms: int = int64(
        7 * _DAY_MS, "The age at which a segment is deleted; -1 keeps it.", at_least=-1, broker="log.retention.ms"
    )
    retention_bytes: int = int64(
        -1,
        "The size of the log above which segments are deleted; -1 keeps them.",
        at_least=-(2**63),
        broker="log.retention.bytes",
    )
    delete_retention_ms: int = int64(
        _DAY_MS, "How long a compacted log keeps tombstones.", broker="log.cleaner.delete.retention.ms"
    )
    min_cleanable_dirty_ratio: float = ratio(
        0.5, "The dirty ratio from which on a log is compacted.", broker="log.cleaner.min.cleanable.ratio"
    )
    min_compaction_lag_ms: int = int64(
        0, "The age below which a record is not compacted.", broker="log.cleaner.min.compaction.lag.ms"
    )
    max_compaction_lag_ms: int = int64(
        INT64_MAX,
        "The age above which a record must be compacted.",
        at_least=1,
        broker="log.cleaner.max.compaction.lag.ms",
    )
    compression_type: str = text(
        "producer",
        "The codec of batches on disk; producer keeps the codec of the producer.",
        one_of=CODECS,
        broker="compression.type",
    )
    compression_gzip_level: str = text(
        "-1", "The compression level of gzip.", one_of=GZIP_LEVELS, kind=Kind.INT, broker="compression.gzip.level"
    )
    compression_lz4_level: int = int32(
        9, "The compression level of lz4.", at_least=1, at_most=17, broker="compression.lz4.level"
    )
    compression_zstd_level: int = int32(
        3,
        "The compression level of zstd. For batches of more than 2 MB it is lowered to a level that needs at most "
        "48 MiB of memory, such as 18 instead of 22.",
        at_least=-131072,
        at_most=22,
        broker="compression.zstd.level",
    )
    flush_messages: int = int64(
        INT64_MAX, "The records after which the log is synced.", at_least=1, broker="log.flush.interval.messages"
    )
    flush_ms: int = int64(INT64_MAX, "The time after which the log is synced.", acted_on=False)
    segment_jitter_ms: int = int64(
        0, "The longest random time by which a segment is closed earlier.", broker="log.roll.jitter.ms"
    )
    preallocate: bool = boolean(False, "Whether segments are created at full size.", acted_on=False)
    min_insync_replicas: int = int32(1, "The replicas that acks=all needs; Ottla has one.", at_least=1, acted_on=False)
    unclean_leader_election_enable: bool = boolean(False, "Ottla has no elections.", acted_on=False)
    leader_replication_throttled_replicas: str = text("", "Ottla has no replication.", kind=Kind.LIST, acted_on=False)
    follower_replication_throttled_replicas: str = text("", "Ottla has no replication.", kind=Kind.LIST, acted_on=False)


TOPIC_OPTIONS: Final[tuple[Option, ...]] = options_of(TopicConfig)

# Topic configs that Ottla keeps and shows, but does not act on.
NOT_ACTED_ON: Final = tuple(option.key for option in TOPIC_OPTIONS if not option.acted_on)

_BY_KEY: Final = {option.key: option for option in TOPIC_OPTIONS}
_BROKER_BY_KEY: Final = {option.key: option for option in BROKER_OPTIONS}


def _inherit(config: Config, option: Option) -> Any:
    """Return the value for a topic without an own one: the broker's value, or the default."""
    synonym = _BROKER_BY_KEY.get(option.broker)
    return getattr(config, synonym.attribute) if synonym else option.default


def topic_defaults(config: Config) -> dict[str, str]:
    """Return the value of each topic config on this broker for a topic that does not set it."""
    return {option.key: value_text(_inherit(config, option)) for option in TOPIC_OPTIONS}


def topic_config(config: Config, own: Mapping[str, str]) -> TopicConfig:
    """Return the configs in force for a topic whose `own` configs were checked with `topic_config_problem`.

    Unknown keys are ignored: a log directory of Kafka's may hold configs of features that Ottla lacks.
    """
    values = {option.attribute: _inherit(config, option) for option in TOPIC_OPTIONS}
    values |= {_BY_KEY[key].attribute: _BY_KEY[key].parse(text) for key, text in own.items() if key in _BY_KEY}
    return TopicConfig(**values)


def topic_config_problem(own: Mapping[str, str | None]) -> str:
    """Return the reason why these configs cannot be a topic's (INVALID_CONFIG), or an empty string."""
    for key, given in own.items():
        option = _BY_KEY.get(key)
        if option is None:
            return f"Unknown topic config name: {key}"
        if given is None:
            return f"Null value not supported for topic configs: {key}"
        try:
            option.parse(given)
        except ValueError:
            return f"Invalid value {given} for configuration {key}: must be {option.range}"
    lags = topic_config(Config(), {key: text for key, text in own.items() if text is not None})
    if lags.min_compaction_lag_ms > lags.max_compaction_lag_ms:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({lags.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({lags.max_compaction_lag_ms})"
        )
    return ""


def describe_topic(config: Config, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Yield every topic config as DescribeConfigs shows it: the topic's own value, then the broker's, then the
    default."""
    entries = []
    for option in TOPIC_OPTIONS:
        synonyms: list[Synonym] = [(option.key, own[option.key], TOPIC_CONFIG)] if option.key in own else []
        synonym = _BROKER_BY_KEY.get(option.broker)
        if synonym is not None:
            synonyms += broker_synonyms(config, synonym)
        else:
            synonyms.append((option.broker or option.key, value_text(option.default), DEFAULT_CONFIG))
        _, value, source = synonyms[0]
        entries.append(ConfigEntry(option.key, value, source, option.kind, False, option.described, tuple(synonyms)))
    return entries
