"""Broker and clients of the stories. shell"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from ottla.demo.screen import Screen

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 15
READ_TIMEOUT_S = 10


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decode(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


class DemoFailed(Exception):
    """The demo cannot continue; the message is for the user."""


class Broker:
    """The broker that the stories use."""

    def __init__(self, bootstrap: str, data_dir: Path | None, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self.bootstrap = bootstrap
        self.data_dir = data_dir
        self.process = process
        self.ready_s = 0.0

    def stop(self) -> bool:
        """Stop a broker that the demo started; return whether it stopped in time without an error."""
        if self.process is None:
            return True
        self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False


def running_broker(bootstrap: str, data_dir: Path | None) -> Broker:
    """Return a running broker. Connects first, because kafka-python tries an absent broker for half a minute."""
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except (OSError, ValueError) as error:
        raise DemoFailed(f"no broker at {bootstrap}: {error}") from error
    return Broker(bootstrap, data_dir)


@contextlib.contextmanager
def own_broker(data_dir: Path | None = None, overrides: Sequence[str] = ()) -> Iterator[Broker]:
    """Run `ottla serve` on a free port, with its data in `data_dir`, or in a temporary directory. `overrides`: options
    of the broker, each KEY=VALUE."""
    with tempfile.TemporaryDirectory(prefix="ottla-demo-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        broker = Broker("", data_dir or directory / "data", None)
        ready_file, log_file = directory / "ready", directory / "broker.log"
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(broker.data_dir), "--ready-file", str(ready_file)]
        command += [word for override in overrides for word in ("--override", override)]
        began = time.monotonic()
        with log_file.open("wb") as log:
            broker.process = process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while not ready_file.exists() or not ready_file.read_text().endswith("\n"):
                if process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                    raise DemoFailed(f"the broker did not start:\n{log_file.read_text()[-2000:]}")
                time.sleep(0.005)
            broker.ready_s = time.monotonic() - began
            broker.bootstrap = ready_file.read_text().split()[1].rpartition("//")[2]
            yield broker
        finally:
            if process.poll() is None:
                broker.stop()


class DemoClients:
    """Clients for the stories. Reads start at the end of the topics before the demo."""

    def __init__(self, broker: Broker, screen: Screen) -> None:
        self.broker = broker
        self.screen = screen
        self.run = f"{os.getpid():x}"
        self._clients: list[Any] = []
        self._begin: dict[TopicPartition, int] = {}

    def create_topics(self, partitions: dict[str, int]) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        there = set(admin.list_topics())
        wanted = {
            name: {"num_partitions": count, "replication_factor": 1}
            for name, count in partitions.items()
            if name not in there
        }
        if wanted:
            admin.create_topics(wanted, wait_for_metadata=True)
        admin.close()
        old = [TopicPartition(name, n) for name, count in partitions.items() if name in there for n in range(count)]
        if old:
            with contextlib.closing(self._reader("read_uncommitted")) as consumer:
                self._begin = consumer.end_offsets(old)

    def producer(self, transactional_id: str | None = None, *, bootstrap: str | None = None, **config: Any) -> Any:
        """Return a kafka-python producer; with a transactional id, after init_transactions()."""
        if transactional_id is not None:
            config["transactional_id"] = transactional_id
        producer = KafkaProducer(
            bootstrap_servers=bootstrap or self.broker.bootstrap,
            key_serializer=_encode,
            value_serializer=_encode,
            **config,
        )
        self._clients.append(producer)
        if transactional_id is not None:
            producer.init_transactions()
        return producer

    def consumer(self, topic: str, group: str) -> Any:
        """Return a read_committed consumer of a group that commits only in transactions."""
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.broker.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._clients.append(consumer)
        return consumer

    def read(self, topic: str, isolation_level: str = "read_committed") -> list[Any]:
        """Return the records that this isolation level reads from a topic, in the order of the partitions."""
        with contextlib.closing(self._reader(isolation_level)) as consumer:
            partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, self._begin.get(partition, 0))
            ends = consumer.end_offsets(partitions)
            records: list[Any] = []
            deadline = time.monotonic() + READ_TIMEOUT_S
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for batch in consumer.poll(timeout_ms=100).values():
                    records += batch
                if time.monotonic() > deadline:
                    raise DemoFailed(f"a {isolation_level} reader of {topic} does not reach the end offsets {ends}")
            return sorted(records, key=lambda record: (record.partition, record.offset))

    def _reader(self, isolation_level: str) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            group_id=None,
            isolation_level=isolation_level,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            key_deserializer=_decode,
            value_deserializer=_decode,
        )

    def close(self) -> None:
        for client in self._clients:
            with contextlib.suppress(Exception):
                client.close(**({"timeout": 1} if isinstance(client, KafkaProducer) else {"timeout_ms": 1000}))
