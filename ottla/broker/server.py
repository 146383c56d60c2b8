"""The daemon's life: build the object graph, open, be ready, drain, stop. shell"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import uvloop

from ottla.broker.api.context import Broker
from ottla.broker.api.table import TABLE
from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.cluster.leaders import Leaders
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config, Listener, topic_config
from ottla.broker.config.option import DEFAULT
from ottla.broker.connection import Connection
from ottla.broker.dispatch import Dispatcher
from ottla.broker.group.coordinator import GroupCoordinator
from ottla.broker.log.manager import LogDirectoryError, LogManager
from ottla.broker.log.settings import LogSettings, PartitionSettings
from ottla.broker.ports.clock import LoopClock
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns
from ottla.broker.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.protocol import codec

log = logging.getLogger("ottla.server")

DRAIN_SECONDS = 1.0
IDLE_SWEEPS = 4
ACCEPT_BACKLOG = 1024
FREEZE_AGAIN_MS = 100.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Server:
    """One broker on one event loop."""

    def __init__(self, config: Config, truncate_damaged: frozenset[str] = frozenset()) -> None:
        self.config = config
        self._truncate_damaged = truncate_damaged
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self.broker: Broker

    async def start(self) -> str:
        """Open the data directory and listen; returns the address that clients are given.

        Raises LogDirectoryError or OSError; the directory is free then, and clean if it was opened whole.
        """
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        turns = Turns(clock.next_turn, _log_bug)
        clock.enter = turns.event
        self._clock, self._turns = clock, turns
        config = self.config
        logs = LogManager(RealDisk(), clock, turns, _log_settings(config, self._truncate_damaged))
        _open_directory(logs, config.log_dirs)
        cluster = Cluster(
            logs,
            clock,
            logs.node_id,
            _random_id,
            lambda own: _partition_settings(config, own),
            _internal_topics(config),
            config.num_partitions,
            config.transaction_version,
        )
        try:
            cluster.open()
        except (LogDirectoryError, OSError):
            logs.abandon()
            raise
        self._compare_levels(cluster)
        _warn_of_unknown_partitions(cluster, self._truncate_damaged)
        sink = Leaders(cluster)
        transactions = TransactionCoordinator(cluster, sink, turns, clock, _transaction_settings(config))
        groups = GroupCoordinator(cluster, turns, clock, config)
        sink.sinks[CONSUMER_OFFSETS_TOPIC] = groups
        self.broker = Broker(config, clock, turns, logs, cluster, transactions, groups, "", 0)
        turns.event(groups.open)
        turns.event(transactions.start)
        _load_codecs()
        try:
            address = await self._listen(loop)
        except OSError:
            await self.stop()
            raise
        self._every(config.replica_high_watermark_checkpoint_interval_ms, logs.checkpoint)
        self._every(config.producer_id_expiration_check_interval_ms, self._expire_producers)
        if config.connections_max_idle_ms > 0:
            self._every(config.connections_max_idle_ms / IDLE_SWEEPS, self._sweep_connections)
        gc.collect()
        gc.freeze()
        self._clock.call_later(FREEZE_AGAIN_MS, self._freeze_loaded)
        return address

    async def stop(self) -> None:
        """Stop listening, let requests in progress end, close the logs cleanly."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS
        while self._connections and loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.close()
        self._turns.event(self.broker.transactions.stop)
        self._turns.event(self.broker.groups.stop)
        self.broker.logs.close()

    def _compare_levels(self, cluster: Cluster) -> None:
        """Say so when the level that was asked for is not the one in force."""
        given, level = self.config.transaction_version, cluster.feature(TRANSACTION_FEATURE)
        if given != level and self.config.origin(TRANSACTION_FEATURE) != DEFAULT:
            log.warning("transaction.version is %d in this directory, not %d: UpdateFeatures changes it", level, given)

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> str:
        dispatcher = Dispatcher(self.broker, TABLE)
        config = self.config

        def accept() -> Connection:
            return Connection(dispatcher, self._turns, self._connections, config)

        listener = config.listener
        host = listener.host or None
        try:
            self._listener = await loop.create_server(accept, host, listener.port, backlog=ACCEPT_BACKLOG)
        except OSError as error:
            # asyncio puts the address into strerror once more; the resolver's numbers are below 0.
            reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
            raise OSError(f"Cannot listen on {listener}: {reason}") from error
        port = self._listener.sockets[0].getsockname()[1]
        given = config.advertised_listener
        self.broker.host = given.host or socket.gethostname()
        self.broker.port = given.port or port
        address = str(Listener("PLAINTEXT", self.broker.host, self.broker.port))
        told = "" if self.broker.port == port else f", and clients are told {address} (advertised.listeners)"
        log.info("Serving %s on %s%s", Path(config.log_dirs).absolute(), listener._replace(port=port), told)
        return address

    def _every(self, interval_ms: float, work: Callable[[], None]) -> None:
        def run() -> None:
            self._clock.call_later(interval_ms, run)
            work()

        self._clock.call_later(interval_ms, run)

    def _freeze_loaded(self) -> None:
        """Keep what is loaded behind the start from the collector, too: it would look at every id again and again."""
        if self.broker.transactions.loading or self.broker.groups.listed()[0]:
            self._clock.call_later(FREEZE_AGAIN_MS, self._freeze_loaded)
        else:
            gc.freeze()

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self.broker.cluster.partitions():
            partition.expire_producers(now_ms)

    def _sweep_connections(self) -> None:
        for connection in list(self._connections):
            connection.sweep(IDLE_SWEEPS)


def run(config: Config, *, ready_file: str | None = None, truncate_damaged: frozenset[str] = frozenset()) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; returns the exit code.

    Prints `ready PLAINTEXT://host:port` to stdout (and into `ready_file`) when clients can connect. 0 after a clean
    stop, 1 when the directory or the port cannot be had or the storage failed.
    """
    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(Server(config, truncate_damaged), ready_file))
    except (LogDirectoryError, OSError) as error:
        log.error("%s", error)
        return 1


async def _serve(server: Server, ready_file: str | None) -> int:
    stopping = asyncio.Event()

    def on_signal() -> None:
        if stopping.is_set():
            log.warning("Second signal: leaving without a clean shutdown")
            os._exit(1)
        stopping.set()

    # The loop hears no signal while the start reads logs, so Python's own handlers stand in.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for number in heard:
        signal.signal(number, lambda _number, _frame: on_signal())
    if ready_file is not None:
        Path(ready_file).unlink(missing_ok=True)  # an earlier run's: who waits for it must not take that for ours
    address = await server.start()
    loop = asyncio.get_running_loop()
    for number in heard:
        loop.add_signal_handler(number, on_signal)
    try:
        if not stopping.is_set():
            _say_ready(address, ready_file)
        await stopping.wait()
    finally:
        log.info("Stopping")
        await server.stop()
        log.info("Stopped")
    return 0 if server.broker.logs.offline is None else 1


def _say_ready(address: str, ready_file: str | None) -> None:
    line = f"ready {address}\n"
    if ready_file is not None:
        Path(ready_file).write_text(line)
    sys.stdout.write(line)
    sys.stdout.flush()


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


def _warn_of_unknown_partitions(cluster: Cluster, truncate_damaged: frozenset[str]) -> None:
    for name in sorted(truncate_damaged):
        topic, _, index = name.rpartition("-")
        if cluster.partition(topic, int(index)) is None:
            log.warning("--truncate-damaged %s: there is no such partition", name)


def _raise_file_limit() -> None:
    """A broker holds a few descriptors per partition: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _random_id() -> bytes:
    return uuid4().bytes


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


def _load_codecs() -> None:
    """Import kafka-python's messages now (0.15 s), not while the first client waits and everybody with it."""
    for key in TABLE:
        codec.request_class(key)
        codec.response_class(key)


def _log_settings(config: Config, truncate_damaged: frozenset[str]) -> LogSettings:
    return LogSettings(
        directory=config.log_dirs,
        node_id=config.node_id,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        file_delete_delay_ms=config.log_segment_delete_delay_ms,
        truncate_damaged=truncate_damaged,
    )


def _partition_settings(config: Config, own: dict[str, str]) -> PartitionSettings:
    topic = topic_config(config, own)
    return PartitionSettings(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        max_message_bytes=topic.max_message_bytes,
        log_append_time=topic.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        cleanup_compact="compact" in topic.cleanup_policy,
    )


def _transaction_settings(config: Config) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expire_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def _log_bug(error: Exception) -> None:
    log.error("A queued step failed", exc_info=error)
