"""`meta.properties`: the node and the cluster that a log directory belongs to. shell

Source: `MetaProperties`, `MetaPropertiesEnsemble` of Kafka 4.3.1.
"""

from logging import getLogger
from typing import Final, NamedTuple

from ottla.broker.config import Config
from ottla.broker.config.option import DEFAULT
from ottla.broker.ports.disk import Disk
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.protocol.java.properties import read_properties

_log = getLogger(__name__)


# The longest string that the protocol can hold.
_LONGEST_CLUSTER_ID: Final = 2**15 - 1


class LogDirectoryError(Exception):
    """The log directory cannot be used; the message is for the operator."""


class MetaProperties(NamedTuple):
    """Node id, cluster id and directory id of a log directory; the last is "" if an old Kafka created it."""

    node_id: int
    cluster_id: str
    directory_id: str


def read_or_make(disk: Disk, config: Config) -> MetaProperties:
    """Read `meta.properties`, or create it in a new directory. Raises LogDirectoryError for another node or cluster."""
    path = f"{config.log_dirs}/{checkpoints.META_PROPERTIES}"
    if not disk.exists(path):
        made = MetaProperties(config.node_id, config.cluster_id or _new_id(disk), _new_id(disk))
        properties = {
            "version": "1",
            "cluster.id": made.cluster_id,
            "node.id": str(made.node_id),
            "directory.id": made.directory_id,
        }
        disk.write_atomically(path, checkpoints.encode_properties(properties))
        return made
    try:
        found = read_properties(disk.read(path))
    except ProtocolError as broken:
        raise LogDirectoryError(f"{path}: {broken}") from None
    directory_id = found.get("directory.id", "")
    if directory_id:
        _check_directory_id(directory_id, path)
    node_id = _node_id(found.get("node.id", found.get("broker.id", "")), path, config)
    cluster_id = found.get("cluster.id")
    if cluster_id is None:
        raise LogDirectoryError(
            f"{path} has no line cluster.id: add cluster.id=..., with the id of its other brokers, or any text "
            "without blanks"
        )
    if len(cluster_id.encode()) > _LONGEST_CLUSTER_ID:
        raise LogDirectoryError(
            f"{path}: cluster.id is longer than {_LONGEST_CLUSTER_ID} bytes: put the line back as it was"
        )
    if config.cluster_id not in ("", cluster_id):
        raise LogDirectoryError(f"{path} belongs to cluster {cluster_id}, not to {config.cluster_id}")
    return MetaProperties(node_id, cluster_id, directory_id)


def _check_directory_id(directory_id: str, path: str) -> None:
    try:
        checkpoints.decode_id(directory_id)
    except ProtocolError as broken:
        raise LogDirectoryError(f"{path}: directory.id {broken}: put the line back as it was, or remove it") from None


def _node_id(found: str, path: str, config: Config) -> int:
    """Return the node id of a directory. Raises LogDirectoryError if the operator has set another one."""
    if found == str(config.node_id):
        return config.node_id
    is_number = found.isascii() and found.isdigit() and len(found) <= 10 and int(found) <= checkpoints.LAST_INT
    if found and not is_number:
        raise LogDirectoryError(
            f"{path} names node {found[:40]}, and a node id is a number from 0 to {checkpoints.LAST_INT}: "
            "put the line back as it was"
        )
    if config.origin("node.id") != DEFAULT or not found:
        raise LogDirectoryError(
            f"{path} belongs to node {found or '(none)'}, this broker is {config.node_id}: start it without "
            "node.id to take the id of the directory"
        )
    _log.info("This broker is node %d, as in %s", int(found), path)
    return int(found)


def _new_id(disk: Disk) -> str:
    """Return a random id without a leading dash, which command lines would take for an option (`Uuid.randomUuid`)."""
    while (text := checkpoints.encode_id(disk.random_id())).startswith("-"):
        pass
    return text
