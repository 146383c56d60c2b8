"""Workloads in separate processes, so that their CPU time is not counted as the broker's. shell"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from parts import warm_memory
from parts.processes import Broker

WORKLOADS = Path(__file__).resolve().parent / "workloads.py"


def run(broker: Broker, workload: str, *, takes_bytes: int = 0, **arguments: Any) -> dict[str, Any]:
    """Run one workload in its own process and add the broker's `cpu_s` over the measured part to its result.

    `takes_bytes` is the memory that the broker's writes take; so much free memory is made available first.
    """
    command = [
        sys.executable,
        str(WORKLOADS),
        workload,
        json.dumps({"bootstrap": broker.bootstrap, **arguments}),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{workload} did not get ready against {broker.name}")
        warm_memory.bring(takes_bytes)
        before = broker.cpu_s()
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        after = broker.cpu_s()
    if not line:
        raise SystemExit(f"{workload} failed against {broker.name}")
    result: dict[str, Any] = json.loads(line)
    result["cpu_s"] = None if before is None or after is None else after - before
    return result


def create_topics(broker: Broker, partitions: dict[str, int]) -> None:
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    for future in admin.create_topics(topics).values():
        future.result(30)


def delete_topics(broker: Broker, topics: Iterable[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)
