"""The object graph of one broker, over any clock, disk and turns. The daemon and the simulation both use it. shell"""

from collections.abc import Callable
from functools import cached_property, partial
from logging import getLogger
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.api.context import Broker
from ottla.broker.api.table import list_versions, served_table
from ottla.broker.cluster.frozen_metadata import FrozenMetadata
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from ottla.broker.cluster.leadership import Leadership, LeadershipProblem
from ottla.broker.cluster.marker_writer import MarkerWriter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.cluster.snapshots import MetadataSnapshots
from ottla.broker.config import Config
from ottla.broker.connection import Connection
from ottla.broker.costs import CONFIGURE_US, LOOKUP_US, ROW_US
from ottla.broker.deadline import Deadline
from ottla.broker.dispatch import Dispatcher
from ottla.broker.group.coordinator import GroupCoordinator
from ottla.broker.log.producer_state_manager import EXPIRY_SLICE
from ottla.broker.log.retention import Retention
from ottla.broker.memory import MOST_MEMORY_BYTES
from ottla.broker.metrics import Metrics, TransactionMetrics
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.disk import Disk
from ottla.broker.ports.listener import BufferedProtocol
from ottla.broker.ports.workers import Workers
from ottla.broker.security.scram import ScramUsers
from ottla.broker.security.session import DEFAULT_LISTENER
from ottla.broker.storage import Storage
from ottla.broker.turns import Handler, OneAtATime, Turns
from ottla.broker.txn.coordinator import TransactionCoordinator
from ottla.broker.txn.markers import MARKERS_POSTPONED_MS
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.producer_id_node import parse_address
from ottla.protocol.requests.frames import INITIAL_BYTES, SharedMemory
from ottla.protocol.steps import to_the_end

if TYPE_CHECKING:
    from ottla.broker.cluster.links import Links
    from ottla.broker.cluster.marker_channels import MarkerChannels
    from ottla.broker.cluster.zookeeper_blocks import ZooKeeperBlocks
    from ottla.broker.log.cleaning.log_cleaner import LogCleaner
    from ottla.broker.ports.peers import Peers
    from ottla.broker.ports.zookeeper import ZooKeeper
    from ottla.broker.security.logins import Logins

log = getLogger(__name__)

IDLE_SWEEPS: Final = 4
RELIEF_MS: Final = 5_000.0
"""The interval of the check for clients that hold memory while others wait for it."""
FIRST_RETENTION_MS: Final = 30_000
"""`log.initial.task.delay.ms`: the delay of the first retention check, because a start has enough work already."""


class Assembly:
    """An open broker: its domain objects, connections and periodic work. It has no listeners of its own."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        disk: Disk,
        turns: Turns,
        truncate_damaged: frozenset[str] = frozenset(),
        workers: Workers | None = None,
        memory_bytes: int = MOST_MEMORY_BYTES,
        storage: Storage | None = None,
        frozen: bool = False,
        broker_count: int = 1,
        peers: "Peers | None" = None,
        zookeeper: "ZooKeeper | None" = None,
    ) -> None:
        """Open the data directory and begin to load. LogDirectoryError or OSError leave the directory unlocked.

        Without `workers` long work runs in turns. `memory_bytes` limits the memory that clients can make the broker
        hold, unless `queued.max.request.bytes` is set. `storage` is given if the caller has opened it already, in
        steps; if not, it is opened for `broker_count` brokers. A `frozen` broker ends no transaction, expires, deletes
        and compacts nothing, until it thaws. Several brokers connect with each other by `peers`, or in memory.
        `zookeeper` is given for `producer.id.manager=zookeeper`.
        """
        self.config = config
        self.connections: dict[Connection, None] = {}
        """The connections of clients in the order of their arrival, in which the broker closes them when it stops."""
        self.peer_connections: dict[Connection, None] = {}
        """The connections between the brokers of the process, which no limits count."""
        self._clock = clock
        self._turns = turns
        self._shared = SharedMemory()
        # The periodic work and its runs in progress, by name.
        self._timers: dict[str, Timer] = {}
        self._under_way: dict[str, OneAtATime] = {}

        if storage is None:
            storage = Storage(config, clock, disk, turns, truncate_damaged, broker_count)
            to_the_end(storage.open())
        self._in_force, logs, cluster = storage.in_force, storage.logs, storage.cluster
        self.config = config = storage.config
        if peers is None and len(cluster.own_ids) > 1:
            from ottla.broker.ports.peers import MemoryPeers

            peers = MemoryPeers(lambda: clock.next_turn, self.accept_peer)
        self.broker, parts = _build_broker(storage, clock, turns, workers, memory_bytes, peers, zookeeper)
        self.broker.metrics.connections = self.connections
        self._logins = self._follow_security(storage)
        self.on_config_changed: Callable[[Config], None] = lambda config: None
        self.leadership = Leadership(cluster)
        self.on_broker_stopped: Callable[[int], None] = lambda number: None
        """Called with the number of a broker that has stopped, its place in `Broker.brokers`, to close its ports."""
        self.on_broker_started: Callable[[int], None] = lambda number: None
        """Called with the number of a broker that starts again, to open its ports. Raises OSError."""
        cluster.controller.on_broker_configs_changed = self._apply_broker_configs
        self.broker.served_apis = list_versions(served_table(config))
        self.broker.thaw = self.thaw
        if len(parts) > 1:
            self.broker.divide(parts)
            cluster.on_leader_changed.append(self._move_coordinator)
        self.dispatchers = [Dispatcher(each, served_table(config), first_use=True) for each in self.broker.brokers]
        self._retention = Retention(cluster.partitions, disk, clock, turns, logs.deleter, logs.fail_unless_short)
        self._disk = disk
        self.snapshots = MetadataSnapshots(
            cluster.metadata_log, logs, clock, turns, config, self._retention.delete_old_segments
        )
        self._is_frozen = frozen
        self._has_housekeeping = False
        for each in self.broker.brokers:
            turns.event(partial(each.groups.open, frozen=frozen))
            turns.event(partial(each.transactions.start, frozen=frozen))

    def _follow_security(self, storage: Storage) -> "dict[str, Logins]":
        """Load quotas, ACLs and users, follow their changes, and return the logins by listener name."""
        broker, cluster, clock = self.broker, storage.cluster, self._clock
        broker.quotas.load_quotas(cluster.image.client_quotas)
        cluster.controller.on_security_changed.append(broker.quotas.apply_changes)
        if storage.authorizer is not None:
            from ottla.broker.api.denial_log import DenialLog

            broker.authorizer = storage.authorizer
            broker.on_denied = DenialLog(broker, storage.authorizer).log
            cluster.controller.on_security_changed.append(storage.authorizer.follow)
        scram_users = ScramUsers(cluster.image.scram_credentials, token_bytes)
        cluster.controller.on_security_changed.append(scram_users.apply_changes)
        if not any(map(storage.config.has_logins, storage.config.listeners)):
            return {}
        from ottla.broker.ports.web import Web
        from ottla.broker.security.jwks import KeyFetchContext
        from ottla.broker.security.logins import logins_of

        logins = logins_of(storage.config, scram_users, KeyFetchContext(clock, self._turns, Web(clock.from_thread)))
        broker.mechanisms = {**logins}
        return logins

    def _move_coordinator(self, topic: str, index: int) -> None:
        """Let the new leader of a coordinator's partition coordinate it."""
        if topic not in INTERNAL_TOPICS:
            return
        leader, _ = self.broker.cluster.leader_of(topic, index)
        for each in self.broker.brokers:
            coordinator = each.groups if topic == CONSUMER_OFFSETS_TOPIC else each.transactions.states
            if each.cluster.node_id == leader:
                coordinator.become(index)
            else:
                coordinator.resign(index)

    def start_housekeeping(self) -> None:
        """Start the periodic work: checkpoints, retention, cleaning, expiry of producers, idle connections."""
        config = self.config
        self._every("checkpoint", config.replica_high_watermark_checkpoint_interval_ms, self.broker.logs.checkpoint)
        self._every("memory", RELIEF_MS, self._relieve_memory)
        self._every("metadata", config.replica_high_watermark_checkpoint_interval_ms, self.snapshots.take_if_due)
        self.broker.cluster.open_rest()
        self._has_housekeeping = True
        if not self._is_frozen:
            self._start_removals()
        for logins in self._logins.values():
            logins.start()
        if config.connections_max_idle_ms > 0:
            self._every("idle", config.connections_max_idle_ms / IDLE_SWEEPS, self._sweep_connections)

    def _start_removals(self) -> None:
        """Start the periodic work that removes producers, segments and records."""
        config = self.config
        self._every("expiry", config.producer_id_expiration_check_interval_ms, self._expire_producers)
        interval_ms = config.log_retention_check_interval_ms
        first_ms = min(interval_ms, FIRST_RETENTION_MS)
        self._every("retention", interval_ms, self._delete_old_segments, first_ms=first_ms)
        if config.log_cleaner_enable:
            self._every("cleaner", config.log_cleaner_backoff_ms, self._clean)

    def thaw(self) -> bool:
        """End the frozen state. Return False if the broker is not frozen."""
        if not self._is_frozen:
            return False
        self._is_frozen = False
        log.info("Thawed: transactions end, and records are deleted and compacted, from now on")
        for each in self.broker.brokers:
            each.transactions.unfreeze()
            each.groups.unfreeze()
        if self._has_housekeeping:
            self._start_removals()
        return True

    async def stop_broker(self, node_id: int) -> None:
        """Stop one of several brokers: others lead its partitions, its listeners are closed and its connections end.

        Raises LeadershipProblem; OSError if the change cannot be logged.
        """
        await self.leadership.stop_broker(node_id)
        number = self._number_of(node_id)
        self.on_broker_stopped(number)
        self.broker.brokers[number].transactions.sink.stop()
        self.broker.brokers[number].fetch_sessions.clear()
        for connection in [*self.connections, *self.peer_connections]:
            if connection.session.node_id == node_id:
                connection.close()

    async def start_broker(self, node_id: int) -> None:
        """Start a stopped broker on its former ports. Raises LeadershipProblem; OSError if a port is taken or the
        change cannot be logged."""
        self.leadership.check_start(node_id)
        self.on_broker_started(self._number_of(node_id))
        await self.leadership.start_broker(node_id)

    def freeze_metadata(self, node_id: int) -> None:
        """Let Metadata and FindCoordinator of one of several brokers answer what is true now. Raises
        LeadershipProblem."""
        broker = self._broker_of(node_id)
        if broker.metadata is not broker.cluster:
            raise LeadershipProblem(f"the metadata of broker {node_id} are frozen already")
        broker.metadata = FrozenMetadata(broker.cluster.image, broker.cluster.stopped_ids)

    def unfreeze_metadata(self, node_id: int) -> None:
        """Let a broker with frozen metadata answer what is true. Raises LeadershipProblem."""
        broker = self._broker_of(node_id)
        if broker.metadata is broker.cluster:
            raise LeadershipProblem(f"the metadata of broker {node_id} are not frozen")
        broker.metadata = broker.cluster

    def _broker_of(self, node_id: int) -> Broker:
        self.leadership.check_id(node_id)
        return self.broker.brokers[self._number_of(node_id)]

    def _number_of(self, node_id: int) -> int:
        return node_id - self.broker.cluster.node_id

    def accept(
        self, on_lost: Callable[[], None] | None = None, listener_name: str = DEFAULT_LISTENER, broker: int = 0
    ) -> Connection:
        """Return the protocol object of an accepted socket. `on_lost` is called when the connection has ended.

        `broker` is the number of the broker that serves it, in the order of `Broker.brokers`.
        """
        self.broker.metrics.connections_accepted += 1
        connection = Connection(
            self.dispatchers[broker], self._turns, self.connections, self.config, self._shared, on_lost, listener_name
        )
        connection.session.node_id = self.broker.brokers[broker].cluster.node_id
        mechanisms = self.broker.mechanisms.get(listener_name)
        if mechanisms is not None:
            from ottla.broker.security.sasl import Authenticator

            authenticator = Authenticator(mechanisms, self._clock)
            connection.ask_for_login(authenticator, self.config, mechanisms.max_receive_bytes)
        return connection

    def accept_peer(self, node_id: int) -> BufferedProtocol | None:
        """Return the protocol object of a connection to the broker of this id from another one; None if it is
        stopped."""
        if node_id in self.broker.cluster.stopped_ids:
            return None
        dispatcher = self.dispatchers[self._number_of(node_id)]
        connection = Connection(dispatcher, self._turns, self.peer_connections, self.config, self._shared)
        connection.session.node_id = node_id
        connection.session.is_peer = True
        return cast(BufferedProtocol, connection)

    def close(self) -> None:
        """Stop timers and work in progress, and close the logs cleanly."""
        if self.broker.id_blocks is not None:
            self.broker.id_blocks.close()
        for timer in self._timers.values():
            timer.cancel()
        for work in self._under_way.values():
            work.discard()
        self._timers.clear()
        for logins in self._logins.values():
            logins.stop()
        self.broker.cluster.stop()
        self.snapshots.stop()
        for each in self.broker.brokers:
            self._turns.event(each.transactions.stop)
            each.transactions.sink.stop()
            self._turns.event(each.groups.stop)
        for connection in list(self.peer_connections):
            connection.close()
        if "_cleaner" in self.__dict__:
            self._cleaner.stop()
        self.broker.logs.close()

    def _every(self, name: str, interval_ms: float, work: Callable[[], None], *, first_ms: float | None = None) -> None:
        def run() -> None:
            arm(interval_ms)
            work()

        def arm(delay_ms: float) -> None:
            self._timers[name] = Deadline(self._clock, self._turns, delay_ms, run)

        arm(interval_ms if first_ms is None else first_ms)

    def _start_parts(self, name: str, work: Callable[[], Handler[None]]) -> None:
        """Begin work of many turns, unless the last run is still in progress."""
        self._under_way.setdefault(name, OneAtATime(self._turns, log_bug)).start(work)

    @cached_property
    def _cleaner(self) -> "LogCleaner":
        from ottla.broker.log.cleaning.log_cleaner import LogCleaner

        buffer_bytes = self.config.log_cleaner_dedupe_buffer_size
        return LogCleaner(self.broker.logs, self._disk, self._clock, self._turns, buffer_bytes, self.broker.long_work)

    def _clean(self) -> None:
        self._cleaner.start()

    def _delete_old_segments(self) -> None:
        self._start_parts("retention", self._retention.run)

    def _expire_producers(self) -> None:
        self._start_parts("expiry", self._expire_in_slices)

    async def _expire_in_slices(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in list(self.broker.cluster.partitions()):
            self._turns.charge(ROW_US)
            for forgotten in partition.log.remove_expired_producers(now_ms):
                await self._turns.spend(
                    (min(len(partition.log.producer_state), EXPIRY_SLICE) + 2 * forgotten) * LOOKUP_US
                )
            await self._turns.yield_if_due()

    def _apply_broker_configs(self) -> None:
        cluster = self.broker.cluster
        config = self._in_force.of(cluster.node_id, cluster.image.broker_configs)
        before, self.config = self.config, config
        self.broker.config = config
        for each in self.broker.brokers:
            each.config = config
            each.groups.consumer_groups.configure(config)
        self.on_config_changed(config)
        if "_cleaner" in self.__dict__:
            self._cleaner.set_dedupe_buffer(config.log_cleaner_dedupe_buffer_size)
        if config.log_cleaner_backoff_ms != before.log_cleaner_backoff_ms and "cleaner" in self._timers:
            self._timers["cleaner"].cancel()
            self._every("cleaner", config.log_cleaner_backoff_ms, self._clean)
        self._start_parts("reconfigure", self._reconfigure)

    async def _reconfigure(self) -> None:
        """Apply the broker's configs to every log; repeat this if they have changed in the meantime."""
        done = None
        while done is not self.broker.config:
            done = self.broker.config
            for name in list(self.broker.cluster.topics):
                await self._turns.spend(CONFIGURE_US)
                topic = self.broker.cluster.topics.get(name)  # it may be deleted or replaced
                if topic is not None:
                    self.broker.cluster.configure(topic)

    def _relieve_memory(self) -> None:
        if self.broker.memory.short:
            self._start_parts("memory", lambda: self._visit_connections(Connection.close_on_stall))
        else:
            self._shared.most_bytes = INITIAL_BYTES

    def _sweep_connections(self) -> None:
        self._start_parts("idle", lambda: self._visit_connections(lambda connection: connection.sweep(IDLE_SWEEPS)))

    async def _visit_connections(self, visit: Callable[[Connection], None]) -> None:
        """Call `visit` for every open connection, and yield when the turn budget is spent."""
        for connection in list(self.connections):
            await self._turns.spend(ROW_US)
            if connection in self.connections:
                visit(connection)


def _count_ids_with(
    zookeeper: "ZooKeeper", config: Config, cluster: Cluster, turns: Turns, clock: Clock
) -> "ZooKeeperBlocks":
    """Let the brokers of the cluster take blocks of producer ids from ZooKeeper."""
    from ottla.broker.cluster.zookeeper_blocks import ZooKeeperBlocks

    blocks = ZooKeeperBlocks(zookeeper, parse_address(config.zookeeper_connect), cluster.controller, turns, clock)
    cluster.take_producer_ids_from(blocks.take_block)
    return blocks


def _divide(
    cluster: Cluster, turns: Turns, clock: Clock, peers: "Peers"
) -> "tuple[Links, list[Cluster], list[MarkerChannels | None]]":
    """Return the links between several brokers, and for each its view of the cluster and its channel to the others."""
    from ottla.broker.cluster.links import Links
    from ottla.broker.cluster.marker_channels import MarkerChannels
    from ottla.broker.cluster.view import View

    links = Links(cluster.own_ids)
    views: list[Cluster] = [View(cluster, node_id) for node_id in cluster.own_ids]
    return links, views, [MarkerChannels(view.node_id, turns, clock, links, peers) for view in views]


def _build_broker(
    storage: Storage,
    clock: Clock,
    turns: Turns,
    workers: Workers | None,
    memory_bytes: int,
    peers: "Peers | None",
    zookeeper: "ZooKeeper | None",
) -> tuple[Broker, list[tuple[Cluster, TransactionCoordinator, GroupCoordinator]]]:
    """Return the broker, and for each broker of the process its view of the cluster and its coordinators."""
    config, logs, cluster = storage.config, storage.logs, storage.cluster
    id_blocks = None if zookeeper is None else _count_ids_with(zookeeper, config, cluster, turns, clock)
    metrics = Metrics(TransactionMetrics(), logs.flusher.metrics)
    markers_delay_ms = 0 if config.transaction_markers_wait_ms else MARKERS_POSTPONED_MS
    links: Links | None = None
    views: list[Cluster] = [cluster]
    channels: list[MarkerChannels | None] = [None]
    if len(cluster.own_ids) > 1 and peers is not None:
        links, views, channels = _divide(cluster, turns, clock, peers)
    sinks = [MarkerWriter(cluster, logs.flusher, each) for each in channels]
    parts = [
        (
            view,
            TransactionCoordinator(view, sink, turns, clock, config, markers_delay_ms, metrics.transactions),
            GroupCoordinator(view, turns, clock, config, storage.new_uuid, workers),
        )
        for view, sink in zip(views, sinks, strict=True)
    ]
    _, transactions, groups = parts[0]
    nowhere = {DEFAULT_LISTENER: NodeEndpoint(cluster.node_id, "", 0)}  # until it listens
    budget = config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else memory_bytes
    broker = Broker(config, clock, turns, logs, cluster, transactions, groups, nowhere, budget, workers, metrics)
    broker.links = links
    broker.id_blocks = id_blocks
    for sink in sinks:
        sink.completed_by[CONSUMER_OFFSETS_TOPIC] = broker.complete_group_transaction
    return broker, parts


def log_bug(error: Exception) -> None:
    """Log an exception of queued work. `Turns` calls this."""
    log.error("A queued step failed", exc_info=error)
