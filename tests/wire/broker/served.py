"""`ottla serve` as a process, and the requests that its tests send. free"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

COMMAND = [sys.executable, "-m", "ottla.cli.main", "serve"]
SERVE = [*COMMAND, "--listen", "127.0.0.1:0"]


class Served:
    """A broker over `data_dir`; `port` is set by `ready`. `descriptors` limits its open files."""

    def __init__(self, data_dir, *more, descriptors=None, **environment):
        self.data_dir = data_dir
        self.ready_file = data_dir.parent / "ready"
        self.ready_file.unlink(missing_ok=True)
        command = [*SERVE, "--data-dir", str(data_dir), "--ready-file", str(self.ready_file), *more]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
        )

    def ready(self):
        self.line = self.process.stdout.readline()
        assert self.line.startswith("ready PLAINTEXT://127.0.0.1:"), self.process.stderr.read()
        self.port = int(self.line.rpartition(":")[2])
        return self

    def connect(self):
        return BlockingConnection("127.0.0.1", self.port, timeout_s=EVENT_TIMEOUT_S)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(EVENT_TIMEOUT_S)
        return self.process.returncode


@contextlib.contextmanager
def serving(directory, number, *overrides, listen=()):
    """Start a broker and yield its `number` ready lines as (name, host, port). The file `pid` has its process id."""
    ready_file = directory / "ready"
    flags = [word for override in overrides for word in ("--override", override)]
    command = [*COMMAND, "--data-dir", str(directory / "data"), "--ready-file", str(ready_file), *listen, *flags]
    environment = {key: text for key, text in os.environ.items() if not key.startswith("KAFKA_")}
    log = directory / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    (directory / "pid").write_text(str(process.pid))
    try:
        lines = [process.stdout.readline() for _ in range(number)]
        assert all(line.startswith("ready ") for line in lines), log.read_text()
        assert ready_file.read_text() == "".join(lines)
        addresses = []
        for line in lines:
            name, _, address = line.removeprefix("ready ").strip().partition("://")
            host, _, port = address.rpartition(":")
            addresses.append((name, host.strip("[]"), int(port)))
        yield addresses
        process.send_signal(signal.SIGTERM)
        assert process.wait(EVENT_TIMEOUT_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def create(connection, topic):
    request = codec.request_class(ApiKey.METADATA)
    connection.send(request(topics=[request.MetadataRequestTopic(name=topic)]), version=4)


def produce(connection, topic, value):
    request = codec.request_class(ApiKey.PRODUCE)
    data = request.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=bytes(build_batch([(None, value)], timestamp_ms=1)))
    message = request(
        transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data(name=topic, partition_data=[partition])]
    )
    reply = connection.send(message, version=9)
    return reply.responses[0].partition_responses[0]


def fetch(topic, offset, max_wait_ms=0, max_bytes=100_000):
    request = codec.request_class(ApiKey.FETCH)
    partition = request.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return request(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[request.FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )


def read_exactly(client, size_bytes, pause_s=0.0):
    data = bytearray()
    while len(data) < size_bytes:
        piece = client.recv(min(65_536, size_bytes - len(data)))
        assert piece, f"closed behind {len(data)} bytes"
        data += piece
        time.sleep(pause_s)
    return bytes(data)


def resident_mb(served):
    pages = Path(f"/proc/{served.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6
