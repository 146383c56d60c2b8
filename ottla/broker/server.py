"""The life cycle of the daemon: open, be ready, drain, stop. shell"""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import uvloop

from ottla.broker.api.context import Broker
from ottla.broker.assembly import Assembly, log_bug
from ottla.broker.collector import Collector
from ottla.broker.config import Config, Listener
from ottla.broker.health import Health
from ottla.broker.late_modules import import_rest
from ottla.broker.listening import Listeners, try_ports
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.memory import LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES
from ottla.broker.metrics import TurnTimer
from ottla.broker.ports.clock import Clock, LoopClock
from ottla.broker.ports.disk import Disk, RealDisk
from ottla.broker.ports.machine import has_terminal, machine_bytes, return_freed_memory
from ottla.broker.ports.network import LoopNetwork
from ottla.broker.ports.workers import ThreadWorkers
from ottla.broker.storage import Storage
from ottla.broker.turns import Turns
from ottla.protocol.walked import describe_build

if TYPE_CHECKING:
    from ottla.broker.ports.peers import LoopPeers
    from ottla.broker.ports.zookeeper import KazooZooKeeper

log = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 1.0
HALT_SECONDS: Final = 10.0
"""The time that a broker with failed storage may take to end, because calls to a broken disk may hang."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# `BrokerLifecycleManager` and `KafkaRaftServer` of Kafka 4.3.1, and `KafkaServer` of those with a ZooKeeper.
_KAFKA_LINES: Final = """\
[BrokerLifecycleManager id={node_id}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.
[KafkaRaftServer nodeId={node_id}] Kafka Server started
[KafkaServer id={node_id}] started
"""


class StartGivenUp(Exception):
    """The broker was stopped while it recovered its logs. They are in the state that a crash at that moment would
    leave."""


class BrokerParts:
    """Replaceable parts of a broker: clock, disk and assembly. This class uses the real ones; a test kit's own controls
    them."""

    def clock_over(self, real: Clock) -> Clock:
        """Return the broker's clock, given the machine's clock."""
        return real

    def disk(self, open_files_max: int) -> Disk:
        """Return the broker's disk."""
        return RealDisk(open_files_max)

    def on_assembly(self, assembly: Assembly) -> None:
        """Do nothing by default. Called when the broker is built, before it accepts connections."""


class AdminServer(Protocol):
    """The admin port of a broker (`ottla.admin.serving.BrokerAdmin`)."""

    async def start(self, network: LoopNetwork, clock: Clock, turns: Turns, health: Health) -> None:
        """Bind the port and serve only the health pages. Raises OSError."""

    def serve(self, broker: Broker, started_ms: int) -> None:
        """Serve all pages of a broker that has opened its logs."""

    @property
    def address(self) -> str | None:
        """The port's HTTP address, None before the start."""

    def close(self) -> None:
        """Stop listening and close all connections."""


class Server:
    """A broker, or several ones over one log, on one event loop."""

    def __init__(
        self,
        config: Config,
        truncate_damaged: frozenset[str] = frozenset(),
        admin: AdminServer | None = None,
        parts: BrokerParts | None = None,
        frozen: bool = False,
        broker_count: int = 1,
    ) -> None:
        self.config = config
        self._frozen = frozen
        self._broker_count = broker_count
        self._parts = parts or BrokerParts()
        self._truncate_damaged = truncate_damaged
        self._admin = admin
        self._listening: Listeners | None = None
        self._collector = Collector()
        self._health = Health()
        self.is_stopping = False
        """Set when a stop was requested. A start then gives up the recovery of logs."""
        self._assembly: Assembly
        self._workers: ThreadWorkers
        self.broker: Broker

    async def start(self) -> list[Listener]:
        """Open the data directory and listen. Return the advertised addresses, one for each listener.

        Raises LogDirectoryError or OSError; the directory is unlocked then, and clean if it was opened completely.
        Raises StartGivenUp if `is_stopping` is set while logs are recovered; the next start recovers the rest.
        """
        loop = asyncio.get_running_loop()
        real_clock = LoopClock(loop)
        started_ms = real_clock.now_ms()
        turns = self._turns(real_clock)
        real_clock.enter = turns.event
        clock = self._parts.clock_over(real_clock)
        self._workers = ThreadWorkers(clock.from_thread)
        network = LoopNetwork(loop)
        if not Path(self.config.log_dirs).exists():
            await try_ports(
                network, self.config.listeners, self._broker_count
            )  # otherwise a failed start leaves an empty directory
        if self._admin is not None:
            await self._admin.start(network, real_clock, turns, self._health)
        disk = self._parts.disk(self.config.max_open_log_files)
        memory_bytes = max(LEAST_MEMORY_BYTES, min(MOST_MEMORY_BYTES, machine_bytes() // 8))
        try:
            storage = Storage(self.config, clock, disk, turns, self._truncate_damaged, self._broker_count)
            self._health.starting(storage.logs)
            await self._open(storage, turns)
        except (LogDirectoryError, OSError, StartGivenUp):
            if self._admin is not None:
                self._admin.close()
            raise
        peers = _peers(loop) if self._broker_count > 1 else None
        zookeeper = _zookeeper(self.config, clock) if self.config.producer_id_manager == "zookeeper" else None
        self._assembly = Assembly(
            self.config,
            clock,
            disk,
            turns,
            workers=self._workers,
            memory_bytes=memory_bytes,
            storage=storage,
            frozen=self._frozen,
            peers=peers,
            zookeeper=zookeeper,
        )
        self.broker = self._assembly.broker
        if isinstance(turns.meter, TurnTimer):
            self.broker.metrics.measure(real_clock.monotonic_ms, turns.meter.time)
        self._parts.on_assembly(self._assembly)
        try:
            if self._admin is not None:
                self._admin.serve(self.broker, started_ms)
            self._listening = Listeners(self._assembly, turns, network, peers)
            addresses = await self._listening.open()
        except OSError:
            await self.stop()
            raise
        self._health.running(self.broker)
        directory, listeners = Path(self.config.log_dirs).absolute(), self._listening.describe()
        log.info("Serving %s on %s (%s)", directory, listeners, describe_build())
        self._assembly.start_housekeeping()
        self._finish_start(turns)
        return addresses

    def _finish_start(self, turns: Turns) -> None:
        """Begin to do what no client waits for: import the rest, then collect the garbage of the start."""

        def log_and_collect(error: Exception) -> None:
            log_bug(error)
            self._collector.start()

        turns.start(import_rest(turns), lambda _: self._collector.start(), log_and_collect)

    async def stop(self) -> None:
        """Stop listening, let requests in progress end, close the logs cleanly."""
        self._health.stopping()
        if self._listening is not None:
            self._listening.close()
        connections = self._assembly.connections
        for connection in list(connections):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS
        while connections and loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(connections):
            connection.close()
        if self._admin is not None:
            self._admin.close()
        self._assembly.close()
        self._workers.stop()
        self._collector.stop()

    def take_keystores(self) -> bool:
        """Let every listener with TLS read its stores again. Return False if no listener has TLS. During a start or a
        stop they are not read: a start reads them anyway, and a stop does not need them."""
        if self._listening is not None and not self.is_stopping:
            self._listening.take_keystores()
        return any(self.config.is_encrypted(listener) for listener in self.config.listeners)

    async def _open(self, storage: Storage, turns: Turns) -> None:
        """Open the storage in turns, so that the event loop runs and health requests can report the remaining work."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = self._open_in_shares(storage, turns)

        def begin() -> None:
            turns.start(work, opened.set_result, opened.set_exception)

        turns.event(begin)
        await opened

    async def _open_in_shares(self, storage: Storage, turns: Turns) -> None:
        steps = storage.open()
        for step in steps:
            assert isinstance(step, float)
            await turns.spend(step)
            if self.is_stopping and storage.logs.remaining.logs:
                steps.close()
                raise StartGivenUp

    def _turns(self, clock: LoopClock) -> Turns:
        """Return the turns of the broker, measured if there is an admin port."""
        turns = Turns(clock.next_turn, log_bug)
        if self._admin is not None:
            turns.meter = TurnTimer(clock.monotonic_ms)
        return turns

    @property
    def admin_address(self) -> str | None:
        """The address of the admin port, or None."""
        return None if self._admin is None else self._admin.address


def run(
    config: Config,
    *,
    ready_file: str | None = None,
    kafka_lines: bool = False,
    truncate_damaged: frozenset[str] = frozenset(),
    admin: AdminServer | None = None,
    parts: BrokerParts | None = None,
    frozen: bool = False,
    broker_count: int = 1,
) -> int:
    """Serve until SIGTERM or SIGINT, or a SIGHUP that is not for keystores. Return the exit code.

    When clients can connect, prints `ready PLAINTEXT://host:port`, a line for each listener by its name of each of
    `broker_count` brokers, to stdout and to `ready_file`, then `admin http://host:port` if there is such a port, and
    with `kafka_lines` Kafka's own lines.
    With `frozen` the broker ends no transaction, expires, deletes and compacts nothing, until it thaws.
    `ready_file` is removed first at a start, and when clients cannot connect any more. Returns 0 after a clean stop.
    Returns 1 when the directory or a port is not available, or when the storage failed, which ends the broker unless
    `log.dir.failure.exit` disables that.
    """
    _raise_file_limit()
    return_freed_memory()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            server = Server(config, truncate_damaged, admin, parts, frozen, broker_count)
            return runner.run(_serve(server, ready_file, kafka_lines))
    except (LogDirectoryError, OSError) as error:
        log.error("%s", error)
        return 1


async def _serve(server: Server, ready_file: str | None, kafka_lines: bool) -> int:
    stopping = asyncio.Event()
    had_terminal = has_terminal()

    def on_signal() -> None:
        if stopping.is_set():
            log.warning("Second signal: leaving without a clean shutdown")
            _remove_ready_file(ready_file)
            os._exit(1)
        stopping.set()
        server.is_stopping = True

    def on_hangup() -> None:
        """Stop a broker whose terminal is closed. Reload the certificates of a daemon with TLS. Stop any other
        daemon."""
        is_left = had_terminal and not has_terminal()
        if is_left or not server.take_keystores():
            on_signal()

    # The loop handles no signals while the start reads logs, so Python's own handlers are used until then.
    signals = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    acts = {signal.SIGTERM: on_signal, signal.SIGINT: on_signal, signal.SIGHUP: on_hangup}
    for number in signals:
        signal.signal(number, lambda number, _frame: acts[signal.Signals(number)]())
    _remove_ready_file(ready_file)  # of an earlier run: a process that waits for the file must not see the old one
    try:
        addresses = await server.start()
    except StartGivenUp:
        log.info("Stopped before all logs were recovered: the next start recovers them")
        _ignore_signals(signals)
        return 0
    loop = asyncio.get_running_loop()
    if not stopping.is_set():  # the loop would handle a signal again that it has not read yet
        for number in signals:
            loop.add_signal_handler(number, acts[number])
    watch = _stop_with_storage(server, stopping)
    try:
        if not stopping.is_set():
            more = _KAFKA_LINES.format(node_id=server.broker.cluster.node_id) if kafka_lines else ""
            _report_ready(addresses, server.admin_address, ready_file, more)
        await stopping.wait()
    finally:
        log.info("Stopping")
        _remove_ready_file(ready_file)
        await server.stop()
        watch.cancel()
        log.info("Stopped")
        for number in signals:
            loop.remove_signal_handler(number)
        _ignore_signals(signals)
    return 0 if server.broker.logs.offline is None else 1


def _ignore_signals(signals: Sequence[signal.Signals]) -> None:
    """Ignore further signals after the stop, so that a late one does not look like a failure while the process ends.
    The handler does nothing instead of SIG_IGN, because child processes inherit ignored signals."""
    for number in signals:
        signal.signal(number, lambda _number, _frame: None)


def _stop_with_storage(server: Server, stopping: asyncio.Event) -> threading.Timer:
    """Set `stopping` when the log directory fails, and end the process if the stop takes too long. Does nothing if not
    configured."""
    logs = server.broker.logs
    watch = threading.Timer(HALT_SECONDS, os._exit, (1,))
    watch.daemon = True

    def on_offline() -> None:
        log.critical("Shutdown broker because all log dirs in %s have failed", logs.directory)  # in Kafka's words
        stopping.set()
        watch.start()

    if server.config.log_dir_failure_exit:
        logs.on_offline = on_offline
        if logs.offline is not None:
            on_offline()
    return watch


def _report_ready(addresses: Sequence[Listener], admin_address: str | None, ready_file: str | None, more: str) -> None:
    lines = "".join(f"ready {address}\n" for address in addresses)
    if admin_address is not None:
        lines += f"admin {admin_address}\n"
    if ready_file is not None:
        Path(ready_file).write_text(lines)
    sys.stdout.write(lines + more)
    sys.stdout.flush()


def _remove_ready_file(ready_file: str | None) -> None:
    """Remove the ready file. Errors are ignored: a file that cannot be removed cannot be written either."""
    if ready_file is not None:
        with contextlib.suppress(OSError):
            Path(ready_file).unlink()


def _peers(loop: asyncio.AbstractEventLoop) -> "LoopPeers":
    from ottla.broker.ports.peers import LoopPeers

    return LoopPeers(loop)


def _zookeeper(config: Config, clock: Clock) -> "KazooZooKeeper":
    from ottla.broker.ports.zookeeper import KazooZooKeeper
    from ottla.protocol.producer_id_node import parse_address

    return KazooZooKeeper(parse_address(config.zookeeper_connect).hosts, clock.from_thread)


def _raise_file_limit() -> None:
    """Raise the limit of descriptors to the maximum of the system, because a broker holds a few for each partition."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
