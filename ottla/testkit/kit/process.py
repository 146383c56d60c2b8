"""A broker process of a test: start on free ports, kill, restart on the same ports. shell"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from random import randrange
from typing import Final

START_TIMEOUT_S: Final = 300.0
STOP_TIMEOUT_S: Final = 20.0
ABORT_TIMEOUT_S: Final = 5.0
_EXIT_S: Final = 5.0  # from the last byte of a connection to the end of the process
_POLL_S: Final = 0.005
_PORTS: Final = 20_000, 30_000

SETTINGS: Final[Mapping[str, str]] = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Settings that differ from a production broker: tests do not wait for a second member or for
heartbeats, and have few groups and ids."""


class BrokerFailed(RuntimeError):
    """The broker did not start or does not run. The message ends with its log if there is one."""


class NeedsOwnBroker(RuntimeError):
    """The test needs a broker that the test kit starts; the message is the reason."""


class NeedsAdminPort(NeedsOwnBroker):
    """The test also runs on an Ottla whose admin port the test kit knows."""


class _PlannedRestart:
    """The restart of a broker after its process ends by itself."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.is_done = False


class BrokerProcess:
    """An `ottla serve` process in its own directory, with an admin port for the test control."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str],
        as_version: str | None = None,
        port: int = 0,
        brokers: int = 1,
    ) -> None:
        """`port` is the port to listen on; 0 chooses a free port. Several `brokers` listen on it and those after it."""
        self.directory = directory
        self.as_version = as_version
        self.properties = dict(SETTINGS) | dict(properties)
        self.bootstrap = ""
        self.admin_url = ""
        self.brokers = brokers
        self._port = port
        self.starts = 0
        self._planned: _PlannedRestart | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def data_dir(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """The log file of the broker, appended to by each start."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the broker on the ports of its last start, and wait until it is ready. Raises BrokerFailed."""
        with self._lock:
            if self.pid is not None:
                return
            self._end(signal.SIGKILL)
            self.directory.mkdir(parents=True, exist_ok=True)
            ready = self.directory / "ready"
            ready.unlink(missing_ok=True)
            with self.log_file.open("ab") as log:
                # The pipe closes when this process ends, however it ends, and then the broker ends too.
                self._process = subprocess.Popen(
                    self._command(ready),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env=os.environ | {"PYTHONFAULTHANDLER": "1"},
                )
            self._await_ready(ready)
            self.starts += 1

    def stop(self) -> None:
        """Stop the broker cleanly. If it does not stop, kill it and warn with its log."""
        self.forget_restart()
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self.forget_restart()
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again on the same ports and files."""
        self.stop()
        self.start()

    def plan_restart(self) -> None:
        """Start the broker again, once, after its process ends by itself."""
        with self._lock:
            if self._process is None:
                raise BrokerFailed("the broker has not been started")
            planned = self._planned = _PlannedRestart(self._process)
        threading.Thread(target=self._restart_at_end, args=(planned,), daemon=True).start()

    def forget_restart(self) -> None:
        """Cancel a planned restart. A restart that has begun ends first."""
        with self._lock:
            self._planned = None

    def await_restart(self, exit_s: float = _EXIT_S) -> bool:
        """Wait for a planned restart if the process has ended or ends within `exit_s` seconds.

        Returns whether the broker was restarted. Raises BrokerFailed.
        """
        planned = self._planned
        if planned is None or planned.is_done:
            return False
        try:
            planned.process.wait(exit_s)
        except subprocess.TimeoutExpired:
            return False
        self._restart(planned)
        return True

    def wait_ended(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Wait until the broker ends, and for a planned restart; return the exit code. TimeoutError, BrokerFailed."""
        planned = self._planned
        process = self._process if planned is None else planned.process
        if process is None:
            raise BrokerFailed("the broker has not been started")
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the broker still runs after {timeout_s:g} s") from None
        if planned is not None:
            self._restart(planned)
            self.forget_restart()  # the next call waits for the next end
        return code

    def _restart_at_end(self, planned: _PlannedRestart) -> None:
        planned.process.wait()
        with suppress(BrokerFailed):  # raised again by the next caller that needs the broker
            self._restart(planned)

    def _restart(self, planned: _PlannedRestart) -> None:
        """Start the broker if the restart is still planned and no other thread has done it."""
        with self._lock:
            if planned is self._planned and not planned.is_done:
                self.start()
                planned.is_done = True

    def log_tail(self, from_byte: int = 0, most_lines: int = 40) -> str:
        """Return the last lines of the broker's log."""
        with suppress(FileNotFoundError), self.log_file.open("rb") as log:
            log.seek(max(from_byte, self.log_file.stat().st_size - 64 * 1024))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-most_lines:])
        return ""

    def _command(self, ready: Path) -> list[str]:
        command = [sys.executable, "-m", "ottla", "serve", "--data-dir", str(self.data_dir)]
        if self.brokers > 1 and not self._port:
            self._port = find_ports(self.brokers)  # port 0 takes free ones, which a restart would not find again
        first = self.bootstrap.partition(",")[0]
        command += ["--listen", first or f"127.0.0.1:{self._port}", "--until-input-ends"]
        command += ["--brokers", str(self.brokers)]
        command += ["--admin-listen", "127.0.0.1:0", "--test-control"]
        for name, value in self.properties.items():
            command += ["--override", f"{name}={value}"]
        if self.as_version is not None:
            command += ["--as-version", self.as_version]
        return [*command, "--ready-file", str(ready)]

    def _await_ready(self, ready: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (lines := _ready_lines(ready)):
            if self._process.poll() is not None:
                raise BrokerFailed(f"the broker ended with {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                _abort(self._process)
                raise BrokerFailed(f"the broker is not ready after {START_TIMEOUT_S:g} s:\n{self.log_tail()}")
            time.sleep(_POLL_S)
        each_listener = [address.rpartition("//")[2] for address in lines["ready"]]
        self.bootstrap = ",".join(each_listener[:: len(each_listener) // self.brokers])  # the first of each broker
        (self.admin_url,) = lines["admin"]

    def _end(self, number: signal.Signals) -> None:
        with self._lock:
            process = self._process
            if process is None:
                return
            killed = False
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    _abort(process)
                    killed = True
            if process.stdin is not None:  # not earlier: closing it also stops the broker
                process.stdin.close()
        if killed:
            late = f"the broker did not stop and was killed, {STOP_TIMEOUT_S:g} s after {number.name}"
            warnings.warn(
                f"{late}. Its log, with the stacks of its threads:\n{self.log_tail()}", RuntimeWarning, stacklevel=3
            )


def _abort(process: "subprocess.Popen[bytes]") -> None:
    """End the process with SIGABRT, so that Python writes the stacks of all threads to the log, or kill it."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(ABORT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def temporary_directory() -> Path:
    """Create a directory for a broker in the system's temporary directory."""
    return Path(tempfile.mkdtemp(prefix=f"ottla-{os.getpid()}-"))


def find_ports(count: int) -> int:
    """Return the first of so many consecutive free ports. They are not among those that the system chooses."""
    while True:
        first = randrange(*_PORTS)
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + count):
                opened.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def _ready_lines(ready: Path) -> dict[str, list[str]]:
    """Return {first word: the rest of each line} of the ready file; empty until the broker is ready."""
    with suppress(FileNotFoundError):
        text = ready.read_text()
        if text.endswith("\n"):
            lines = defaultdict[str, list[str]](list)
            for name, rest in (line.split(" ", 1) for line in text.splitlines()):
                lines[name].append(rest)
            if "ready" in lines and "admin" in lines:
                return lines
    return {}
