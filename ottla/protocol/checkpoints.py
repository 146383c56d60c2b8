"""The small text files of a log directory: offset checkpoints, leader epochs, ids. pure frozen

Source: Kafka's `CheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`, `PropertiesUtils`. Malformed text
raises ProtocolError.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import ZERO_UUID, TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
PULLED: Final = "pull.json"
# Suffixes of partition directories that are no longer in use: to be removed, or to be kept.
DELETE, STRAY = "delete", "stray"

UNSYNCED_CHECKPOINTS: Final = (HIGH_WATERMARKS, CLEANER_OFFSETS)
"""Checkpoints that a start does not need. They are written without a sync, so a power loss may tear them."""
PUT_BACK: Final = "put back a copy of the file, or move it away: the next start then takes 0 for each partition"
NO_SUCH_OFFSET: Final = "no log begins at the offset of this name: move the file away, or give it its name back"
LAST_BASE_OFFSET: Final = 2**63 - 1 - 2**31
"""The largest offset that a segment may begin at: it spans 2^31 offsets, all of them below 2^63."""
LAST_INT: Final = 2**31 - 1
"""The largest partition number, leader epoch and node id."""
_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}")

# Only the existence of the file counts; the broker epoch is for brokers that register with a controller.
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'


class OffsetCheckpointFile:
    """A checkpoint with an offset for each partition of a log directory (like `recovery-point-offset-checkpoint`).

    The lines are kept encoded. If few of thousands of partitions change, encoding the file costs little more than
    joining the lines.
    """

    def __init__(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._lines: dict[TopicPartition, bytes] = {}
        for key, offset in (offsets or {}).items():
            self[key] = offset

    def __len__(self) -> int:
        return len(self._offsets)

    def __setitem__(self, key: TopicPartition, offset: int) -> None:
        if self._offsets.get(key) != offset:
            self._offsets[key] = offset
            self._lines[key] = b"%b %d %d\n" % (key[0].encode(), key[1], offset)

    def get(self, key: TopicPartition, default: int) -> int:
        """Return the offset of a partition, or `default`."""
        return self._offsets.get(key, default)

    def forget(self, key: TopicPartition) -> int:
        """Remove a partition; return its offset, or 0."""
        self._lines.pop(key, None)
        return self._offsets.pop(key, 0)

    def content(self) -> bytes:
        """Return the content of the checkpoint file."""
        return _encode(self._lines.values())


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of a checkpoint with one offset per partition."""
    return OffsetCheckpointFile(offsets).content()


def decode_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Return the offset of each partition in a checkpoint. A negative one counts as 0 for its readers, as in Kafka."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in _decode(content, 3):
        offsets[topic, _number(partition, LAST_INT)] = _number(offset, LAST_BASE_OFFSET)
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Return the content of `leader-epoch-checkpoint` for ascending (epoch, start offset)."""
    return _encode([b"%d %d\n" % entry for entry in epochs])


def decode_epochs(content: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs of a leader epoch checkpoint."""
    return [(_number(epoch, LAST_INT, 0), _number(start, LAST_BASE_OFFSET, 0)) for epoch, start in _decode(content, 2)]


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_id(topic_id)}".encode()


def decode_partition_metadata(content: bytes) -> bytes:
    """Return the topic id (16 bytes) of a partition directory."""
    lines = (line.partition(":") for line in _text(content).splitlines() if line.strip())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ProtocolError(f"{PARTITION_METADATA} holds neither version 0 nor a topic id: {content[:80]!r}")
    topic_id = decode_id(fields["topic_id"])
    if topic_id == ZERO_UUID:
        raise ProtocolError(f"{PARTITION_METADATA} holds the zero topic id")
    return topic_id


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def encode_id(identity: bytes) -> str:
    """Return 16 bytes as Kafka prints a Uuid: base64url without padding, 22 characters."""
    return urlsafe_b64encode(identity).rstrip(b"=").decode()


def decode_id(text: str) -> bytes:
    try:
        identity = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        identity = b""
    if len(identity) != 16:
        raise ProtocolError(f"{text!r} is not a 22-character base64url id")
    return identity


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return (topic, partition) of a directory name; None for a directory that is deleted, moving or no partition."""
    found = _DIRECTORY.fullmatch(name)
    if found is None or int(found[2]) > LAST_INT:
        return None
    return found[1], int(found[2])


def name_with_suffix(topic: str, index: int, identity: bytes, suffix: str) -> str:
    """Return `<topic>-<index>.<32 hex>-<suffix>` (DELETE, STRAY), with the topic cut to stay within 255 characters."""
    tail = f"-{index}.{identity.hex()}-{suffix}"
    return topic[: 255 - len(tail)] + tail


def is_delete_directory(name: str) -> bool:
    """Return whether a directory was renamed for removal."""
    return name.endswith(f"-{DELETE}")


def _encode(lines: Collection[bytes]) -> bytes:
    return b"0\n%d\n" % len(lines) + b"".join(lines)


def _decode(content: bytes, width: int) -> list[list[str]]:
    lines = _text(content).splitlines()
    if not lines:
        return []
    if lines[0].strip() != "0" or len(lines) < 2:
        raise ProtocolError(f"checkpoint of unknown version {lines[0][:20]!r}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != _number(lines[1], LAST_INT, 0):
        raise ProtocolError(f"checkpoint announces {lines[1]} entries and holds {len(rows)}")
    for row in rows:
        if len(row) != width:
            raise ProtocolError(f"checkpoint entry of {len(row)} fields instead of {width}: {' '.join(row)[:80]!r}")
    return rows


def _number(text: str, most: int, least: int = -(2**63)) -> int:
    """Return a number that Java reads too; a blank may follow it."""
    if not _NUMBER.fullmatch(text.strip()):
        raise ProtocolError(f"{text[:40]!r} is not a number")
    if not least <= int(text) <= most:
        raise ProtocolError(f"{int(text)} is not between {least} and {most}")
    return int(text)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ProtocolError("text file is not UTF-8") from None
