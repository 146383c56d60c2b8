"""Measurement of one attack on a broker while a pinger runs. shell"""

import contextlib
import copy
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from parts import processes, raw
from parts.others import hostile
from parts.others.hostile import Talk
from parts.others.pinger import Pinger
from parts.processes import Broker

PING = "ping"
SETUP_TIMEOUT_S = 120.0
SETTLE_S = 1.0
CREATE_AT_ONCE = 500

Figures = dict[str, Any]


def limit_descriptors(descriptors: int) -> tuple[str, str]:
    """Return the program for `processes.ottla` that runs the broker with this limit of descriptors."""
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"
    return "-c", f"import resource; {limit}; from ottla.cli.main import main; main()"


def limit_memory(pid: int, most_bytes: int) -> None:
    """Limit the address space of a process, if the system supports that."""
    with contextlib.suppress(AttributeError, OSError):
        resource.prlimit(pid, resource.RLIMIT_AS, (most_bytes, most_bytes))


class Memory:
    """Resident memory of a process in MB: the current value, and the maximum since `reset`."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            (self._process / "clear_refs").write_text("5")

    def now_mb(self) -> float:
        return self._of("VmRSS")

    def most_mb(self) -> float:
        return self._of("VmHWM")

    def _of(self, field: str) -> float:
        try:
            lines = (self._process / "status").read_text().splitlines()
        except OSError:
            return 0.0
        return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field)), 0.0)


class Stage:
    """Resources of an attack: a broker with a topic `ping`, a connection for preparations, and a deadline."""

    def __init__(self, broker: Broker, seconds: float) -> None:
        assert broker.pid is not None
        self.broker = broker
        self.pid = broker.pid
        self.seconds = seconds
        host, _, port = broker.bootstrap.rpartition(":")
        self.connection = BlockingConnection(host, int(port), timeout_s=SETUP_TIMEOUT_S)
        self.memory = Memory(self.pid)
        self.talks: list[Talk] = []
        self.deadline = 0.0
        self.noted: Figures = {}
        self.create([PING])

    # --- before

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request and return the reply; rows are dicts."""
        return self.connection.send(message(api_key, version, **fields), version)

    def create(self, names: Sequence[str], partitions: int = 1, **configs: str) -> None:
        """Create topics, and wait until they exist."""
        rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        for start in range(0, len(names), CREATE_AT_ONCE):
            topics = [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": rows,
                }
                for name in names[start : start + CREATE_AT_ONCE]
            ]
            answer = self.ask(ApiKey.CREATE_TOPICS, 4, topics=topics, timeout_ms=60_000, validate_only=False)
            for topic in answer.topics:
                if topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raw.check(topic.error_code)
        self._wait_for_leaders(names[-1], partitions)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        for _ in range(2_400):
            (topic,) = self.ask(ApiKey.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=False).topics
            rows = topic.partitions
            if len(rows) == partitions and all(row.error_code == 0 for row in rows) and self._serves(name):
                return
            time.sleep(0.05)
        raise SystemExit(f"{name} has no leaders")

    def _serves(self, name: str) -> bool:
        row = {"partition_index": 0, "timestamp": -1}
        answer = self.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": name, "partitions": [row]}])
        return not answer.topics[0].partitions[0].error_code

    def produce(self, topic: str, partition: int, batch: bytes | bytearray) -> int:
        """Produce a batch and return the error code, 0 without an error."""
        rows = [{"index": partition, "records": bytes(batch)}]
        answer = self.ask(
            ApiKey.PRODUCE,
            8,
            transactional_id=None,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[{"name": topic, "partition_data": rows}],
        )
        return int(answer.responses[0].partition_responses[0].error_code)

    # --- meanwhile

    def talk(self, frames: Sequence[bytes] = (), receive_bytes: int | None = None) -> Talk:
        talk = Talk(self.broker.bootstrap, frames, receive_bytes=receive_bytes)
        self.talks.append(talk)
        return talk

    def send(self, *frames: bytes) -> None:
        """Pipeline these requests on one connection, and read all replies."""
        hostile.converse([self.talk(frames)], self.deadline)

    def send_each(self, frames: Sequence[Sequence[bytes]]) -> None:
        """Pipeline each sequence of requests on its own connection, and read all replies."""
        hostile.converse([self.talk(one) for one in frames], self.deadline)

    def beside(self, deadline: float) -> "Stage":
        """Return the stage of another client of the same broker, with its own connections and deadline."""
        other = copy.copy(self)
        other.talks, other.noted, other.deadline = [], dict(self.noted), deadline
        return other

    # --- after

    def hang_up(self) -> None:
        for talk in self.talks:
            talk.close()

    def verdict(self) -> str:
        if any(talk.due and not talk.closed for talk in self.talks):
            return "cut off"
        closed = sum(talk.closed for talk in self.talks)
        return f"{closed} closed" if closed else "answered"

    def close(self) -> None:
        self.hang_up()
        self.connection.close()


@contextlib.contextmanager
def open_stage(broker: Broker, seconds: float) -> Iterator[Stage]:
    stage = Stage(broker, seconds)
    try:
        yield stage
    finally:
        stage.close()


def measure(stage: Stage, attack: Callable[[Stage], None], settle_s: float = SETTLE_S) -> Figures:
    """Run one attack on a prepared broker and return its figures."""
    stage.memory.reset()
    before_mb, before_s = stage.memory.now_mb(), raw.cpu_s(stage.pid)
    began = time.monotonic()
    stage.deadline = began + stage.seconds
    with Pinger(stage.broker.bootstrap, PING, stage.pid) as pinger:
        attack(stage)
        took_s = time.monotonic() - began
        verdict = stage.verdict()
        peak_mb = stage.memory.most_mb()
        stage.hang_up()
        time.sleep(settle_s)
    return {
        **pinger.figures,
        "took_s": took_s,
        "cpu_s": raw.cpu_s(stage.pid) - before_s,
        "reply_mb": sum(talk.reply_bytes for talk in stage.talks) / 1e6,
        "before_mb": before_mb,
        "peak_mb": max(peak_mb, stage.memory.most_mb()),
        "after_mb": stage.memory.now_mb(),
        "outcome": verdict,
        "still_writes": _still_writes(stage),
        **stage.noted,
    }


def _still_writes(stage: Stage) -> bool:
    with contextlib.suppress(OSError), raw.open_connection(stage.broker.bootstrap) as connection:
        return not connection.send(raw.produce_request(PING, 0), 8).responses[0].partition_responses[0].error_code
    return False


__all__ = ["PING", "Figures", "Memory", "Stage", "limit_descriptors", "measure", "open_stage", "processes"]
