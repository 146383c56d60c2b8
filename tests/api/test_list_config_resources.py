"""ListConfigResources: names of topics, brokers and groups with configs."""

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from tests.api.callers import GROUP, LEDGER, three_brokers


def list_configs(broker, *kinds):
    reply = broker.call(K.LIST_CONFIG_RESOURCES, 1, resource_types=[*kinds])
    return E(reply.error_code), [(row.resource_type, row.resource_name) for row in reply.config_resources]


def test_resources_of_the_asked_types_are_listed_each_once():
    cluster = three_brokers()
    config = {"name": "consumer.session.timeout.ms", "value": "50000", "config_operation": 0}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUP, "configs": [config]}
    cluster.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    topics = [(TOPIC_RESOURCE, name) for name in (LEDGER, "__consumer_offsets", "__transaction_state")]
    assert list_configs(cluster, TOPIC_RESOURCE, TOPIC_RESOURCE) == (E.NONE, topics)
    brokers = [(kind, str(node_id)) for kind in (BROKER_LOGGER_RESOURCE, BROKER_RESOURCE) for node_id in (1, 2, 3)]
    assert list_configs(cluster) == (E.NONE, [(GROUP_RESOURCE, GROUP), *brokers, *topics])


def test_stopped_brokers_are_listed():
    cluster = three_brokers()
    cluster.complete(cluster.assembly.stop_broker(1))
    _, rows = list_configs(cluster.ask_broker(2), BROKER_RESOURCE)
    assert {name for _, name in rows} == {"1", "2", "3"}
