"""The broker that handlers call, and an API: its versions, its rights, its handler. pure"""

from collections.abc import Callable, Container, Coroutine, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import chain
from secrets import randbits
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.costs import AUTHORIZE_US
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.log.long_work import LongWork
from ottla.broker.log_limiter import LogLimiter
from ottla.broker.memory import MOST_MEMORY_BYTES, Memory
from ottla.broker.metrics import Metrics
from ottla.broker.ports.workers import DeferredWorkers, Workers
from ottla.broker.quotas.quotas import QuotaManagers, windows_of
from ottla.broker.request_observer import RequestObserver
from ottla.broker.security.authorizer import Need
from ottla.broker.turns import Wait
from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.values import TransactionMarker

if TYPE_CHECKING:
    from ottla.broker.cluster.frozen_metadata import FrozenMetadata
    from ottla.broker.cluster.links import Links
    from ottla.broker.cluster.metadata import Cluster
    from ottla.broker.cluster.zookeeper_blocks import ZooKeeperBlocks
    from ottla.broker.config import Config
    from ottla.broker.events import Events
    from ottla.broker.group.coordinator import GroupCoordinator
    from ottla.broker.group.shard import GroupMetadata
    from ottla.broker.log.log_manager import LogManager
    from ottla.broker.log.partition import Partition
    from ottla.broker.ports.clock import Clock
    from ottla.broker.security.acl import AclAuthorizer
    from ottla.broker.security.logins import Logins
    from ottla.broker.turns import Turns
    from ottla.broker.txn.coordinator import TransactionCoordinator
    from ottla.broker.txn.shard import Shard


def _no_problem(config: "Config") -> str:
    return ""


def _ignore_denial(request: "Request", need: Need, name: str) -> None:
    """Do nothing: the answer has the refusal already."""


@dataclass(slots=True)
class Broker:
    """The domain objects that handlers call. `assembly.py` builds it.

    Several brokers of one process share all but `cluster`, `transactions`, `groups` and `endpoints`. A further object,
    which no handler gets, has the whole cluster: admin port, health and tests ask it, and it asks `brokers`.
    """

    config: "Config"
    clock: "Clock"
    turns: "Turns"
    logs: "LogManager"
    cluster: "Cluster"
    transactions: "TransactionCoordinator"
    groups: "GroupCoordinator"
    endpoints: Mapping[str, NodeEndpoint]
    """Advertised endpoints by listener name, without listeners that are not advertised."""
    memory_bytes: InitVar[int] = MOST_MEMORY_BYTES
    memory: Memory = field(init=False)
    """The budget of memory that clients can make the broker hold, `memory_bytes` in all."""
    workers: InitVar[Workers | None] = None
    long_work: LongWork = field(init=False)
    """Long work on batches may hold a quarter of `memory_bytes` in addition. Without `workers` it runs in turns."""
    metrics: Metrics = field(default_factory=Metrics)
    observer: RequestObserver = field(init=False, default_factory=RequestObserver)
    non_kafka: LogLimiter = field(init=False, default_factory=lambda: LogLimiter())
    events: "Events | None" = field(init=False, default=None)
    """The event history, or None without an admin port."""
    served_apis: Sequence[tuple[int, int, int]] = field(init=False, default=())
    """(API key, lowest, highest version) of every API, as ApiVersions lists them."""
    tls_problem: "Callable[[Config], str]" = field(init=False, default=_no_problem)
    """Returns why the keystores of the listeners cannot be used with a configuration, or an empty string."""
    authorizer: "AclAuthorizer | None" = field(init=False, default=None)
    """None: every client may do everything."""
    on_denied: "Callable[[Request, Need, str], None]" = field(init=False, default=_ignore_denial)
    """Called for each request that is not authorized, with the missing right and the resource."""
    mechanisms: "Mapping[str, Logins]" = field(init=False, default_factory=dict)
    """The SASL mechanisms of each listener with SASL, by the listener's name."""
    quotas: QuotaManagers = field(init=False)
    thaw: "Callable[[], bool]" = field(init=False, default=lambda: False)
    """Ends the frozen state of `ottla serve --as-pulled`. Returns False if the broker is not frozen."""
    metadata: "Cluster | FrozenMetadata" = field(init=False)
    """What Metadata and FindCoordinator answer from."""
    id_blocks: "ZooKeeperBlocks | None" = field(init=False, default=None)
    """The blocks of producer ids that ZooKeeper counts, with `producer.id.manager=zookeeper`."""
    fetch_sessions: FetchSessions = field(init=False)
    links: "Links | None" = field(init=False, default=None)
    """The links between the brokers of the process if it has several: leaders and coordinators move between them."""
    _several: "Sequence[Broker]" = field(init=False, default=())
    """The brokers of this process if they are several. One broker does not refer to itself: it would be garbage."""

    def __post_init__(self, memory_bytes: int, workers: Workers | None) -> None:
        self.metadata = self.cluster
        self.memory = Memory(self.turns, memory_bytes)
        self.quotas = QuotaManagers(self.turns, self.clock.monotonic_ms, windows_of(self.config))
        self.long_work = LongWork(self.turns, workers or DeferredWorkers(self.turns.next_turn), memory_bytes // 4)
        self.fetch_sessions = self._make_fetch_sessions()

    def _make_fetch_sessions(self) -> FetchSessions:
        slots = self.config.max_incremental_fetch_session_cache_slots
        return FetchSessions(slots, self.memory.fetch_sessions_bytes, lambda: randbits(31))

    @property
    def brokers(self) -> "Sequence[Broker]":
        """All brokers of this process in the order of their ids."""
        return self._several or (self,)

    def divide(self, parts: "Sequence[tuple[Cluster, TransactionCoordinator, GroupCoordinator]]") -> None:
        """Make a broker of each of these views and coordinators. They share all that this one has now."""
        brokers = tuple(copy(self) for _ in parts)
        for broker, (cluster, transactions, groups) in zip(brokers, parts, strict=True):
            broker.cluster, broker.transactions, broker.groups = cluster, transactions, groups
            broker.metadata = cluster
            broker._several = brokers
            broker.fetch_sessions = broker._make_fetch_sessions()
            broker.endpoints = {
                name: endpoint._replace(node_id=cluster.node_id) for name, endpoint in self.endpoints.items()
            }
        self._several = brokers

    def leads(self, partition: "Partition") -> bool:
        """Return whether this broker leads the partition. It may have moved, or be deleted, while a handler waited."""
        return self.cluster.partition(partition.topic, partition.index) is partition

    def transaction_shards(self) -> "Iterator[Shard]":
        """Return the partitions of transactional ids that are replayed, of all brokers."""
        return chain.from_iterable(each.transactions.shards() for each in self.brokers)

    def list_groups(self) -> "list[GroupMetadata]":
        """Return the groups of all brokers; none of a broker that is still loading them."""
        return [group for each in self.brokers for group in each.groups.list_groups()[1]]

    @property
    def remaining_to_load(self) -> int:
        """The number of partitions whose transactional ids or groups are still being loaded."""
        return sum(each.groups.remaining_to_load + each.transactions.remaining_to_load for each in self.brokers)

    def count_open(self) -> int:
        """Return the number of open transactions of all brokers."""
        return sum(each.transactions.count_open() for each in self.brokers)

    def endpoints_of(self, listener_name: str, ids: Container[int] | None = None) -> list[NodeEndpoint]:
        """Return the advertised endpoints of all running brokers, or those with these ids, on this listener; none if it
        is not advertised."""
        stopped = self.metadata.stopped_ids
        found = self._endpoints_on(listener_name, lambda node_id: node_id not in stopped)
        return found if ids is None else [each for each in found if each.node_id in ids]

    def stopped_endpoints_of(self, listener_name: str) -> list[NodeEndpoint]:
        """Return the advertised endpoints of all stopped brokers on this listener; none if it is not advertised."""
        return self._endpoints_on(listener_name, self.metadata.stopped_ids.__contains__)

    def _endpoints_on(self, listener_name: str, is_wanted: Callable[[int], bool]) -> list[NodeEndpoint]:
        found = (each.endpoints.get(listener_name) for each in self.brokers if is_wanted(each.cluster.node_id))
        return [endpoint for endpoint in found if endpoint is not None]

    def coordinator_of(self, transactional_id: str) -> "tuple[Broker, ErrorCode]":
        """Return the broker that coordinates a transactional id, and the error if it cannot be asked.

        COORDINATOR_NOT_AVAILABLE: no broker does, and this one is returned. NETWORK_EXCEPTION: its answers do not
        arrive here.
        """
        states = self.transactions.states
        if self.links is None:
            exists = states.partition_count or states.topic in self.cluster.topics
            return self, ErrorCode.NONE if exists else ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = self._leader_of(states.topic, states.partition_for(transactional_id))
        if found is None:
            return self, ErrorCode.COORDINATOR_NOT_AVAILABLE
        reached = self.links.reaches(self.cluster.node_id, found.cluster.node_id)
        return found, ErrorCode.NONE if reached else ErrorCode.NETWORK_EXCEPTION

    def find_coordinator(self, topic: str, key: str) -> "Broker | None":
        """Return the coordinator of a transactional id or group, by its topic, as this broker knows it."""
        if not self._several:
            return self
        coordinator = self.transactions.states if topic == TRANSACTION_STATE_TOPIC else self.groups.offsets
        return self._with_id(self.metadata.leader_of(topic, coordinator.partition_for(key))[0])

    def complete_group_transaction(self, partition: "Partition", marker: TransactionMarker) -> ErrorCode:
        """Append a marker to an offsets partition, at the coordinator of its groups."""
        leader = self if not self._several else self._leader_of(partition.topic, partition.index)
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return leader.groups.complete_transaction(partition, marker)

    def _leader_of(self, topic: str, index: int) -> "Broker | None":
        return self._with_id(self.cluster.leader_of(topic, index)[0])

    def _with_id(self, node_id: int) -> "Broker | None":
        return next((each for each in self.brokers if each.cluster.node_id == node_id), None)

    def may(self, request: "Request", need: Need, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client has this right to the resource of this name. The check is charged."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        self.turns.charged_us += AUTHORIZE_US
        if authorizer.authorize(request.session, need, name):
            return True
        if not need.is_quiet:
            self.on_denied(request, need, name)
        return False

    def watch(self) -> "Events":
        """Keep the event history from now on."""
        from ottla.broker.events import Events  # only an admin port watches

        events = Events(self.clock.now_ms, self.count_open)
        for each in (self, *self.brokers):
            each.events = each.transactions.states.events = events
        return events


def count_rows(broker: Broker, request: Request, errors: Mapping[int, int]) -> None:
    """Count the errors of rows. Most APIs report them in no other way."""
    metrics = broker.metrics.apis[request.api_key]
    for error_code, rows in errors.items():
        metrics.count_error(error_code, rows)


Handle = Callable[[Broker, Request], Coroutine[Wait[Any], None, Reply]]
ReportRows = Callable[[Broker, Request, Any], None]


@dataclass(frozen=True)
class Api:
    """A served API: its versions, and the rights that its handler checks. The handler is imported on its first use."""

    key: ApiKey
    min_version: int
    max_version: int
    needs: Sequence[Need] = ()
    advertised_from: int | None = None
    """The lowest version that ApiVersions lists, if it is not `min_version`."""
    unstable_version: int | None = None
    """The version above `max_version` that is served with `unstable.api.versions.enable` only."""

    @cached_property
    def handle(self) -> Handle:
        """Serves a request."""
        handle: Handle = self._module().handle
        return handle

    @cached_property
    def report_rows(self) -> ReportRows:
        """Reports the `row_errors` of a reply in the metrics, the event history and the log."""
        report: ReportRows = getattr(self._module(), "report_rows", count_rows)
        return report

    def with_handler(self, handle: Handle) -> "Api":
        """Return this API with another handler, of a test or of the test kit."""
        changed = replace(self)
        changed.__dict__["handle"] = handle
        return changed

    def import_handler(self) -> None:
        """Import the handler, unless it is imported already."""
        self._module()

    def _module(self) -> ModuleType:
        return import_module(f"{__package__}.{self.key.name.lower()}")

    @property
    def title(self) -> str:
        """Kafka's name for the API, for logs and messages."""
        return self.key.title
