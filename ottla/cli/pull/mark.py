"""The mark of a pulled directory, `pull.json`: its source, and the end of the copy of each partition. pure

docs/decisions/pulled-directories.md has the layout.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.broker.cluster.adoption_records import MAX_PARTITIONS
from ottla.protocol.checkpoints import LAST_BASE_OFFSET, LAST_INT, PULLED, decode_id, encode_id, parse_directory_name
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import ZERO_UUID

MARK: Final = PULLED
MARK_BYTES: Final = 256 * 1024 * 1024
_VERSION: Final = 1
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_.=+/-]{1,255}")


@dataclass
class PartitionMark:
    """The copy of a partition: its log start, its end, and the leader epoch at the source.

    `end`: None until a run has ended the partition. `missing`: offsets below it that the source could not show.
    `copied_ms`: the time before the source was asked for the last end up to which all was copied; 0 before that.
    """

    start: int
    end: int | None
    leader_epoch: int
    missing: list[str] = field(default_factory=list)
    copied_ms: int = 0


@dataclass
class TopicMark:
    """A topic of the copy, with `count` partitions at the source; `partitions` has those that were begun."""

    topic_id: bytes
    count: int
    configs: dict[str, str] = field(default_factory=dict)
    partitions: dict[int, PartitionMark] = field(default_factory=dict)


@dataclass
class Mark:
    """The content of `pull.json`. `ended_ms`: None while a run is not finished.

    `has_positions`: `__consumer_offsets` was made from the answers of OffsetFetch, because it could not be read.
    `left_out`: what the last run did not copy, with the reasons.
    """

    source: str
    cluster_id: str
    began_ms: int
    ended_ms: int | None = None
    has_positions: bool = False
    next_producer_id: int = 0
    topics: dict[str, TopicMark] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def check_cluster_id(cluster_id: str) -> str:
    """Return the id. Raises ProtocolError if it cannot be a line of `meta.properties`."""
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise ProtocolError(f"{cluster_id[:40]!r} is not a cluster id")
    return cluster_id


def check_topic(name: str, count: int) -> str:
    """Return the name of a topic with `count` partitions. Raises ProtocolError if it cannot name a directory."""
    if parse_directory_name(f"{name}-0") != (name, 0):
        raise ProtocolError(f"{name[:80]!r} is not a topic name")
    if not 0 < count <= MAX_PARTITIONS:
        raise ProtocolError(f"topic {name} has {count} partitions")
    return name


def encode_mark(mark: Mark) -> bytes:
    """Return the content of the file."""
    topics = {
        name: {
            "topic_id": encode_id(topic.topic_id),
            "count": topic.count,
            "configs": topic.configs,
            "partitions": {str(index): vars(one) for index, one in sorted(topic.partitions.items())},
        }
        for name, topic in sorted(mark.topics.items())
    }
    return (json.dumps({"version": _VERSION, **vars(mark), "topics": topics}, indent=1) + "\n").encode()


def decode_mark(content: bytes) -> Mark:
    """Return the mark. Raises ProtocolError for any other content."""
    try:
        document = json.loads(content)
        if document.pop("version") != _VERSION:
            raise ProtocolError("another version of Ottla wrote it")
        topics = {name: _decode_topic(name, fields) for name, fields in document.pop("topics").items()}
        mark = Mark(**document, topics=topics)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as broken:
        raise ProtocolError(f"it was changed: {broken}") from None
    check_cluster_id(mark.cluster_id)
    _check_number(mark.next_producer_id, LAST_BASE_OFFSET)
    return mark


def _decode_topic(name: str, fields: dict[str, Any]) -> TopicMark:
    topic = TopicMark(decode_id(fields.pop("topic_id")), **fields)
    check_topic(name, topic.count)
    if topic.topic_id == ZERO_UUID:
        raise ProtocolError(f"topic {name} has the zero topic id")
    topic.partitions = {int(index): PartitionMark(**one) for index, one in fields["partitions"].items()}
    for index, one in topic.partitions.items():
        _check_number(index, topic.count - 1)
        _check_number(one.start, LAST_BASE_OFFSET)
        _check_number(one.copied_ms, LAST_BASE_OFFSET)
        _check_number(one.leader_epoch, LAST_INT, least=-1)
        if any(not isinstance(text, str) for text in one.missing):
            raise ProtocolError(f"partition {name}-{index} misses {one.missing}")
        if one.end is not None:
            _check_number(one.end, LAST_BASE_OFFSET, least=one.start)
    return topic


def _check_number(number: int, most: int, least: int = 0) -> None:
    if not least <= number <= most:
        raise ProtocolError(f"{number} is not between {least} and {most}")
