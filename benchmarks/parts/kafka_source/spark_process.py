"""Spark in a process that reads on request, and the brokers that its Kafka source reads from. shell"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from parts.log import TOPIC

BENCHMARKS = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30


class SparkReader:
    """Process of `spark_reads.py`; `ask` sends a request and returns the answer."""

    def __init__(self, name: str, process: "subprocess.Popen[str]", log: Path) -> None:
        self._name, self._process, self._log = name, process, log
        self.version = self._answer()["spark"]

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"Spark with {self._name} failed:\n{self._log.read_text(errors='replace')[-3000:]}")
        return json.loads(line)


@contextlib.contextmanager
def spark_reader(name: str, python: str, cores: int, jars: tuple[str, ...], scratch: Path) -> Iterator[SparkReader]:
    """Run Spark in its own process. It stops, with its JVM, at the end of its input."""
    arguments = json.dumps({"cores": cores, "jars": list(jars)})
    log = scratch / f"{name.replace(' ', '-')}.log"
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")}
    # Workers import the package from this checkout. The Kafka source's environment lacks the package's dependencies,
    # but nothing there imports the package.
    environment["PYTHONPATH"] = os.pathsep.join((str(BENCHMARKS.parent), str(BENCHMARKS)))
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [python, str(BENCHMARKS / "parts" / "kafka_source" / "spark_reads.py"), arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            # Ctrl-C must reach only this process, which then stops that one.
            start_new_session=True,
        )
    try:
        yield SparkReader(name, process, log)
    except BaseException:
        # The process may be waiting for a broker that has stopped.
        os.killpg(process.pid, signal.SIGTERM)
        raise
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """Close the input of the process, wait until it and its JVM have ended, and kill them after the timeout."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    # The process has its own process group, and the JVM is in it.
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def theirs_of(bootstrap: str, columns: dict[str, str]) -> dict[str, Any]:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    return {"format": "kafka", "options": options, "load": None, "schema": None, "columns": [*columns]}


def wait_for_leaders(bootstrap: str) -> None:
    """Wait until the broker returns the end offsets. Kafka answers, and names itself as leader, before it has them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            topic = admin.list_topics(timeout=10).topics.get(TOPIC)
            places = [TopicPartition(TOPIC, number) for number in topic.partitions] if topic is not None else []
            if places:
                for end in admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest())).values():
                    end.result()
                return
        time.sleep(0.1)
    raise SystemExit(f"the broker at {bootstrap} leads no {TOPIC} after {START_TIMEOUT_S} s")
