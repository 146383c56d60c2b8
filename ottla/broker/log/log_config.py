"""Settings of logs. pure"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ottla.broker.config import Config, TopicConfig, topic_values

PRODUCER_COMPRESSION: Final = "producer"
MOST_INDEX_INTERVAL_BYTES: Final = 256 * 1024
"""The largest index interval: a lookup walks over the batches between two index entries, 4,000 of them at most."""
_DEFAULT: Final = Config()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(TopicConfig):
    """Settings of one log, immutable; a change replaces the whole object (`UnifiedLog.config`). They are the configs of
    the log's topic, two options of the broker, and values derived from these.

    Source: Kafka's class of this name.
    """

    producer_id_expiration_ms: int = _DEFAULT.producer_id_expiration_ms
    transaction_sequence_reuse_refuse: bool = _DEFAULT.transaction_sequence_reuse_refuse
    # Records below are not needed: a power loss may keep the deletion of some segments there and undo others.
    needed_from_offset: int = 0
    log_append_time: bool = field(init=False)
    cleanup_compact: bool = field(init=False)
    cleanup_delete: bool = field(init=False)
    # Level of the codec in `compression_type`; None: the default of the codec.
    compression_level: int | None = field(init=False)

    def __post_init__(self) -> None:
        derived = {
            "log_append_time": self.message_timestamp_type == "LogAppendTime",
            "cleanup_compact": "compact" in self.cleanup_policy,
            "cleanup_delete": "delete" in self.cleanup_policy,
            "compression_level": self._level(),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)  # the object is frozen after this

    def _level(self) -> int | None:
        match self.compression_type:
            case "gzip":
                return int(self.compression_gzip_level) if self.compression_gzip_level != "-1" else None
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None


def log_config(config: Config, own: Mapping[str, str]) -> LogConfig:
    """Return the settings of the logs of a topic that has its `own` configs."""
    values = topic_values(config, own)
    values["index_interval_bytes"] = min(values["index_interval_bytes"], MOST_INDEX_INTERVAL_BYTES)
    return LogConfig(
        **values,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        transaction_sequence_reuse_refuse=config.transaction_sequence_reuse_refuse,
    )


class LogConfigs:
    """The settings of logs: topics with equal configs share them."""

    def __init__(self) -> None:
        self._config: Config | None = None
        self._of: Callable[[tuple[tuple[str, str], ...]], LogConfig]

    def of(self, config: Config, own: Mapping[str, str]) -> LogConfig:
        """Return the result of `log_config`."""
        if config is not self._config:
            self._config = config
            self._of = lru_cache(maxsize=64)(lambda items: log_config(config, dict(items)))
        return self._of(tuple(own.items()))
