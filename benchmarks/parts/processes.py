"""Brokers under test: start one, or attach to a running one, and read its CPU time and memory. shell"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from parts import figures, raw

ROOT = Path(__file__).resolve().parents[2]
KAFKA_SCRIPT = ROOT / "tests" / "conformance" / "apache-kafka" / "kafka.sh"
START_TIMEOUT_S = 60


def machine() -> dict[str, Any]:
    """Return the facts of `figures.machine`, and the CPU seconds that the kernel alone takes to write 1 GB."""
    block, blocks = os.urandom(1_000_000), 128
    with tempfile.TemporaryFile(prefix="ottla-benchmark-") as file:
        began = time.process_time()
        for number in range(blocks):
            os.pwrite(file.fileno(), block, number * len(block))
        write_s = time.process_time() - began
    return figures.machine() | {"write_cpu_s_gb": write_s * 1e9 / (blocks * len(block))}


class Broker:
    """Broker under test.

    `ready_s` is the time from its start to its first answer, None if it was already running. `admin` is the address of
    its admin port, empty without one.
    """

    def __init__(self, name: str, bootstrap: str, pid: int | None, ready_s: float | None = None) -> None:
        self.admin = ""
        self.name = name
        self.bootstrap = bootstrap
        self.pid = pid
        self.ready_s = ready_s

    def cpu_s(self) -> float | None:
        """Return the user and system time so far; None if the process id is not known."""
        if self.pid is None:
            return None
        if Path(f"/proc/{self.pid}/stat").exists():
            return raw.cpu_s(self.pid)
        return _clock_to_seconds(_ps("cputime", self.pid))

    def resident_mb(self) -> float | None:
        """Return the resident memory in MB (10^6 bytes)."""
        if self.pid is None:
            return None
        status = Path(f"/proc/{self.pid}/status")
        if status.exists():
            line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
            return int(line.split()[1]) * 1024 / 1e6
        return int(_ps("rss", self.pid)) * 1024 / 1e6


def _ps(field: str, pid: int) -> str:
    return subprocess.run(
        ["ps", "-o", f"{field}=", "-p", str(pid)], capture_output=True, text=True, check=True
    ).stdout.strip()


def _clock_to_seconds(text: str) -> float:
    """Return the seconds of a time that ps prints as `[[days-]hours:]minutes:seconds`."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86_400 * int(days or 0)


@contextlib.contextmanager
def attach(bootstrap: str, pid: int | None) -> Iterator[Broker]:
    yield Broker("broker", bootstrap, pid)


@contextlib.contextmanager
def ottla(
    data_dir: Path | None = None,
    overrides: Sequence[str] = (),
    program: Sequence[str] = ("-m", "ottla.cli.main"),
    listen: bool = True,
    python: str = sys.executable,
    admin: bool = False,
) -> Iterator[Broker]:
    """Run our broker on a free port, with an empty data directory unless one is given.

    Without `listen`, `overrides` contain its listeners, a plain one first. `admin`: with an admin port.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-benchmark-") as directory:
        ready_file = Path(directory) / "ready"
        command = [python, *program, "serve", *(["--listen", "127.0.0.1:0"] if listen else [])]
        command += ["--data-dir", str(data_dir or f"{directory}/data"), "--ready-file", str(ready_file)]
        command += [f"--override={override}" for override in overrides]
        command += ["--admin-listen", "127.0.0.1:0"] if admin else []
        with running(command, Path(directory) / "log") as (process, began):
            while not (line := ready_file.read_text() if ready_file.exists() else "").endswith("\n"):
                _check(process, Path(directory) / "log", began)
                time.sleep(0.002)
            bootstrap = line.split()[1].rpartition("//")[2]
            broker = answering("ottla", bootstrap, process, Path(directory) / "log", began)
            broker.admin = line.partition("admin http://")[2].split("\n")[0].rstrip("/")
            yield broker


@contextlib.contextmanager
def apache_kafka(
    script: Path, data_dir: Path | None = None, options: Callable[[int], str] = lambda port: ""
) -> Iterator[Broker]:
    """Run Apache Kafka as one KRaft node. `ready_s` does not include the formatting of its directory.

    `data_dir` is a directory that our broker has served before, and that `ottla graduate` prepares for Kafka.
    `options` returns lines of the properties file for a port; the controller has the next port.
    """
    port = _two_free_ports()
    with tempfile.TemporaryDirectory(prefix="kafka-benchmark-") as directory:
        command = ["bash", str(script), "format", directory, str(port)]
        subprocess.run(command, check=True, input=options(port), text=True, stderr=subprocess.DEVNULL)
        if data_dir is not None:
            _graduate(data_dir, Path(directory) / "server.properties")
        with running(["bash", str(script), "start", directory], Path(directory) / "log") as (process, began):
            yield answering("kafka", f"127.0.0.1:{port}", process, Path(directory) / "log", began)


def _graduate(data_dir: Path, properties: Path) -> None:
    # The last line of a name wins.
    properties.write_text(f"{properties.read_text()}log.dirs={data_dir}\n")
    command = [sys.executable, "-m", "ottla.cli.main", "graduate", str(data_dir), "--node-id", "1"]
    done = subprocess.run([*command, "--config", str(properties)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"Apache Kafka cannot serve {data_dir}:\n{done.stderr}")


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[tuple["subprocess.Popen[bytes]", float]]:
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, start_new_session=True)
        try:
            yield process, began
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _check(process: "subprocess.Popen[bytes]", log: Path, began: float) -> None:
    if process.poll() is not None:
        raise SystemExit(f"the broker ended with code {process.returncode}:\n{log.read_text()[-2000:]}")
    if time.perf_counter() - began > START_TIMEOUT_S:
        raise SystemExit(f"the broker was not ready after {START_TIMEOUT_S} s:\n{log.read_text()[-2000:]}")


def answering(name: str, bootstrap: str, process: "subprocess.Popen[bytes]", log: Path, began: float) -> Broker:
    while not is_answering(bootstrap):
        _check(process, log, began)
        time.sleep(0.005)
    return Broker(name, bootstrap, process.pid, ready_s=time.perf_counter() - began)


def is_answering(bootstrap: str) -> bool:
    """Return whether a broker answers an ApiVersions request at this address."""
    host, _, port = bootstrap.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(10, socket.MSG_WAITALL)) == 10
    except (OSError, ValueError):  # ValueError: the port is no number
        return False


def _two_free_ports() -> int:
    """Return a free port whose next port is free too (the controller listens there)."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 1)):
                return port


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]
