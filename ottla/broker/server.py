"""The daemon's life: open, be ready, drain, stop. shell"""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import uvloop

from ottla.broker.admission import Admission, Limits, Seldom
from ottla.broker.api.context import Broker
from ottla.broker.api.table import TABLE
from ottla.broker.assembly import Assembly, log_bug
from ottla.broker.collector import Collector
from ottla.broker.config import Config, Listener
from ottla.broker.config.listeners import parse_connections_per_ip
from ottla.broker.connection import Connection
from ottla.broker.costs import CONNECTION_US
from ottla.broker.log.log_manager import LogDirectoryError
from ottla.broker.memory import LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES
from ottla.broker.ports.allocator import give_back_what_is_freed
from ottla.broker.ports.clock import LoopClock
from ottla.broker.ports.descriptors import allowed, connection_share, shortage
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.listener import Listener as SocketListener
from ottla.broker.ports.listener import bind
from ottla.broker.ports.machine import machine_bytes
from ottla.broker.ports.workers import ThreadWorkers
from ottla.broker.turns import Turns
from ottla.protocol import codec

log = logging.getLogger("ottla.server")

DRAIN_SECONDS = 1.0
HALT_SECONDS: Final = 10.0
"""How long a broker whose storage failed may take to end: a disk that hangs must not keep it."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Server:
    """One broker on one event loop."""

    def __init__(self, config: Config, truncate_damaged: frozenset[str] = frozenset()) -> None:
        self.config = config
        self._truncate_damaged = truncate_damaged
        self._listener: SocketListener | None = None
        self._collector = Collector()
        self._assembly: Assembly
        self._workers: ThreadWorkers
        self.broker: Broker

    async def start(self) -> str:
        """Open the data directory and listen; returns the address that clients are given.

        Raises LogDirectoryError or OSError; the directory is free then, and clean if it was opened whole.
        """
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        turns = Turns(clock.next_turn, log_bug)
        clock.enter = turns.event
        self._workers = ThreadWorkers(clock.from_thread)
        disk = RealDisk(self.config.max_open_log_files)
        memory_bytes = max(LEAST_MEMORY_BYTES, min(MOST_MEMORY_BYTES, machine_bytes() // 8))
        self._assembly = Assembly(self.config, clock, disk, turns, self._truncate_damaged, self._workers, memory_bytes)
        self.broker = self._assembly.broker
        _load_codecs()
        try:
            address = await self._listen(loop, turns)
        except OSError:
            await self.stop()
            raise
        self._assembly.start_housekeeping()
        self._collector.start()
        return address

    async def stop(self) -> None:
        """Stop listening, let requests in progress end, close the logs cleanly."""
        if self._listener is not None:
            self._listener.close()
        connections = self._assembly.connections
        for connection in list(connections):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS
        while connections and loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(connections):
            connection.close()
        self._assembly.close()
        self._workers.stop()
        self._collector.stop()

    async def _listen(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> str:
        config = self.config
        listener = config.listener
        door = _Door(self._assembly, turns, loop)
        self._assembly.on_config_changed = door.change
        try:
            sockets = await bind(loop, listener.host, listener.port)
            self._listener = door.listener = SocketListener(loop, sockets, door)
        except OSError as error:
            raise OSError(f"Cannot listen on {listener}: {error.strerror}") from error
        port = self._listener.port
        given = config.advertised_listener
        self.broker.host = given.host or socket.gethostname()
        self.broker.port = given.port or port
        address = str(Listener("PLAINTEXT", self.broker.host, self.broker.port))
        told = "" if self.broker.port == port else f", and clients are told {address} (advertised.listeners)"
        log.info("Serving %s on %s%s", Path(config.log_dirs).absolute(), listener._replace(port=port), told)
        return address


class _Door:
    """Decides who comes in, and tells of who does not."""

    def __init__(self, assembly: Assembly, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        """OSError if a limit is for a host that is unknown."""
        self.listener: SocketListener | None = None
        self._assembly = assembly
        self._turns = turns
        self._config = assembly.config
        self._overrides = _overrides(assembly.config)
        self._admission = Admission(_limits(assembly.config, self._overrides))
        self._loop = loop
        self._seldom = {"waits": Seldom(), "refused": Seldom(), "failed": Seldom()}

    def wait_ms(self) -> float:
        wait_ms = self._admission.wait_ms(self._loop.time() * 1000)
        if wait_ms:
            self._tell("waits", "New connections wait for %s", "max.connections or max.connection.creation.rate")
        return wait_ms

    def accept(self, ip: str) -> Connection | None:
        self._turns.charge(CONNECTION_US)
        reason = self._admission.enter(ip)
        if reason is not None:
            self._tell("refused", "Refused connections: %s", reason)
            return None
        return self._assembly.accept(lambda: self._left(ip))

    def change(self, config: Config) -> None:
        """Take limits that have changed while the broker runs: then hosts are addresses, which nobody is asked for."""
        if config.max_connections_per_ip_overrides != self._config.max_connections_per_ip_overrides:
            self._overrides = _overrides(config, socket.AI_NUMERICHOST)
        self._config = config
        self._admission.change(_limits(config, self._overrides))
        if self.listener is not None:
            self.listener.resume()

    def rest(self, go_on: Callable[[], None]) -> bool:
        if self._turns.over:
            self._turns.rest(go_on)
            return True
        return False

    def failed(self, error: OSError) -> None:
        self._tell("failed", "Connections cannot be accepted: %s", shortage(error) or error)

    def _left(self, ip: str) -> None:
        self._admission.leave(ip)
        if self.listener is not None:
            self.listener.resume()

    def _tell(self, what: str, line: str, reason: object) -> None:
        times = self._seldom[what].times(self._loop.time() * 1000)
        if times:
            log.warning(line + " (%d times since this was said last)", reason, times)


def _limits(config: Config, overrides: Mapping[str, int]) -> Limits:
    return Limits(
        config.max_connections,
        config.max_connections_per_ip,
        overrides,
        config.max_connection_creation_rate,
        connection_share(allowed(), config.max_open_log_files),
    )


def _overrides(config: Config, flags: int = 0) -> dict[str, int]:
    """The limits of single addresses. OSError if a host of `max.connections.per.ip.overrides` is unknown."""
    overrides: dict[str, int] = {}
    for host, number in parse_connections_per_ip(config.max_connections_per_ip_overrides).items():
        try:
            found = socket.getaddrinfo(host, None, flags=flags)
        except OSError as error:
            raise OSError(f"max.connections.per.ip.overrides: {host}: {error.strerror}") from error
        overrides |= {str(address[0]): number for *_, address in found}
    return overrides


def run(config: Config, *, ready_file: str | None = None, truncate_damaged: frozenset[str] = frozenset()) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; returns the exit code.

    Prints `ready PLAINTEXT://host:port` to stdout (and into `ready_file`, which is removed when they can no more, and
    before anything else at a start) when clients can connect. 0 after a clean stop; 1 when the directory or the port
    cannot be had, or the storage failed, which ends the broker unless `log.dir.failure.exit` says otherwise.
    """
    _raise_file_limit()
    give_back_what_is_freed()
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
            _unsay_ready(ready_file)
            os._exit(1)
        stopping.set()

    # The loop hears no signal while the start reads logs, so Python's own handlers stand in.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for number in heard:
        signal.signal(number, lambda _number, _frame: on_signal())
    _unsay_ready(ready_file)  # an earlier run's: who waits for it must not take that for ours
    address = await server.start()
    loop = asyncio.get_running_loop()
    if not stopping.is_set():  # the loop would hear once more what it has not read yet
        for number in heard:
            loop.add_signal_handler(number, on_signal)
    watch = _stop_with_storage(server, stopping)
    try:
        if not stopping.is_set():
            _say_ready(address, ready_file)
        await stopping.wait()
    finally:
        log.info("Stopping")
        _unsay_ready(ready_file)
        await server.stop()
        watch.cancel()
        log.info("Stopped")
    return 0 if server.broker.logs.offline is None else 1


def _stop_with_storage(server: Server, stopping: asyncio.Event) -> threading.Timer:
    """Set `stopping` when the log directory fails, and end the process if the stop takes too long; or do nothing."""
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


def _say_ready(address: str, ready_file: str | None) -> None:
    line = f"ready {address}\n"
    if ready_file is not None:
        Path(ready_file).write_text(line)
    sys.stdout.write(line)
    sys.stdout.flush()


def _unsay_ready(ready_file: str | None) -> None:
    """Whoever looks for the file finds none from now on; one that cannot be removed cannot be written either."""
    if ready_file is not None:
        with contextlib.suppress(OSError):
            Path(ready_file).unlink()


def _raise_file_limit() -> None:
    """A broker holds a few descriptors per partition: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _load_codecs() -> None:
    """Import kafka-python's messages now (0.15 s), not while the first client waits and everybody with it."""
    for key in TABLE:
        codec.request_class(key)
        codec.response_class(key)
