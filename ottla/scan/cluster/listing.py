"""The partitions of a cluster, as its brokers list them. shell

The ends of the coordinators' log are asked for before those of data, so that the data has the markers of each decision.
The last stable offsets are asked for before both: what had ended then is below the ends.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.printable import first_names
from ottla.protocol.acls import AclOperation
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ZERO_UUID, TopicPartition
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.listing import COORDINATORS, MOST_TOPICS_NAMED, PartitionLog, UnreadableDirectory, matches
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.cluster import EARLIEST, LATEST, READ_COMMITTED, Cluster
from ottla.wire.login import error_name
from ottla.wire.topology import DELETED, Topology

_NO_SUCH_TIME: Final = -1
_HIDDEN: Final = DELETED | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


class ServedPartition(NamedTuple):
    """A partition of a cluster, and the reason why its records cannot be read; empty if they can.

    `of_topic`: the number of partitions of its topic.
    """

    log: PartitionLog
    of_topic: int
    unread: str = ""


def list_cluster_partitions(
    address: KafkaAddress, topics: Sequence[str], *, must_match: bool = True
) -> list[ServedPartition]:
    """List the partitions of the topics that match the globs (none: all), and the coordinators' log.

    Raises UnreadableDirectory if no broker answers, or the properties of the address cannot be used, and with
    `must_match` if no topic matches.
    """
    try:
        with connections_to(address).borrow() as cluster:
            return _list(address, cluster, topics, must_match=must_match)
    except (Unanswered, ValueError) as error:
        raise UnreadableDirectory(f"{address}: {error}") from None


def find_offset(window: OffsetWindow, time_ms: int) -> int | None:
    """Return the first offset with a timestamp of at least `time_ms`; None without one. Raises UnreadableDirectory."""
    place = window.topic, window.partition
    try:
        with connections_to(window.cluster).borrow() as cluster:
            found = cluster.offsets([place], time_ms)
    except (Unanswered, ValueError) as error:
        raise UnreadableDirectory(f"{window.path}: {error}") from None
    if place in found.errors:
        raise UnreadableDirectory(f"{window.path}: {found.errors[place]}")
    offset = found.offsets[place]
    return None if offset == _NO_SUCH_TIME else offset


def _list(address: KafkaAddress, cluster: Cluster, globs: Sequence[str], *, must_match: bool) -> list[ServedPartition]:
    topology = cluster.topology(with_rights=True)
    if COORDINATORS not in topology.topics:  # does not exist, or is hidden: only a question by name tells
        topology = topology.merge(cluster.topology([COORDINATORS], with_rights=True))
    names = sorted(
        name
        for name in topology.topics
        if topology.errors.get(name, 0) not in DELETED and (name == COORDINATORS or not globs or matches(name, globs))
    )
    if must_match:
        _check_matches(globs, topology)
    connections_to(address).keep(topology)
    unread = {name: reason for name in names if (reason := explain_refusal(topology, name))}
    places = [(name, number) for name in names if name not in unread for number in sorted(topology.topics[name])]
    data = [place for place in places if place[0] != COORDINATORS]
    stable = cluster.offsets(places, LATEST, READ_COMMITTED)
    ends = cluster.offsets([place for place in places if place[0] == COORDINATORS], LATEST)
    others = cluster.offsets(data, LATEST)
    starts = cluster.offsets(places, EARLIEST)
    sizes = cluster.sizes(topology, places)
    listed = []
    for name in names:
        numbers = sorted(topology.topics[name])
        for number in numbers or [0]:
            place: TopicPartition = name, number
            reason = unread.get(name, "")
            for known in (ends, others, stable, starts):
                reason = reason or known.errors.get(place, "")
            start = starts.offsets.get(place, 0)
            end = max(start, ends.offsets.get(place, others.offsets.get(place, start)))
            topic_id = topology.topic_ids.get(name) or ZERO_UUID
            stable_offset = max(start, min(end, stable.offsets.get(place, start)))
            window = OffsetWindow(address, name, topic_id, number, start, end, sizes.get(place, 0), stable_offset)
            log = PartitionLog(name, number, window.path, start, 0, (), (), window)
            listed.append(ServedPartition(log, len(numbers), reason))
    return listed


def _check_matches(globs: Sequence[str], topology: Topology) -> None:
    """Raise Unanswered if no topic that this user sees matches any of the globs, or, without globs, if it sees none."""
    seen = [name for name in sorted(topology.topics) if topology.errors.get(name, 0) not in _HIDDEN]
    if not seen and not globs:
        raise Unanswered("this user sees no topic")
    if not globs or any(matches(name, globs) for name in seen):
        return
    known = f"it sees {first_names(seen, MOST_TOPICS_NAMED)}" if seen else "it sees no topic"
    raise Unanswered(f"no topic matches {', '.join(globs)}, or this user lacks DESCRIBE on it; {known}")


def explain_refusal(topology: Topology, name: str) -> str:
    """Return the reason why a topic cannot be read; empty if it can."""
    error = topology.errors.get(name, 0)
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"this user lacks DESCRIBE on topic {name}"
    if error:
        return f"the brokers answer {error_name(error)}"
    rights = topology.rights.get(name)
    return "" if rights is None or AclOperation.READ in rights else f"this user lacks READ on topic {name}"
