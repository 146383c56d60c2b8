"""AlterConfigs: what the broker's configs change in logs that inherit them."""

import pytest

from ottla.broker import assembly
from ottla.broker.log.log_config import LogConfig
from ottla.broker.turns import SHARE_US
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.crash.script import Script
from ottla.testkit.metadata import create_topic
from ottla.testkit.simulation import wire


def test_broker_configs_give_a_topic_that_was_made_again_nothing_of_the_one_before(begin_life, monkeypatch):
    life = begin_life(flushing=False)
    cluster = life.assembly.broker.cluster
    cluster.metadata_log.partition.log.config = LogConfig()
    create_topic(cluster, "scratch", 1, {"retention.ms": "1234"})
    assert cluster.partition("scratch", 0).log.config.retention_ms == 1234
    with monkeypatch.context() as slow:
        slow.setattr(assembly, "CONFIGURE_US", SHARE_US)
        walk = life.assembly._reconfigure()
        assert walk.send(None) is not None, "it rests"
    request = codec.request_class(ApiKey.DELETE_TOPICS)
    life.call(wire.Ask(ApiKey.DELETE_TOPICS, 4, request(version=4, topic_names=["scratch"], timeout_ms=1000)))
    Script.on(life).make_topic(("scratch", 1))
    retention_ms = cluster.partition("scratch", 0).log.config.retention_ms
    with pytest.raises(StopIteration):
        walk.send(None)
    assert cluster.partition("scratch", 0).log.config.retention_ms == retention_ms != 1234
