"""AlterConfigs: a resource gets exactly these configs; changed broker configs take effect in logs that inherit them.

Errors are those of IncrementalAlterConfigs, whose tests have the rows.
"""

import pytest

from lab.crash.script import Script
from lab.metadata import create_topic
from ottla.broker import assembly
from ottla.broker.log.log_config import LogConfig
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.testkit.in_memory import wire
from tests.api.callers import LEDGER

VERSIONS = range(3)
TOPIC = 2


def replace(broker, version, *resources, validate_only=False):
    """Replace the configs of (name, {config: value}) each and return [(name, error)]."""
    rows = [
        {"resource_type": TOPIC, "resource_name": name}
        | {"configs": [{"name": key, "value": value} for key, value in given]}
        for name, given in resources
    ]
    reply = broker.call(ApiKey.ALTER_CONFIGS, version, resources=rows, validate_only=validate_only)
    assert all(bool(row.error_message) == bool(row.error_code) for row in reply.responses)
    return [(row.resource_name, E(row.error_code)) for row in reply.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_resource_has_what_is_named_and_nothing_else(broker, version):
    topic = broker.assembly.broker.cluster.topics
    replace(broker, version, (LEDGER, [("retention.ms", "7"), ("segment.ms", "9")]))
    assert replace(broker, version, (LEDGER, [("segment.ms", "8")]), validate_only=True) == [(LEDGER, E.NONE)]
    assert topic[LEDGER].configs == {"retention.ms": "7", "segment.ms": "9"}
    assert replace(broker, version, (LEDGER, [("segment.ms", "8")])) == [(LEDGER, E.NONE)]
    assert topic[LEDGER].configs == {"segment.ms": "8"}
    assert replace(broker, version, (LEDGER, [])) == [(LEDGER, E.NONE)]
    assert topic[LEDGER].configs == {}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([("retention.ms", "7"), ("retention.ms", "7")], E.INVALID_REQUEST),
        ([("retention.ms", "7"), ("segment.ms", None)], E.INVALID_REQUEST),
        ([("retention.ms", "7"), ("segment.ms", "soon")], E.INVALID_CONFIG),
    ],
    ids=["a config twice", "no value", "a bad value"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_of_it_or_nothing(broker, version, given, error):
    replace(broker, version, (LEDGER, [("segment.ms", "9")]))
    assert replace(broker, version, (LEDGER, given)) == [(LEDGER, error)]
    assert broker.assembly.broker.cluster.topics[LEDGER].configs == {"segment.ms": "9"}


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
    life.call(wire.Request(ApiKey.DELETE_TOPICS, 4, request(version=4, topic_names=["scratch"], timeout_ms=1000)))
    Script.on(life).make_topic(("scratch", 1))
    retention_ms = cluster.partition("scratch", 0).log.config.retention_ms
    with pytest.raises(StopIteration):
        walk.send(None)
    assert cluster.partition("scratch", 0).log.config.retention_ms == retention_ms != 1234
