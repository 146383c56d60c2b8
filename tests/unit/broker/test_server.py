"""The daemon's life inside one process: the state after a failed start and after a stop."""

import asyncio
import gc
import socket
import subprocess
import sys

import pytest
import uvloop

from lab.metadata import create_topic
from ottla.broker.config import Config, Listener
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.server import Server, run
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests.produced import check_produced_batch
from tests.timeout import EVENT_TIMEOUT_S


@pytest.fixture
def config(tmp_path):
    def make(port=0) -> Config:
        return Config(log_dirs=str(tmp_path / "data"), listeners=(Listener("PLAINTEXT", "127.0.0.1", port),))

    return make


def start_and_stop(config, between=lambda broker: None, **options):
    async def live():
        server = Server(config, **options)
        await server.start()
        between(server.broker)
        await server.stop()
        return server.broker

    return uvloop.run(live())


def produce(partition):
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000))
    return partition.append_from_client(check_produced_batch(data), data)


@pytest.mark.slow
def test_start_without_a_port_leaves_the_directory_as_clean_as_it_was(config, tmp_path):
    start_and_stop(config())
    clean = tmp_path / "data" / ".kafka_cleanshutdown"
    assert clean.exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:

        async def fail():
            with pytest.raises(OSError, match=r"^Cannot listen on PLAINTEXT://127\.0\.0\.1:\d+: .* in use$"):
                await Server(config(taken.getsockname()[1])).start()

        uvloop.run(fail())
    assert clean.exists()
    start_and_stop(config())


def test_a_start_on_a_used_port_leaves_no_data_directory(config, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:

        async def fail():
            with pytest.raises(OSError, match=r"^Cannot listen on PLAINTEXT://127\.0\.0\.1:\d+: .* in use$"):
                await Server(config(taken.getsockname()[1])).start()

        uvloop.run(fail())
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_start_that_fails_in_the_metadata_lets_go_of_the_directory(config, tmp_path):
    start_and_stop(config())
    log_starts = tmp_path / "data" / "log-start-offset-checkpoint"
    log_starts.write_text("0\n1\n__cluster_metadata 0 1\n")

    async def fail():
        with pytest.raises(LogDirectoryError, match="begins at offset 1"):
            await Server(config()).start()

    uvloop.run(fail())
    log_starts.unlink()
    start_and_stop(config())


def test_a_partition_refuses_writes_after_a_clean_stop(config, tmp_path):
    kept = []

    def create(broker):
        create_topic(broker.cluster, "ledger", 1)
        kept.append(broker.cluster.partition("ledger", 0))
        assert not produce(kept[0]).error

    start_and_stop(config(), create)
    (log,) = (tmp_path / "data" / "ledger-0").glob("*.log")
    size_bytes = log.stat().st_size
    assert produce(kept[0]).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.stat().st_size == size_bytes


def test_gc_callbacks_are_registered_only_while_the_broker_runs(config):
    before = list(gc.callbacks)

    async def live():
        server = Server(config())
        await server.start()
        while gc.callbacks == before:
            await asyncio.sleep(0)
        await server.stop()

    uvloop.run(live())
    assert gc.callbacks == before
    assert gc.get_freeze_count() == 0


def test_ready_file_that_cannot_be_written_ends_in_a_clean_stop(config, tmp_path, caplog):
    assert run(config(), ready_file=str(tmp_path / "nowhere" / "ready")) == 1
    assert "nowhere" in caplog.text
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_data_directory_that_is_a_file_is_named(config, tmp_path, caplog):
    (tmp_path / "data").write_text("")
    assert run(config()) == 1
    assert caplog.messages == [f"Data directory {tmp_path / 'data'}: {tmp_path / 'data'} is not a directory"]


@pytest.mark.slow
def test_an_unknown_partition_in_truncate_damaged_is_logged(config, caplog):
    def create(broker):
        create_topic(broker.cluster, "ledger", 1)

    start_and_stop(config(), create)
    start_and_stop(config(), truncate_damaged=frozenset({"ledger-0", "ledger-1", "ledgre-0"}))
    assert [message for message in caplog.messages if "--truncate-damaged" in message] == [
        "--truncate-damaged ledger-1: there is no such partition",
        "--truncate-damaged ledgre-0: there is no such partition",
    ]


def test_a_failed_start_removes_the_ready_file_of_an_earlier_run(config, tmp_path):
    ready = tmp_path / "ready"
    ready.write_text("ready PLAINTEXT://127.0.0.1:1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(config(taken.getsockname()[1]), ready_file=str(ready)) == 1
    assert not ready.exists()


SLOW_START = """
import os, signal, sys, time
from ottla.broker import server
from ottla.broker.config import Config, Listener

class Slow(server.Server):
    async def start(self):
        for _ in range({signals}):
            os.kill(os.getpid(), signal.{signal})
        time.sleep({seconds})
        return await super().start()

server.Server = Slow
sys.exit(server.run(Config(log_dirs={directory!r}, listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),))))
"""


SLOW_END = """
import atexit, os, signal, sys, threading
from ottla.broker import server
from ottla.broker.config import Config, Listener

class Ready(server.Server):
    async def start(self):
        addresses = await super().start()
        os.kill(os.getpid(), signal.{signal})
        return addresses

def end():  # behind the stop, when nothing is left but to exit
    os.kill(os.getpid(), signal.{signal})
    print("heard and went on", flush=True)

atexit.register(end)
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in a shell's background is born deaf to it
server.Server = Ready
sys.exit(server.run(Config(log_dirs={directory!r}, listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_second_signal_after_the_stop_is_ignored(tmp_path, signal):
    script = SLOW_END.format(signal=signal, directory=str(tmp_path / "data"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["heard and went on"])
    assert "Traceback" not in done.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(("signals", "seconds", "code"), [(1, 0, 0), (2, 2 * EVENT_TIMEOUT_S, 1)])
def test_signals_count_while_the_broker_starts(tmp_path, signal, signals, seconds, code):
    directory = str(tmp_path / "data")
    script = SLOW_START.format(signal=signal, signals=signals, seconds=seconds, directory=directory)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (code, "")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists() == (signals == 1)
