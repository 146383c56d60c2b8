"""Settings of the logs of topics: those with equal configs share them."""

from dataclasses import replace

from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfigs, log_config

COMPACT = {"cleanup.policy": "compact"}


def test_topics_with_equal_configs_share_their_settings_until_the_broker_has_others():
    configs, before = LogConfigs(), Config()
    after = replace(before, log_roll_ms=1000)
    shared = configs.of(before, COMPACT)
    assert shared == log_config(before, COMPACT)
    assert configs.of(before, dict(COMPACT)) is shared
    assert configs.of(before, {}) == log_config(before, {}) != shared
    assert configs.of(after, COMPACT) == log_config(after, COMPACT) != shared
