"""The partitions of a cluster, as its brokers list them, and its coordinators' view of open transactions. shell

The ends of the coordinators' log are asked for before those of data, so that the data has the markers of each decision.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ottla.audit.checks.hanging import Present
from ottla.audit.listed import Listed
from ottla.printable import first_names
from ottla.protocol.acls import AclOperation
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.values import ZERO_UUID, TopicPartition
from ottla.scan.listing import COORDINATORS, PartitionLog, UnreadableDirectory, matches
from ottla.scan.windows import OffsetWindow
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.cluster import DELETED, EARLIEST, LATEST, Cluster, Topology, chunks
from ottla.wire.judge_open import judge_open
from ottla.wire.login import error_name

_MOST_NAMED: Final = 5
_TOPICS_AT_ONCE: Final = 200
_TOPIC_RESOURCE: Final = 2
_POLICY: Final = "cleanup.policy"
_DEFAULT_CONFIG: Final = 5
"""DescribeConfigs' source of a value that was not set."""


def list_cluster(address: KafkaAddress, topics: Sequence[str]) -> list[Listed]:
    """List the partitions of the topics that match the globs (none: all), and the coordinators' log.

    Raises UnreadableDirectory if no broker answers, or the properties of the address cannot be used.
    """
    try:
        with connections_to(address).borrow() as cluster:
            return _list(address, cluster, topics)
    except (Unanswered, ValueError) as error:
        raise UnreadableDirectory(f"{address}: {error}") from None


def _list(address: KafkaAddress, cluster: Cluster, globs: Sequence[str]) -> list[Listed]:
    topology = cluster.topology(with_rights=True)
    if COORDINATORS not in topology.topics:  # does not exist, or is hidden: only a question by name tells
        topology = topology.merge(cluster.topology([COORDINATORS], with_rights=True))
    names = sorted(
        name
        for name in topology.topics
        if topology.errors.get(name, 0) not in DELETED and (name == COORDINATORS or not globs or matches(name, globs))
    )
    if globs:
        _check_matches(globs, topology)
    unread = {name: reason for name in names if (reason := _refusal(topology, name))}
    places = [(name, number) for name in names if name not in unread for number in sorted(topology.topics[name])]
    decided = [place for place in places if place[0] == COORDINATORS]
    ends = cluster.offsets(decided, LATEST)
    others = cluster.offsets([place for place in places if place[0] != COORDINATORS], LATEST)
    starts = cluster.offsets(places, EARLIEST)
    kept_whole = _find_kept_whole(cluster, [name for name in names if name not in unread])
    sizes = cluster.sizes(topology, places)
    listed = []
    for name in names:
        for number in sorted(topology.topics[name]) or [0]:
            place = name, number
            reason = unread.get(name, "")
            for known in (ends, others, starts):
                reason = reason or known.errors.get(place, "")
            start = starts.offsets.get(place, 0)
            end = max(start, ends.offsets.get(place, others.offsets.get(place, start)))
            topic_id = topology.topic_ids.get(name) or ZERO_UUID
            window = OffsetWindow(address, name, topic_id, number, start, end, sizes.get(place, 0))
            log = PartitionLog(name, number, window.path, start, 0, (), (), window)
            cleaned_below = 0 if name in kept_whole else None
            count = len(topology.topics[name])
            listed.append(Listed(str(address), log, cleaned_below, 0, of_topic=count, unread=reason))
    _check_readable(listed)
    return listed


def _check_readable(listed: Sequence[Listed]) -> None:
    """Raise Unanswered if there are partitions of users, and none can be read: nothing would be found in nothing."""
    reasons = [f"{one.log.name}: {one.unread}" if one.unread else "" for one in listed if one.log.topic != COORDINATORS]
    if reasons and all(reasons):
        raise Unanswered(f"no partition can be read: {first_names(reasons, _MOST_NAMED)}")


def _check_matches(globs: Sequence[str], topology: Topology) -> None:
    """Raise Unanswered if no topic that this user sees matches any of the globs."""
    seen = [name for name in sorted(topology.topics) if topology.errors.get(name, 0) not in DELETED]
    if any(matches(name, globs) for name in seen):
        return
    known = f"it sees {first_names(seen, _MOST_NAMED)}" if seen else "it sees no topic"
    raise Unanswered(f"no topic matches {', '.join(globs)}, or this user lacks DESCRIBE on it; {known}")


def _refusal(topology: Topology, name: str) -> str:
    """Return the reason why a topic cannot be read; empty if it can."""
    if error := topology.errors.get(name, 0):
        return f"the brokers answer {error_name(error)}"
    rights = topology.rights.get(name)
    return "" if rights is None or AclOperation.READ in rights else f"this user lacks READ on topic {name}"


def _find_kept_whole(cluster: Cluster, names: Sequence[str]) -> frozenset[str]:
    """Return the topics whose missing offsets are lost. A policy that was set may have been another one before."""
    request = codec.request_class(ApiKey.DESCRIBE_CONFIGS)
    found: set[str] = set()
    for some in chunks(names, _TOPICS_AT_ONCE):
        rows = [
            request.DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[_POLICY]
            )
            for name in some
        ]
        reply = cluster.ask_any(request(resources=rows, include_synonyms=False, include_documentation=False))
        found.update(
            result.resource_name for result in reply.results if not result.error_code and _has_default_policy(result)
        )
    return frozenset(found)


def _has_default_policy(result: Any) -> bool:
    return any(row.value == "delete" and row.config_source == _DEFAULT_CONFIG for row in result.configs)


def ask_present(address: KafkaAddress, places: Iterable[TopicPartition]) -> Present:
    """Ask the leaders for the open transactions of these partitions, and the coordinators about them."""
    asked = sorted(set(places))
    if not asked:
        return Present()
    try:
        with connections_to(address).borrow() as cluster:
            opened, gaps = cluster.open_transactions(asked)
            judged = judge_open(cluster, opened)
    except Unanswered as error:
        return Present(gaps=(str(error),))
    verdicts = {(each.place, each.start_offset): verdict for each, verdict in judged.rows}
    return Present(tuple(each for each, _ in judged.rows), verdicts, (*gaps, *judged.gaps), judged.now_ms)
