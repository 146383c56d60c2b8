"""Conversion of a data directory from Ottla's form to Apache Kafka's, step by step. shell

Ottla can serve the directory without loss after each step: `bootstrap.checkpoint` is complete before the metadata log
is renamed, and Ottla reads it if no other metadata exists. Replaced files are kept under another name.
"""

from typing import Final, NamedTuple

from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import BOOTSTRAP, QUORUM_STATE, read_metadata
from ottla.broker.cluster.kraft_bootstrap import bootstrap_records
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.ports.disk import Disk
from ottla.cli.graduate.config import Endpoint
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.kraft_records import (
    SnapshotId,
    Voter,
    build_snapshot,
    kraft_version,
    kraft_voters,
    snapshot_name,
)
from ottla.protocol.internal_topics.metadata_records import encode_metadata_record, parse_uuid
from ottla.protocol.java.properties import read_properties

METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
KEPT: Final = "before-graduation"
_CHECKPOINTS: Final = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)


class CannotGraduate(Exception):
    """The directory cannot graduate and is unchanged. The message has the reason and the remedy, for the operator."""


class Found(NamedTuple):
    """A directory that can graduate. `kafka_s` is true if Kafka's own quorum wrote its metadata log."""

    image: MetadataImage
    identity: dict[str, str]
    kafka_s: bool


def read_state(disk: Disk, directory: str) -> Found:
    """Read the state of the directory. The caller holds the lock. Raises CannotGraduate."""
    if not disk.exists(f"{directory}/{checkpoints.CLEAN_SHUTDOWN}"):
        raise CannotGraduate(
            f"{directory} was not stopped cleanly: start `ottla serve` on it, stop it with SIGTERM, and try again"
        )
    image = MetadataImage()
    try:
        identity = read_properties(disk.read(f"{directory}/{checkpoints.META_PROPERTIES}"))
        kafka_s = _read_image(disk, directory, image)
        for name in _CHECKPOINTS:
            if disk.exists(path := f"{directory}/{name}"):
                checkpoints.decode_offsets(disk.read(path))
    except FileNotFoundError as missing:
        raise CannotGraduate(f"{directory} is no data directory: {missing.filename} is missing") from missing
    except (ProtocolError, LookupError) as damage:
        raise CannotGraduate(f"the metadata of {directory} cannot be read: {damage}") from damage
    if "cluster.id" not in identity:
        raise CannotGraduate(f"{directory}/{checkpoints.META_PROPERTIES} has no line cluster.id")
    if not image.features:
        raise CannotGraduate(f"{directory} has no metadata: start `ottla serve` on it once and stop it with SIGTERM")
    return Found(image, identity, kafka_s)


def _read_image(disk: Disk, directory: str, image: MetadataImage) -> bool:
    """Read the metadata log, or the checkpoint after a graduation. Return whether Kafka's own quorum wrote the log."""
    place = f"{directory}/{METADATA_DIRECTORY}"
    names = disk.list(place) if disk.exists(place) else []
    files = {name: disk.read(f"{place}/{name}") for name in names if name.endswith((".log", ".checkpoint"))}
    read_metadata(files, image)
    if not image.features and disk.exists(f"{directory}/{BOOTSTRAP}"):
        content = disk.read(f"{directory}/{BOOTSTRAP}")
        read_metadata({snapshot_name(SnapshotId(0, 0)): content}, image)
    return QUORUM_STATE in names


def elsewhere(found: Found, disk: Disk, directory: str) -> list[str]:
    """Return the partitions whose only replicas are on other nodes or in other log directories."""
    directory_id = _directory_id(found)
    node_id = int(found.identity.get("node.id", found.identity.get("broker.id", "-1")))
    here = set(disk.list(directory))
    return [
        name
        for topic in found.image.topics.values()
        for index, place in enumerate(topic.registrations)
        if not place.may_be_at(node_id, directory_id) and (name := f"{topic.name}-{index}") not in here
    ]


def is_at_home(found: Found, node_id: int) -> bool:
    """Return whether Kafka could continue with this metadata log, because this node's own quorum wrote it."""
    return (
        found.kafka_s
        and found.identity.get("node.id") == str(node_id)
        and all(place.replicas == (node_id,) for topic in found.image.topics.values() for place in topic.registrations)
    )


class Graduation:
    """The steps of a graduation. `done` has a line for each step that changed something."""

    def __init__(self, disk: Disk, directory: str, found: Found, node_id: int, metadata_version: int) -> None:
        self.done: list[str] = []
        self.undo: list[str] = []
        self._disk = disk
        self._directory = directory
        self._found = found
        self._node_id = node_id
        self._directory_id = _directory_id(found) or disk.random_id()
        self.records = bootstrap_records(found.image, node_id, self._directory_id, metadata_version)

    def run(self, endpoint: Endpoint | None, now_ms: int) -> None:
        """Run all steps. `endpoint` is the listener of the controller, None if the properties name the voters."""
        values = [encode_metadata_record(record) for record in self.records]
        bootstrap = build_snapshot([], values, now_ms)
        self._replace(BOOTSTRAP, bootstrap)
        self._replace(checkpoints.META_PROPERTIES, self._properties())
        for name in _CHECKPOINTS:
            self._forget_metadata_log(name)
        self._set_metadata_log_aside()
        if endpoint is not None:
            self._make_quorum(endpoint, now_ms)

    def _properties(self) -> bytes:
        old = self._found.identity
        expected = {
            "version": "1",
            "cluster.id": old["cluster.id"],
            "node.id": str(self._node_id),
            "directory.id": checkpoints.encode_id(self._directory_id),
        }
        path = self._path(checkpoints.META_PROPERTIES)
        return self._disk.read(path) if old == expected else checkpoints.encode_properties(expected)

    def _replace(self, name: str, content: bytes) -> None:
        path = self._path(name)
        if self._disk.exists(path):
            old = self._disk.read(path)
            if old == content:
                return
            kept = self._free_name(name)
            self._disk.write_atomically(self._path(kept), old)
            self.undo.append(f"mv {kept} {name}")
            self.done.append(f"kept {name} as {kept}")
        else:
            self.undo.append(f"rm {name}")
        self._disk.write_atomically(path, content)
        self.done.append(f"wrote {name}")

    def _free_name(self, name: str) -> str:
        number = 1
        while self._disk.exists(self._path(kept := f"{name}.{KEPT}-{number}")):
            number += 1
        return kept

    def _forget_metadata_log(self, name: str) -> None:
        """Remove the checkpoint entry of the old metadata log: with this recovery point, a new log seems damaged."""
        path = self._path(name)
        if not self._disk.exists(path):
            return
        offsets = checkpoints.decode_offsets(self._disk.read(path))
        if offsets.pop((METADATA_TOPIC, 0), None) is not None:
            self._disk.write_atomically(path, checkpoints.encode_offsets(offsets))

    def _set_metadata_log_aside(self) -> None:
        place = self._path(METADATA_DIRECTORY)
        if not self._disk.exists(place):
            return
        # The only kind of name that Kafka ignores in a log directory (`LogManager.loadLogs`).
        stray = checkpoints.name_with_suffix(METADATA_TOPIC, 0, self._disk.random_id(), "stray")
        self._disk.rename(place, self._path(stray))
        self._disk.sync_dir(self._directory)
        self.undo[:0] = [f"rm -r {METADATA_DIRECTORY}", f"mv {stray} {METADATA_DIRECTORY}"]
        self.done.append(f"kept {METADATA_DIRECTORY} as {stray}")

    def _make_quorum(self, endpoint: Endpoint, now_ms: int) -> None:
        """Write the files of `kafka-storage format --standalone`: a quorum of this one voter (KIP-853)."""
        name = snapshot_name(SnapshotId(0, 0))
        voter = Voter(self._node_id, self._directory_id, *endpoint)
        content = build_snapshot([kraft_version(), kraft_voters(voter)], [], now_ms)
        self._disk.make_dir(self._path(METADATA_DIRECTORY))
        self._disk.write_atomically(f"{self._path(METADATA_DIRECTORY)}/{name}", content)
        self._disk.sync_dir(self._directory)
        self.done.append(f"wrote {METADATA_DIRECTORY}/{name}")

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _directory_id(found: Found) -> bytes:
    text = found.identity.get("directory.id", "")
    return parse_uuid(text) if text else b""
