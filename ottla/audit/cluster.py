"""The partitions of a cluster that an audit covers, and its coordinators' view of open transactions. shell"""

from collections.abc import Iterable, Sequence
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
from ottla.wire.cluster import Cluster, chunks
from ottla.wire.judge_open import judge_open

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
