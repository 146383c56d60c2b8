"""The partitions of a cluster that an audit covers, and its coordinators' view of open transactions. shell"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ottla.audit.checks.hanging import Present
from ottla.audit.listed import Listed
from ottla.printable import first_names
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.values import TopicPartition
from ottla.scan.cluster.listing import list_cluster_partitions
from ottla.scan.listing import COORDINATORS, UnreadableDirectory
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.cluster import DEBUGGER, EARLIEST, READ_UNCOMMITTED, Cluster
from ottla.wire.judge_open import judge_open
from ottla.wire.login import error_name
from ottla.wire.topology import Topology, chunks

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
    served = list_cluster_partitions(address, topics)
    try:
        with connections_to(address).borrow() as cluster:
            kept_whole = _find_kept_whole(cluster, [*dict.fromkeys(one.log.topic for one in served if not one.unread)])
    except Unanswered as error:
        raise UnreadableDirectory(f"{address}: {error}") from None
    listed = [
        Listed(
            str(address),
            one.log,
            cleaned_below=0 if one.log.topic in kept_whole else None,
            high_watermark=0,
            of_topic=one.of_topic,
            unread=one.unread,
        )
        for one in served
    ]
    _check_readable(address, listed)
    return listed


def _check_readable(address: KafkaAddress, listed: Sequence[Listed]) -> None:
    """Raise UnreadableDirectory if there are partitions of users, and none can be read."""
    reasons = [f"{one.log.name}: {one.unread}" if one.unread else "" for one in listed if one.log.topic != COORDINATORS]
    if reasons and all(reasons):
        raise UnreadableDirectory(f"{address}: no partition can be read: {first_names(reasons, _MOST_NAMED)}")


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


def list_replicas(address: KafkaAddress, listed: Sequence[Listed]) -> list[Listed]:
    """List the replicas of these partitions, each from where its own log begins up to the leader's high watermark.

    Raises UnreadableDirectory if no broker answers. A broker that does not answer has the reason in `unread`.
    """
    try:
        with connections_to(address).borrow() as cluster:
            topology = cluster.topology({one.log.topic for one in listed})
            rows = {(one.log.topic, one.log.partition): one for one in listed}
            places: dict[int, list[TopicPartition]] = {}
            for topic, number in rows:
                known = topology.topics.get(topic, {}).get(number)
                for broker in () if known is None or len(known.replicas) < 2 else known.replicas:
                    places.setdefault(broker, []).append((topic, number))
            return [
                _replica(rows[place], broker, start)
                for broker, own in sorted(places.items())
                for place, start in _find_starts(cluster, topology, broker, own)
            ]
    except Unanswered as error:
        raise UnreadableDirectory(f"{address}: {error}") from None


def _find_starts(
    cluster: Cluster, topology: Topology, broker: int, places: Sequence[TopicPartition]
) -> Iterator[tuple[TopicPartition, int | str]]:
    """Yield the log start of each partition at one broker, or the reason why it is not known."""
    if broker not in topology.brokers:
        yield from ((place, "it is not running") for place in places)
        return
    for some in chunks(places, _TOPICS_AT_ONCE):
        try:
            found = [*cluster.list_offsets(topology.brokers[broker], some, READ_UNCOMMITTED, EARLIEST, DEBUGGER)]
        except Unanswered as error:
            yield from ((place, str(error)) for place in some)
            continue
        rows = dict(found)
        for place in some:
            if place not in rows:
                yield place, "it does not answer about this partition"
            else:
                row = rows[place]
                yield place, error_name(row.error_code) if row.error_code else row.offset


def _replica(one: Listed, broker: int, start: int | str) -> Listed:
    """Return a partition as one broker has it; `start` may be the reason why it cannot be read."""
    window = one.log.window
    assert window is not None
    unread, first = (start, 0) if isinstance(start, str) else ("", start)
    own = window._replace(replica=broker, first_offset=first, end_offset=max(first, window.end_offset))
    log = one.log._replace(log_start=first, window=own)
    return one._replace(directory=f"broker {broker}", log=log, high_watermark=window.end_offset, unread=unread)


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
