"""Requirements of a `server.properties` for Apache Kafka to start on a directory that it did not write. pure

Source: `KafkaConfig`, `QuorumConfig`, `KafkaRaftServer.initializeLogDirs`, `TransactionLogConfig`,
`GroupCoordinatorConfig` of Kafka 4.3.1.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.config.listeners import parse_listeners

_PARTITION_COUNTS: Final = {
    TRANSACTION_STATE_TOPIC: ("transaction.state.log.num.partitions", 50),
    CONSUMER_OFFSETS_TOPIC: ("offsets.topic.num.partitions", 50),
}
_ONE_BROKER: Final = {
    "offsets.topic.replication.factor": ("3", "the group coordinator"),
    "transaction.state.log.replication.factor": ("3", "the transaction coordinator"),
    "transaction.state.log.min.isr": ("2", "the transaction coordinator"),
}
_ANYWHERE: Final = ("", "0.0.0.0", "::")


class Endpoint(NamedTuple):
    """The address of the controller in the voters' record."""

    listener: str
    host: str
    port: int


def config_problems(
    properties: Mapping[str, str], node_id: int, log_dirs_match: bool, partition_counts: Mapping[str, int]
) -> list[str]:
    """Return the reasons why Kafka would not start with these properties, or would serve other data. One sentence each.

    `log_dirs_match` is true if `log.dirs` is exactly this directory. `partition_counts` is by topic.
    """
    problems = []
    given = properties.get("node.id", properties.get("broker.id", ""))
    if given != str(node_id):
        problems.append(f"node.id is {given or 'not set'}: set node.id={node_id}")
    roles = {role.strip() for role in properties.get("process.roles", "").split(",")}
    if roles != {"broker", "controller"}:
        problems.append("process.roles must be broker,controller: the one node is both")
    if not log_dirs_match:
        problems.append(
            f"log.dirs is {properties.get('log.dirs', properties.get('log.dir', 'not set'))}: it must be this directory"
        )
    if not properties.get("controller.listener.names"):
        problems.append("controller.listener.names is not set")
    if not properties.get("controller.quorum.voters") and not properties.get("controller.quorum.bootstrap.servers"):
        problems.append("controller.quorum.bootstrap.servers is not set")
    for topic, (key, default) in _PARTITION_COUNTS.items():
        count = partition_counts.get(topic)
        if count is not None and properties.get(key, str(default)) != str(count):
            problems.append(
                f"{key} is {properties.get(key, default)}: {topic} has {count} partitions, set {key}={count}"
            )
    if not problems and _is_dynamic(properties):
        try:
            controller_endpoint(properties)
        except ValueError as problem:
            problems.append(str(problem))
    return problems


def config_warnings(properties: Mapping[str, str], partition_counts: Mapping[str, int]) -> list[str]:
    """Return warnings about settings that fail on one broker, though Kafka starts."""
    lacking = [topic for topic in _PARTITION_COUNTS if topic not in partition_counts]
    if not lacking:
        return []
    return [
        f"{key} is {properties.get(key, default)}: with one broker {who} works with {key}=1 only"
        for key, (default, who) in _ONE_BROKER.items()
        if properties.get(key, default) != "1"
    ]


def controller_endpoint(properties: Mapping[str, str]) -> Endpoint | None:
    """Return the address of the one voter; None if the properties name the voters. ValueError if it is missing."""
    if not _is_dynamic(properties):
        return None
    name = properties.get("controller.listener.names", "").split(",")[0].strip().upper()
    for key in ("advertised.listeners", "listeners"):
        for listener in parse_listeners(properties.get(key, "")):
            if listener.name == name and listener.host not in _ANYWHERE:
                return Endpoint(name, listener.host, listener.port)
    servers = properties["controller.quorum.bootstrap.servers"].split(",")[0]
    host, _, port = servers.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"controller.quorum.bootstrap.servers={servers} is not HOST:PORT")
    return Endpoint(name, host.strip("[]"), int(port))


def _is_dynamic(properties: Mapping[str, str]) -> bool:
    """Return whether the voters are in the metadata log (KIP-853) and not in `controller.quorum.voters`."""
    return not properties.get("controller.quorum.voters")
