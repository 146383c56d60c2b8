"""Content of a log directory: partitions, segments with their sizes, log starts. shell

A broker may be writing to the directory: each file's size is read once, here, and later bytes are ignored. Layout:
`org.apache.kafka.storage.internals.log.LogFileUtils`, `UnifiedLog.parseTopicPartitionName`, `OffsetCheckpointFile`.
"""

import os
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes, urlparse

from ottla.printable import first_names
from ottla.protocol.checkpoints import (
    LAST_BASE_OFFSET,
    LOG_STARTS,
    META_PROPERTIES,
    NO_SUCH_OFFSET,
    PUT_BACK,
    RECOVERY_POINTS,
    UNSYNCED_CHECKPOINTS,
    decode_offsets,
    parse_directory_name,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.java.properties import read_properties
from ottla.protocol.values import TopicPartition
from ottla.scan import storage
from ottla.scan.log_directory import SEGMENT, describe_below, describe_refusal, is_log_directory
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from ottla.scan.cluster.offset_window import OffsetWindow

COORDINATORS = "__transaction_state"

MOST_TOPICS_NAMED = 5
_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")

T = TypeVar("T")

_SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot\Z")


class UnreadableDirectory(Exception):
    """The directory cannot be listed or is not a log directory; the text names it and the reason."""


class SegmentFile(NamedTuple):
    """Segment file. `is_last`: the segment is the active one, whose tail may be torn.

    `suffixes`: the suffixes of the segment's other files in the listing of a store; None for a local directory.
    """

    path: str
    base_offset: int
    size_bytes: int
    is_last: bool
    suffixes: tuple[str, ...] | None = None

    def lacks(self, suffix: str) -> bool:
        """Return whether the listing shows that the segment has no file with `suffix`."""
        return self.suffixes is not None and suffix not in self.suffixes


class PartitionLog(NamedTuple):
    """Partition directory. Consumers read from `log_start` on. All batches below `recovery_point` were flushed.

    `window`: the records at brokers, for a partition of a cluster; it has no files, and `path` is for people.
    """

    topic: str
    partition: int
    path: str
    log_start: int
    recovery_point: int
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[str, ...]
    window: "OffsetWindow | None" = None

    @property
    def first_offset(self) -> int:
        """The offset at which the batches begin, as far as the listing shows it."""
        if self.window is not None:
            return self.window.first_offset
        return self.segments[0].base_offset if self.segments else self.log_start

    @property
    def least_end(self) -> int:
        """An offset at which the log ends, or later: its last segment may have no batch."""
        if self.window is not None:
            return self.window.end_offset
        return self.segments[-1].base_offset if self.segments else 0

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        if self.window is not None:
            return self.window.size_bytes
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_internal(self) -> bool:
        return self.topic.startswith("__")


def local_path(given: str) -> str:
    """Return the local path of a plain path or a `file:` URL. Raises UnreadableDirectory for another URI."""
    if given.startswith("file:"):
        return os.fsdecode(unquote_to_bytes(urlparse(given).path))
    if storage.is_remote(given):
        raise UnreadableDirectory(f"{given}: only a local path or a file: URL can be written")
    return given


def storage_path(given: str) -> str:
    """Return the local path of a plain path or a `file:` URL; return any other URI of a store unchanged.

    Raises UnreadableDirectory for the address of a cluster.
    """
    if is_kafka_address(given):
        raise UnreadableDirectory(f"{given}: files are read here: name a log directory, not a cluster")
    return given if storage.is_remote(given) else local_path(given)


def topic_patterns(given: str) -> tuple[str, ...]:
    """Return the globs of a comma-separated list like `ledger,audit-*`."""
    return tuple(pattern.strip() for pattern in given.split(",") if pattern.strip())


def check_log_directory(directory: str) -> list[str]:
    """Return the names of the folders in a log directory. Raises UnreadableDirectory with the log directories below."""
    root = storage_path(directory)
    names = _translate_errors(root, lambda: _children(root))
    if not is_log_directory(names, _children):
        why = describe_refusal(root, names, _children, storage.hide_secrets)
        raise UnreadableDirectory(f"{storage.hide_secrets(root)}: {why}")
    return [name for name, path in names.items() if path is not None]


def describe_logs_below(directory: str) -> str:
    """Return a text that lists the log directories below a folder; empty if the search finds none."""
    return describe_below(storage_path(directory), _children, storage.hide_secrets)


def _children(folder: str) -> dict[str, str | None]:
    found = storage.entries(folder)
    return {entry.name: storage.join(folder, entry.name) if entry.is_directory else None for entry in found}


def list_partitions(directory: str) -> list[PartitionLog]:
    """Return all partitions in `directory`, internal ones too, by topic and partition."""
    root = storage_path(directory)
    names = check_log_directory(root)
    places = {name: place for name in names if (place := parse_directory_name(name))}
    # A coordinator knows a transaction before a partition does, so its log is listed after all others.
    places = dict(sorted(places.items(), key=lambda named: named[1][0] == COORDINATORS))
    # Read before the sizes: a running broker flushes only what it has written, so the sizes are at least as large.
    starts = read_checkpoint(storage.join(root, LOG_STARTS))
    recovery_points = read_checkpoint(storage.join(root, RECOVERY_POINTS))
    folders = None
    if storage.is_remote(root):
        folders = _translate_errors(root, lambda: storage.files_below(root, [*places]))
    logs = []
    for name, place in places.items():
        folder = storage.join(root, name)
        files = _files_in(folder) if folders is None else folders.get(name, [])
        if files is not None:
            logs.append(_partition_log(folder, place, files, starts.get(place, 0), recovery_points.get(place, 0)))
    return sorted(logs, key=lambda log: (log.topic, log.partition))


def list_again(known: PartitionLog) -> PartitionLog:
    """List a partition again, up to the last segment and the last snapshot of `known`.

    Segments that retention has deleted since are missing. Raises OSError.
    """
    if storage.is_remote(known.path):
        name = storage.name_of(known.path)
        files = storage.files_below(storage.parent(known.path), [name])[name]
    else:
        files = _files_in(known.path) or []
    now = _partition_log(known.path, (known.topic, known.partition), files, known.log_start, known.recovery_point)
    last = known.segments[-1]
    segments = tuple(segment._replace(is_last=False) for segment in now.segments if segment.path < last.path)
    snapshots = tuple(path for path in now.snapshots if path <= max(known.snapshots, default=""))
    return now._replace(log_start=known.log_start, segments=(*segments, last), snapshots=snapshots)


def read_cluster_id(directory: str) -> str:
    """Return the cluster id in `meta.properties`; empty without the file or without an id in it."""
    path = storage.join(storage_path(directory), META_PROPERTIES)
    content = _translate_errors(path, lambda: storage.read_if_there(path)) or b""
    try:
        return read_properties(content).get("cluster.id", "")
    except ProtocolError as broken:
        raise UnreadableDirectory(f"{storage.hide_secrets(path)}: {broken}") from None


def are_remote(logs: Iterable[PartitionLog]) -> bool:
    """Return whether a partition is in a store, where each file takes the time of a request."""
    return any(storage.is_remote(log.path) for log in logs)


def select_topics(logs: Iterable[PartitionLog], patterns: tuple[str, ...]) -> list[PartitionLog]:
    """Return the partitions whose topic matches a pattern; without patterns those of all user topics (not `__*`)."""
    if not patterns:
        return [log for log in logs if not log.is_internal]
    return [log for log in logs if matches(log.topic, patterns)]


def matches(topic: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns matches a topic."""
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def describe_missing_topics(logs: Iterable[PartitionLog], patterns: tuple[str, ...]) -> str:
    """Return an error that lists the patterns without a topic, and the topics; empty if each pattern matches one."""
    topics = sorted({log.topic for log in logs})
    unmatched = [pattern for pattern in patterns if not any(fnmatchcase(topic, pattern) for topic in topics)]
    if not unmatched:
        return ""
    # Topics of users first.
    topics.sort(key=lambda topic: topic.startswith("__"))
    there = f"there are {first_names(topics, MOST_TOPICS_NAMED)}" if topics else "there are no topics"
    return f"no topic matches {', '.join(unmatched)}; {there}"


Checkpoint = dict[TopicPartition, int]


def _translate_errors(root: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise UnreadableDirectory(f"{storage.hide_secrets(root)}: {error.strerror}") from error


def _files_in(folder: str) -> list[storage.Entry] | None:
    """Return segments with their sizes, and snapshots; None if the directory vanished (its topic was deleted)."""
    files: list[storage.Entry] = []
    try:
        names = storage.entries(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableDirectory(f"{folder}: {error.strerror}") from error
    for entry in names:
        try:
            if SEGMENT.match(entry.name):
                files.append(entry._replace(size_bytes=storage.status(storage.join(folder, entry.name)).size_bytes))
            elif _SNAPSHOT.match(entry.name):
                files.append(entry)
        except FileNotFoundError:
            # Retention deletes segments from the start, so the remaining ones still end at the log end.
            continue
        except OSError as error:
            raise UnreadableDirectory(f"{error.filename}: {error.strerror}") from error
    return files


def _partition_log(
    folder: str, place: TopicPartition, files: list[storage.Entry], log_start: int, recovery_point: int
) -> PartitionLog:
    found = sorted((int(match[1]), entry) for entry in files if (match := SEGMENT.match(entry.name)))
    if found and found[-1][0] > LAST_BASE_OFFSET:
        path = storage.join(folder, found[-1][1].name)
        raise UnreadableDirectory(f"{storage.hide_secrets(path)}: {NO_SUCH_OFFSET}")
    names = {entry.name for entry in files} if storage.is_remote(folder) else None
    segments = tuple(
        SegmentFile(
            storage.join(folder, entry.name),
            base_offset,
            entry.size_bytes,
            is_last=index == len(found) - 1,
            suffixes=None if names is None else _suffixes_in(base_offset, names),
        )
        for index, (base_offset, entry) in enumerate(found)
    )
    first = segments[0].base_offset if segments else 0
    snapshots = sorted(storage.join(folder, entry.name) for entry in files if _SNAPSHOT.match(entry.name))
    return PartitionLog(*place, folder, max(log_start, first), recovery_point, segments, tuple(snapshots))


def _suffixes_in(base_offset: int, names: set[str]) -> tuple[str, ...]:
    return tuple(suffix for suffix in _SUFFIXES if f"{base_offset:020d}{suffix}" in names)


def find_checkpoint(path: str) -> Checkpoint | None:
    """Return offsets by topic and partition; None without the file.

    A broken file counts as absent if a power loss may break it, because a broker's start writes it again.
    """
    try:
        return decode_offsets(storage.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableDirectory(f"{storage.hide_secrets(path)}: {error.strerror}") from error
    except ProtocolError as broken:
        if storage.name_of(path) in UNSYNCED_CHECKPOINTS:
            return None
        raise UnreadableDirectory(f"{storage.hide_secrets(path)}: {broken}; {PUT_BACK}") from None


def read_checkpoint(path: str) -> Checkpoint:
    """Return offsets by topic and partition; none without the file."""
    return find_checkpoint(path) or {}
