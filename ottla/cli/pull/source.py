"""Topics of a cluster that a pull copies: their partitions with the ranges of offsets, and their settings. shell

The ends of the coordinators' logs are asked for before those of data: the data has the markers of each decision, and
the records of each committed position.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from ottla.broker.cluster.adoption_records import KEEP_EVERYTHING
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from ottla.broker.config import topic_config_problem
from ottla.cli.pull.mark import check_cluster_id, check_topic
from ottla.printable import first_names
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.checkpoints import LAST_BASE_OFFSET, LAST_INT
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.values import ZERO_UUID, TopicPartition
from ottla.scan.cluster.listing import explain_refusal
from ottla.wire import Unanswered
from ottla.wire.cluster import EARLIEST, LATEST, Cluster, Offsets
from ottla.wire.login import error_name
from ottla.wire.topology import DELETED, Topology

_MOST_NAMED: Final = 5
_TOPIC_RESOURCE: Final = 2
_TOPICS_AT_ONCE: Final = 200
_OF_TOPIC, _DEFAULT = 1, 5
"""DescribeConfigs' sources of a value: the topic's own config, and Kafka's default."""
_DELETING: Final = frozenset({"cleanup.policy", *KEEP_EVERYTHING})
"""Configs of brokers that become the topic's own, so that a broker with others does not delete records."""


class Request(NamedTuple):
    """Topics to copy. `since_ms`: the time of the first records of a new partition, or None for the whole log."""

    globs: tuple[str, ...]
    groups: bool = False
    transactions: bool = False
    since_ms: int | None = None


class Range(NamedTuple):
    """The offsets [start, end) that the source has, and the epoch of the leader. `log_start` is `start`, or the first
    offset from the requested time on."""

    start: int
    end: int
    log_start: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    """A topic that can be read. `ranges`: its partitions, without those that did not answer."""

    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    ranges: dict[int, Range]


class Source(NamedTuple):
    """The requested topics. `left_out`: reasons why something is not copied. `notes`: deviations of the copy.

    `lacks_groups`: `__consumer_offsets` exists, or may exist, and this user may not read it.
    """

    cluster_id: str
    topics: tuple[SourceTopic, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    lacks_groups: bool
    topology: Topology


def list_source(cluster: Cluster, request: Request) -> Source:
    """List what a pull copies. Raises Unanswered, ProtocolError for answers that cannot be a cluster's."""
    topology, wanted = _find_topics(cluster, request)
    refused = {name: reason for name in wanted if (reason := explain_refusal(topology, name))}
    if TRANSACTION_STATE_TOPIC in refused:
        refused[TRANSACTION_STATE_TOPIC] += ", so audits of the copy have no verdict on newer transactions"
    names = [name for name in wanted if name not in refused]
    for name in names:
        check_topic(name, len(topology.topics[name]))
        if set(topology.topics[name]) != set(range(len(topology.topics[name]))):
            raise ProtocolError(f"the brokers number the partitions of topic {name} {sorted(topology.topics[name])}")
    places = [(name, number) for name in names for number in sorted(topology.topics[name])]
    known = _Offsets(cluster, places, request.since_ms)
    configs, notes = _find_configs(cluster, names)
    lacks_groups = CONSUMER_OFFSETS_TOPIC in refused
    left_out = [f"{name}: {reason}" for name, reason in refused.items() if name != CONSUMER_OFFSETS_TOPIC]
    topics = []
    for name in names:
        ranges = {}
        for number, place in sorted(topology.topics[name].items()):
            if reason := known.reason(name, number):
                left_out.append(f"{name}-{number}: {reason}")
            else:
                ranges[number] = known.range(name, number, min(max(place.leader_epoch, 0), LAST_INT))
        topic_id = topology.topic_ids.get(name) or ZERO_UUID
        topics.append(SourceTopic(name, topic_id, len(topology.topics[name]), configs[name], ranges))
    cluster_id = check_cluster_id(topology.cluster_id)
    return Source(cluster_id, tuple(topics), tuple(left_out), tuple(notes), lacks_groups, topology)


def _find_topics(cluster: Cluster, request: Request) -> tuple[Topology, list[str]]:
    """Return the topology, and the requested topics: internal ones first. Raises Unanswered if no glob matches."""
    topology = cluster.topology(with_rights=True)
    wanted = [TRANSACTION_STATE_TOPIC] if request.transactions else []
    wanted += [CONSUMER_OFFSETS_TOPIC] if request.groups else []
    hidden = [name for name in wanted if name not in topology.topics]
    if hidden:  # they do not exist, or are hidden: only a question by name tells
        topology = topology.merge(cluster.topology(hidden, with_rights=True))
    seen = [
        name
        for name in sorted(topology.topics)
        if name not in INTERNAL_TOPICS and topology.errors.get(name, 0) not in DELETED
    ]
    found = [name for name in seen if any(fnmatchcase(name, glob) for glob in request.globs)]
    unmatched = [glob for glob in request.globs if not any(fnmatchcase(name, glob) for name in seen)]
    if unmatched:
        known = f"it sees {first_names(seen, _MOST_NAMED)}" if seen else "it sees no topic"
        raise Unanswered(f"no topic matches {', '.join(unmatched)}, or this user lacks DESCRIBE on it; {known}")
    exist = [name for name in wanted if topology.errors.get(name, 0) not in DELETED]
    return topology, [*exist, *found]


class _Offsets:
    """The first offsets and the ends of partitions."""

    def __init__(self, cluster: Cluster, places: Sequence[TopicPartition], since_ms: int | None) -> None:
        coordinators = [place for place in places if place[0] == TRANSACTION_STATE_TOPIC]
        groups = [place for place in places if place[0] == CONSUMER_OFFSETS_TOPIC]
        data = [place for place in places if place[0] not in INTERNAL_TOPICS]
        ends = [cluster.offsets(some, LATEST) for some in (coordinators, groups, data)]
        starts = cluster.offsets(places, EARLIEST)
        since = Offsets({}, {}) if since_ms is None else cluster.offsets(data, since_ms)
        self._ends = {place: offset for known in ends for place, offset in known.offsets.items()}
        self._starts, self._since = starts.offsets, since.offsets
        self._errors = {place: reason for known in (*ends, starts, since) for place, reason in known.errors.items()}

    def reason(self, name: str, number: int) -> str:
        """Return the reason why the offsets of a partition are not known; empty if they are."""
        if reason := self._errors.get((name, number)):
            return reason
        is_known = (name, number) in self._starts and (name, number) in self._ends
        return "" if is_known else "the topic was deleted meanwhile"

    def range(self, name: str, number: int, leader_epoch: int) -> Range:
        place = name, number
        start = self._starts[place]
        end = max(start, self._ends[place])
        since = self._since.get(place, start)
        log_start = end if since < 0 else min(max(start, since), end)  # -1: all records are older
        if not 0 <= start <= end <= LAST_BASE_OFFSET:
            raise ProtocolError(f"the brokers answer offsets {start} to {end} for {name}-{number}")
        return Range(start, end, log_start, leader_epoch)


def _find_configs(cluster: Cluster, names: Sequence[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the configs of each topic, and notes about those that the copy lacks."""
    request = codec.request_class(ApiKey.DESCRIBE_CONFIGS)
    configs: dict[str, dict[str, str]] = {}
    notes: list[str] = []
    reasons = dict.fromkeys(names, "the brokers did not answer")
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        rows = [
            request.DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names[start : start + _TOPICS_AT_ONCE]
        ]
        reply = cluster.ask_any(request(resources=rows, include_synonyms=False, include_documentation=False))
        for result in reply.results:
            reasons[result.resource_name] = error_name(result.error_code)
            if result.error_code == ErrorCode.NONE:
                configs[result.resource_name] = _own_configs(result, notes)
    for name in names:
        if name not in configs:
            configs[name] = dict(KEEP_EVERYTHING)
            notes.append(f"{name}: its configs are not known ({reasons[name]}), so the copy keeps everything")
    return configs, notes


def _own_configs(result: Any, notes: list[str]) -> dict[str, str]:
    """Return the configs that were set for the topic, and those of its brokers that decide about deletion."""
    configs: dict[str, str] = {}
    for row in result.configs:
        is_own = row.config_source == _OF_TOPIC
        if row.value is None or not (is_own or (row.config_source != _DEFAULT and row.name in _DELETING)):
            continue
        if topic_config_problem({row.name: row.value}):
            notes.append(f"{result.resource_name}: config {row.name}={row.value} is not supported, and left out")
        else:
            configs[row.name] = row.value
    if topic_config_problem(configs):
        return {**KEEP_EVERYTHING, "cleanup.policy": configs.get("cleanup.policy", "delete")}
    return configs
