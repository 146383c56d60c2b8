"""What stands in a log directory: partitions, segments with their sizes, log starts. shell

A directory may be live: each file's size is taken once, here, and nothing beyond it is ever read. Layout:
`org.apache.kafka.storage.internals.log.LogFileUtils`, `UnifiedLog.parseTopicPartitionName`, `OffsetCheckpointFile`.
"""

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"

_SEGMENT = re.compile(r"(\d{20})\.log\Z")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot\Z")
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)\Z")


class UnreadableDirectory(Exception):
    """The directory cannot be listed or is not a log directory; the text says which and why."""


class SegmentFile(NamedTuple):
    """One `.log` file. `is_last`: it is the active segment, whose tail may be torn."""

    path: str
    base_offset: int
    size_bytes: int
    is_last: bool


class PartitionLog(NamedTuple):
    """One partition directory. A consumer may read from `log_start`; all below `recovery_point` was flushed."""

    topic: str
    partition: int
    path: str
    log_start: int
    recovery_point: int
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_internal(self) -> bool:
        return self.topic.startswith("__")


def local_path(given: str) -> str:
    """A path of the local file system from a plain path or a `file:` URL."""
    if given.startswith("file:"):
        return unquote(urlparse(given).path)
    if re.match(r"[a-z][a-z0-9+.-]+://", given):
        raise UnreadableDirectory(f"{given}: only local paths and file: URLs can be read")
    return given


def topic_patterns(given: str) -> tuple[str, ...]:
    """The globs of a comma-separated list such as `ledger,audit-*`."""
    return tuple(pattern.strip() for pattern in given.split(",") if pattern.strip())


def list_partitions(directory: str) -> list[PartitionLog]:
    """All partitions under `directory`, internal ones too, by topic and partition."""
    root = Path(local_path(directory))
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError as error:
        raise UnreadableDirectory(f"{root}: {error.strerror}") from error
    matches = [match for name in names if (match := _PARTITION.match(name)) and (root / name).is_dir()]
    if not matches and "meta.properties" not in names:
        raise UnreadableDirectory(f"{root}: not a log directory, no <topic>-<partition> in it")
    # Before the sizes: a running broker flushes what it has written, never what it has not.
    checkpoints = _checkpoint(root / LOG_START_CHECKPOINT), _checkpoint(root / RECOVERY_POINT_CHECKPOINT)
    logs = [_partition_log(root / match[0], match["topic"], int(match["partition"]), *checkpoints) for match in matches]
    return sorted((log for log in logs if log), key=lambda log: (log.topic, log.partition))


def select_topics(logs: Iterable[PartitionLog], patterns: tuple[str, ...]) -> list[PartitionLog]:
    """The partitions whose topic matches a pattern; without patterns those of every user topic (not `__*`)."""
    if not patterns:
        return [log for log in logs if not log.is_internal]
    return [log for log in logs if any(fnmatchcase(log.topic, pattern) for pattern in patterns)]


Checkpoint = dict[tuple[str, int], int]


def _partition_log(
    folder: Path, topic: str, partition: int, starts: Checkpoint, recovery_points: Checkpoint
) -> PartitionLog | None:
    """None if the directory vanished meanwhile (its topic was deleted)."""
    found: list[tuple[int, str]] = []
    snapshots: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if match := _SEGMENT.match(entry.name):
                    found.append((int(match[1]), entry.path))
                elif _SNAPSHOT.match(entry.name):
                    snapshots.append(entry.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableDirectory(f"{folder}: {error.strerror}") from error
    found.sort()
    segments = []
    for index, (base_offset, path) in enumerate(found):
        try:
            size = Path(path).stat().st_size
        except FileNotFoundError:
            # Retention takes segments from the front, so what is left still ends at the log end.
            continue
        segments.append(SegmentFile(path, base_offset, size, is_last=index == len(found) - 1))
    first = segments[0].base_offset if segments else 0
    log_start = max(starts.get((topic, partition), 0), first)
    return PartitionLog(
        topic,
        partition,
        str(folder),
        log_start,
        recovery_points.get((topic, partition), 0),
        tuple(segments),
        tuple(sorted(snapshots)),
    )


def _checkpoint(path: Path) -> Checkpoint:
    """Offsets by topic and partition; none if there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableDirectory(f"{path}: {error}") from error
    offsets = {}
    for line in lines[2:]:
        fields = line.split()
        if not fields:
            continue
        try:
            topic, partition, offset = fields
            offsets[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise UnreadableDirectory(f"{path}: {line!r} is not `topic partition offset`") from error
    return offsets
