"""Plan of an audit of a cluster: the partitions to read, and the missing rights (`--dry-run`). shell"""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.audit.cluster import list_cluster, list_replicas
from ottla.audit.listed import Listed
from ottla.audit.request import Request
from ottla.printable import shell_line
from ottla.protocol.acls import OPERATION_NAMES, WILDCARD, AclOperation, PatternType, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.scan.listing import COORDINATORS, UnreadableDirectory, matches
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.brokers import acls_request
from ottla.wire.client_properties import client_options
from ottla.wire.cluster import Cluster
from ottla.wire.topology import Topology

ASSUMED_RATE: Final = 100_000_000
"""Bytes per second of an audit whose network and brokers are not known."""
_GLOB_SIGNS: Final = frozenset("*?[")
_UNKNOWN_USER: Final = "User:NAME"
_OPTIONS: Final = {ResourceType.TOPIC: "--topic", ResourceType.TRANSACTIONAL_ID: "--transactional-id"}


class MissingRight(NamedTuple):
    """A right that the user lacks. `is_required`: without it a topic cannot be read; other rights improve verdicts."""

    operation: AclOperation
    kind: ResourceType
    name: str
    purpose: str
    is_required: bool


class DryRun(NamedTuple):
    """Partitions that an audit would read, with those that it cannot; `rate`: bytes per second of the estimate."""

    source: str
    listed: list[Listed]
    missing: list[MissingRight]
    principal: str
    rate: int
    is_rate_assumed: bool
    has_records: bool = True

    @property
    def readable(self) -> list[Listed]:
        return [one for one in self.listed if not one.unread]

    @property
    def sized(self) -> list[Listed]:
        """Partitions whose size the brokers give."""
        return [one for one in self.readable if one.has_size]

    @property
    def size_bytes(self) -> int:
        return sum(one.log.size_bytes for one in self.sized)

    @property
    def seconds(self) -> float:
        return self.size_bytes / self.rate if self.has_records else 0.0

    @property
    def may_read_all(self) -> bool:
        return len(self.readable) == len(self.listed) and not any(one.is_required for one in self.missing)

    def command(self, right: MissingRight) -> str:
        """Return the command that adds the right."""
        resource = ["--cluster"] if right.kind is ResourceType.CLUSTER else [_OPTIONS[right.kind], right.name]
        if right.kind is ResourceType.TOPIC and right.name.endswith(WILDCARD) and right.name != WILDCARD:
            resource = [*resource[:1], right.name.removesuffix(WILDCARD), "--resource-pattern-type", "prefixed"]
        words = ["kafka-acls.sh", "--bootstrap-server", self.source.partition("://")[2], "--add"]
        words += ["--allow-principal", self.principal, "--operation", OPERATION_NAMES[right.operation], *resource]
        return shell_line(words)


def plan_audit(request: Request) -> DryRun:
    """Ask the brokers what the audit would read, and may not. Raises UnreadableDirectory."""
    address = request.address
    assert address is not None
    try:
        with connections_to(address).borrow() as cluster:
            globs = request.globs
            exact = [glob for glob in globs if not _GLOB_SIGNS & {*glob}]
            topology = cluster.topology(with_rights=True)
            asked = [name for name in (*exact, COORDINATORS) if name not in topology.topics]
            topology = topology.merge(cluster.topology(asked, with_rights=True)) if asked else topology
            missing = [*_missing_rights(request, cluster, topology, globs)]
        unreadable = {one.name for one in missing if one.is_required and one.name != COORDINATORS}
        seen = [name for name in topology.topics if not topology.errors.get(name) and name != COORDINATORS]
        readable = [name for name in seen if name not in unreadable and (not globs or matches(name, globs))]
        if readable or (seen and not unreadable):
            listed = list_cluster(address, [glob for glob in globs if glob not in unreadable])
        else:
            listed = []
            patterns = [glob for glob in globs if glob not in exact] or ([] if unreadable else [WILDCARD])
            missing = [*map(_hidden, patterns), *missing]
    except (Unanswered, ValueError) as error:
        raise UnreadableDirectory(f"{address}: {error}") from None
    if request.walks_no_log:
        listed = [one for one in listed if one.log.topic != COORDINATORS]
    if "replicas" in request.checks:
        replicas = list_replicas(address, [one for one in listed if not one.unread])
        listed = [*(one for one in listed if one.unread or not request.walks_no_log), *replicas]
    rate = address.max_bytes_per_second
    return DryRun(
        str(address),
        listed,
        missing,
        principal_of(address),
        min(rate or ASSUMED_RATE, ASSUMED_RATE),
        not 0 < rate <= ASSUMED_RATE,
        not request.asks_only,
    )


def _missing_rights(
    request: Request, cluster: Cluster, topology: Topology, globs: Sequence[str]
) -> Iterator[MissingRight]:
    """Yield the missing rights on topics, transactional ids and the cluster. Raises Unanswered."""
    names = {name for name in topology.topics if not globs or matches(name, globs)}
    names = names - {COORDINATORS} if request.walks_no_log else names | {COORDINATORS}
    for name in sorted(names):
        rights = topology.rights.get(name)
        is_denied = topology.errors.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if is_denied or (rights is not None and AclOperation.READ not in rights):
            yield MissingRight(AclOperation.READ, ResourceType.TOPIC, name, "to read its records", True)
        lacks_configs = is_denied or (rights is not None and AclOperation.DESCRIBE_CONFIGS not in rights)
        if lacks_configs and "gaps" in request.checks and name != COORDINATORS:
            purpose = "to tell lost offsets from compacted ones"
            yield MissingRight(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, purpose, False)
    purpose = "to prove that no open transaction is hidden"
    try:
        if any(cluster.denied_ids(at, [uuid.uuid4().hex]) for at in topology.brokers.values()):
            yield MissingRight(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, WILDCARD, purpose, False)
    except Unanswered:
        pass  # a broker without DescribeTransactions, or one that is down: its partitions have the reason
    reply = cluster.ask_any(acls_request(ResourceType.TRANSACTIONAL_ID, None, PatternType.ANY))
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        yield MissingRight(AclOperation.DESCRIBE, ResourceType.CLUSTER, "", f"to know sizes, and {purpose}", False)


def _hidden(glob: str) -> MissingRight:
    """Return the right on the topics of a glob, of which this user sees none: by their prefix, or on all."""
    prefix = glob.removesuffix(WILDCARD)
    name = WILDCARD if prefix == glob or _GLOB_SIGNS & {*prefix} else glob
    return MissingRight(AclOperation.READ, ResourceType.TOPIC, name, f"to read the records of {glob}", True)


def principal_of(address: KafkaAddress) -> str:
    """Return the user of the properties by which an ACL names it, else a placeholder."""
    options = client_options(Path(address.properties)) if address.properties else {}
    return f"User:{options['sasl_plain_username']}" if "sasl_plain_username" in options else _UNKNOWN_USER
