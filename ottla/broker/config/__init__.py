"""The only list of options, with Kafka's own names, and the loading of their values. pure"""

from ottla.broker.config.broker import BROKER_OPTIONS, Config
from ottla.broker.config.consumer_groups import ConsumerGroupTimeouts, out_of_bounds, timeouts_of
from ottla.broker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
)
from ottla.broker.config.dynamic import ConfigInForce
from ottla.broker.config.listeners import Listener
from ottla.broker.config.load import Loaded, from_environment, from_flags, from_properties, jaas_file_of, load_config
from ottla.broker.config.option import ConfigError, Kind, Option, Origin, Setting
from ottla.broker.config.topic import TOPIC_OPTIONS, TopicConfig, topic_config_problem, topic_values

__all__ = [
    "BROKER_OPTIONS",
    "TOPIC_OPTIONS",
    "Config",
    "ConfigEntry",
    "ConfigError",
    "ConfigInForce",
    "ConsumerGroupTimeouts",
    "Kind",
    "Listener",
    "Loaded",
    "Option",
    "Origin",
    "Setting",
    "TopicConfig",
    "describe_broker",
    "describe_cluster",
    "describe_group",
    "describe_topic",
    "from_environment",
    "from_flags",
    "from_properties",
    "jaas_file_of",
    "load_config",
    "out_of_bounds",
    "timeouts_of",
    "topic_config_problem",
    "topic_values",
]
