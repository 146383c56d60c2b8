"""The object graph of one broker, over any clock, disk and turns: the daemon's and the simulation's alike. shell"""

from collections.abc import Callable
from dataclasses import replace
from logging import getLogger
from uuid import UUID

from ottla.broker.api.context import DEFAULT_LISTENER, Broker
from ottla.broker.api.table import TABLE
from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.cluster.kraft_log import METADATA_SETTINGS
from ottla.broker.cluster.local_marker_writer import LocalMarkerWriter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.cluster.snapshots import MetadataSnapshots, SnapshotSettings
from ottla.broker.config import Config, ConfigInForce, TopicConfig, topic_config
from ottla.broker.config.option import DEFAULT
from ottla.broker.connection import Connection
from ottla.broker.costs import CONFIGURE_US, LOOK_US, ROW_US
from ottla.broker.deadline import Deadline
from ottla.broker.dispatch import Dispatcher
from ottla.broker.group.coordinator import GroupCoordinator
from ottla.broker.log.log_cleaner import LogCleaner
from ottla.broker.log.log_config import LogConfig, LogManagerConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.producer_state_manager import EXPIRY_SLICE
from ottla.broker.log.retention import Retention
from ottla.broker.memory import MOST_MEMORY_BYTES
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.disk import Disk
from ottla.broker.ports.workers import Workers
from ottla.broker.turns import Handler, OneAtATime, Turns
from ottla.broker.txn.coordinator import TransactionCoordinator
from ottla.broker.txn.markers import MARKERS_POSTPONED_MS
from ottla.broker.txn.settings import TransactionSettings
from ottla.protocol.frames import INITIAL_BYTES, SharedMemory
from ottla.protocol.primitives import NodeEndpoint

log = getLogger(__name__)

IDLE_SWEEPS = 4
RELIEF_MS = 5_000.0
"""Between two looks at who holds memory that others wait for."""
MOST_INDEX_INTERVAL_BYTES = 256 * 1024
"""A look-up walks over the batches between two entries of an index: 4,000 of them at most."""
FIRST_RETENTION_MS = 30_000
"""`log.initial.task.delay.ms`: a start is busy enough."""


class Assembly:
    """A broker that is open: its domain objects, its connections, its housekeeping. It listens nowhere by itself."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        disk: Disk,
        turns: Turns,
        truncate_damaged: frozenset[str] = frozenset(),
        workers: Workers | None = None,
        memory_bytes: int = MOST_MEMORY_BYTES,
    ) -> None:
        """Open the data directory and begin to load. LogDirectoryError or OSError leave the directory free.

        Without `workers` the turns do their work. `memory_bytes` is what clients may make the broker hold, unless
        `queued.max.request.bytes` says.
        """
        self.config = config
        self.connections: set[Connection] = set()
        self._clock = clock
        self._turns = turns
        self._shared = SharedMemory()
        disk.charge = turns.charge
        # What comes again and again, and what of it is under way, by name.
        self._timers: dict[str, Timer] = {}
        self._under_way: dict[str, OneAtATime] = {}

        def new_uuid() -> UUID:
            return UUID(bytes=disk.random_id(), version=4)

        self._in_force = in_force = ConfigInForce(config)
        logs = LogManager(disk, clock, turns, _log_settings(config, truncate_damaged))
        _open_directory(logs, config.log_dirs)
        cluster = Cluster(
            logs,
            clock,
            turns,
            logs.properties.node_id,
            lambda: new_uuid().bytes,
            lambda own: _partition_settings(in_force.of(cluster.node_id, cluster.image.broker_configs), own),
            _internal_topics(config),
            config.num_partitions,
            config.transaction_version,
            _metadata_settings(config),
        )
        try:
            cluster.open()
        except (LogDirectoryError, OSError):
            logs.abandon()
            raise
        self.config = config = in_force.of(cluster.node_id, cluster.image.broker_configs)
        _compare_levels(config, cluster)
        _warn_of_unknown_partitions(cluster, truncate_damaged)
        sink = LocalMarkerWriter(cluster, logs.flusher)
        transactions = TransactionCoordinator(cluster, sink, turns, clock, _transaction_settings(config))
        groups = GroupCoordinator(cluster, turns, clock, config, new_uuid)
        sink.completed_by[CONSUMER_OFFSETS_TOPIC] = groups.complete_transaction
        budget = config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else memory_bytes
        nowhere = {DEFAULT_LISTENER: NodeEndpoint(cluster.node_id, "", 0)}  # until it listens
        self.broker = Broker(config, clock, turns, logs, cluster, transactions, groups, nowhere, budget, workers)
        self.on_config_changed: Callable[[Config], None] = lambda config: None
        cluster.on_broker_configs_changed = self._broker_configs_changed
        self.dispatcher = Dispatcher(self.broker, TABLE, first_use=True)
        self._retention = Retention(cluster.partitions, disk, clock, turns, logs.deleter, logs.fail_unless_short)
        self._cleaner = LogCleaner(
            logs, disk, clock, turns, config.log_cleaner_dedupe_buffer_size, self.broker.long_work
        )
        self.snapshots = MetadataSnapshots(
            cluster.metadata_log, logs, clock, turns, _snapshot_settings(config), self._retention.look_at
        )
        turns.event(groups.open)
        turns.event(transactions.start)

    def start_housekeeping(self) -> None:
        """Checkpoints, expiry of producers and idle connections, at their intervals."""
        config = self.config
        self._every("checkpoint", config.replica_high_watermark_checkpoint_interval_ms, self.broker.logs.checkpoint)
        self._every("memory", RELIEF_MS, self._relieve_memory)
        self._every("metadata", config.replica_high_watermark_checkpoint_interval_ms, self.snapshots.look)
        self._every("expiry", config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self.broker.cluster.open_rest()
        interval_ms = config.log_retention_check_interval_ms
        first_ms = min(interval_ms, FIRST_RETENTION_MS)
        self._every("retention", interval_ms, self._delete_old_segments, first_ms=first_ms)
        if config.log_cleaner_enable:
            self._every("cleaner", config.log_cleaner_backoff_ms, self._cleaner.start)
        if config.connections_max_idle_ms > 0:
            self._every("idle", config.connections_max_idle_ms / IDLE_SWEEPS, self._sweep_connections)

    def accept(self, on_lost: Callable[[], None] | None = None, listener_name: str = DEFAULT_LISTENER) -> Connection:
        """The protocol object for one more accepted socket; `on_lost` is called when it has ended."""
        return Connection(
            self.dispatcher, self._turns, self.connections, self.config, self._shared, on_lost, listener_name
        )

    def close(self) -> None:
        """Stop timers and work in progress, and close the logs cleanly."""
        for timer in self._timers.values():
            timer.cancel()
        for work in self._under_way.values():
            work.discard()
        self._timers.clear()
        self.broker.cluster.stop()
        self.snapshots.stop()
        self._turns.event(self.broker.transactions.stop)
        self._turns.event(self.broker.groups.stop)
        self._cleaner.stop()
        self.broker.logs.close()

    def _every(self, name: str, interval_ms: float, work: Callable[[], None], *, first_ms: float | None = None) -> None:
        def run() -> None:
            arm(interval_ms)
            work()

        def arm(delay_ms: float) -> None:
            self._timers[name] = Deadline(self._clock, self._turns, delay_ms, run)

        arm(interval_ms if first_ms is None else first_ms)

    def _start(self, name: str, work: Callable[[], Handler[None]]) -> None:
        """Begin work of many turns, unless it is still under way since the last time."""
        if name not in self._under_way:
            self._under_way[name] = OneAtATime(self._turns, log_bug)
        self._under_way[name].start(work)

    def _delete_old_segments(self) -> None:
        self._start("retention", self._retention.run)

    def _expire_producers(self) -> None:
        self._start("expiry", self._expire_in_slices)

    async def _expire_in_slices(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in list(self.broker.cluster.partitions()):
            self._turns.charge(ROW_US)
            for forgotten in partition.log.remove_expired_producers(now_ms):
                self._turns.charge((min(len(partition.log.producer_state), EXPIRY_SLICE) + 2 * forgotten) * LOOK_US)
                await self._turns.share()
            await self._turns.share()

    def _broker_configs_changed(self) -> None:
        cluster = self.broker.cluster
        config = self._in_force.of(cluster.node_id, cluster.image.broker_configs)
        before, self.config, self.broker.config = self.config, config, config
        self.on_config_changed(config)
        self._cleaner.set_dedupe_buffer(config.log_cleaner_dedupe_buffer_size)
        if config.log_cleaner_backoff_ms != before.log_cleaner_backoff_ms and "cleaner" in self._timers:
            self._timers["cleaner"].cancel()
            self._every("cleaner", config.log_cleaner_backoff_ms, self._cleaner.start)
        self._start("reconfigure", self._reconfigure)

    async def _reconfigure(self) -> None:
        """Let every log act on what its topic inherits; once more if that has changed meanwhile."""
        done = None
        while done is not self.broker.config:
            done = self.broker.config
            for name in list(self.broker.cluster.topics):
                self._turns.charge(CONFIGURE_US)
                await self._turns.share()
                topic = self.broker.cluster.topics.get(name)  # it may be gone, or another
                if topic is not None:
                    self.broker.cluster.configure(topic)

    def _relieve_memory(self) -> None:
        if self.broker.memory.short:
            self._start("memory", lambda: self._look_over(Connection.relieve))
        else:
            self._shared.most_bytes = INITIAL_BYTES

    def _sweep_connections(self) -> None:
        self._start("idle", lambda: self._look_over(lambda connection: connection.sweep(IDLE_SWEEPS)))

    async def _look_over(self, look: Callable[[Connection], None]) -> None:
        """Look at every connection that is here, as the share allows."""
        for connection in list(self.connections):
            self._turns.charge(ROW_US)
            await self._turns.share()
            if connection in self.connections:
                look(connection)


def log_bug(error: Exception) -> None:
    """What `Turns` does with an exception of queued work."""
    log.error("A queued step failed", exc_info=error)


def _open_directory(logs: LogManager, directory: str) -> None:
    try:
        logs.open()
        if not logs.clean_start and logs.partition_dirs():
            log.info("The last stop was not a clean one: recovering")
    except FileExistsError as error:
        raise OSError(f"Data directory {directory}: {error.filename} is not a directory") from error
    except OSError as error:
        place = "" if error.filename in (None, directory) else f" ({error.filename})"
        raise OSError(f"Data directory {directory}: {error.strerror or error}{place}") from error


def _compare_levels(config: Config, cluster: Cluster) -> None:
    """Say so when the level that was asked for is not the one in force."""
    given, level = config.transaction_version, cluster.feature(TRANSACTION_FEATURE)
    if given != level and config.origin(TRANSACTION_FEATURE) != DEFAULT:
        log.warning("transaction.version is %d in this directory, not %d: UpdateFeatures changes it", level, given)


def _warn_of_unknown_partitions(cluster: Cluster, truncate_damaged: frozenset[str]) -> None:
    for name in sorted(truncate_damaged):
        topic, _, index = name.rpartition("-")
        if cluster.partition(topic, int(index)) is None:
            log.warning("--truncate-damaged %s: there is no such partition", name)


def _internal_topics(config: Config) -> dict[str, tuple[int, dict[str, str]]]:
    """Partition counts and forced configs (`TransactionStateManager`, `GroupCoordinatorService` of Kafka 4.3.1)."""
    return {
        TRANSACTION_STATE_TOPIC: (
            config.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        ),
        CONSUMER_OFFSETS_TOPIC: (
            config.offsets_topic_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        ),
    }


def _log_settings(config: Config, truncate_damaged: frozenset[str]) -> LogManagerConfig:
    return LogManagerConfig(
        directory=config.log_dirs,
        node_id=config.node_id,
        node_id_given=config.origin("node.id") != DEFAULT,
        cluster_id=config.cluster_id or None,
        file_delete_delay_ms=config.log_segment_delete_delay_ms,
        truncate_damaged=truncate_damaged,
    )


def _partition_settings(config: Config, own: dict[str, str]) -> LogConfig:
    topic = topic_config(config, own)
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=min(topic.index_interval_bytes, MOST_INDEX_INTERVAL_BYTES),
        max_message_bytes=topic.max_message_bytes,
        log_append_time=topic.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        cleanup_compact="compact" in topic.cleanup_policy,
        cleanup_delete="delete" in topic.cleanup_policy,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
        flush_messages=topic.flush_messages,
        compression_type=topic.compression_type,
        compression_level=_compression_level(topic),
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        refuse_sequence_reuse=config.transaction_sequence_reuse_refuse,
    )


def _compression_level(topic: TopicConfig) -> int | None:
    """The level for the topic's codec; None for the codec's own, and where there is no choice."""
    match topic.compression_type:
        case "gzip":
            return int(topic.compression_gzip_level) if topic.compression_gzip_level != "-1" else None
        case "lz4":
            return topic.compression_lz4_level
        case "zstd":
            return topic.compression_zstd_level
    return None


def _metadata_settings(config: Config) -> LogConfig:
    return replace(
        METADATA_SETTINGS,
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        file_delete_delay_ms=config.log_segment_delete_delay_ms,
    )


def _snapshot_settings(config: Config) -> SnapshotSettings:
    return SnapshotSettings(
        bytes_between=config.metadata_log_max_record_bytes_between_snapshots,
        interval_ms=config.metadata_log_max_snapshot_interval_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
    )


def _transaction_settings(config: Config) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expire_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        markers_wait_ms=config.transaction_markers_wait_ms,
        markers_delay_ms=0 if config.transaction_markers_wait_ms else MARKERS_POSTPONED_MS,
    )
