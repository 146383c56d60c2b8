"""Starts of the broker: time to `ready`, memory then, and the first requests of a client that connects at once. shell

Each start is a new process with a new data directory. *With bytecode* everything is compiled already; *without* the
broker's own modules are compiled at each start, and those of its dependencies are not, as pip leaves them.
"""

import os
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from parts import raw
from parts.figures import Figures, Row
from parts.processes import Broker

TOPIC = "first"
BYTECODE = ("with", "without")
GOALS = {"with": 0.25, "without": 0.5}
MEMORY_GOAL_MB = 44
REQUESTS = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH)


class Subject(NamedTuple):
    """A checkout of Ottla on an interpreter."""

    name: str
    python: str
    checkout: Path


def rows(subjects: Sequence[Subject]) -> list[Row]:
    found = []
    for subject in subjects:
        for bytecode in BYTECODE:
            start, key = f"{subject.name}, {bytecode} bytecode", f"{subject.name}_{bytecode}"
            found.append(Row(f"{key}_ready_s", f"ottla serve, {start}: ready", "s", GOALS[bytecode]))
            found.append(Row(f"{key}_ready_cpu_s", "  CPU", "s"))
            found.append(Row(f"{key}_ready_mb", "  resident memory", "MB", MEMORY_GOAL_MB))
            found += [Row(f"{key}_{api.title}_ms", f"  first {api.title}", "ms") for api in REQUESTS]
            found.append(Row(f"{key}_answered_s", "  from the start to the answer of the fourth request", "s"))
    return found


def measure(subjects: Sequence[Subject], rounds: int, scratch: Path) -> Figures:
    """Return the medians. The subjects take turns in each round."""
    found: dict[str, list[float]] = defaultdict(list)
    for subject in subjects:
        _keep_bytecode(subject, scratch)
    for number in range(rounds):
        for subject in (*subjects[number % len(subjects) :], *subjects[: number % len(subjects)]):
            for bytecode in BYTECODE:
                for name, value in _start(subject, scratch, bytecode).items():
                    found[f"{subject.name}_{bytecode}_{name}"].append(value)
    return {key: statistics.median(values) for key, values in found.items()}


def _cache(subject: Subject, scratch: Path, bytecode: str) -> Path:
    return scratch / f"bytecode-{subject.name.replace('/', '-')}-{bytecode}"


def _keep_bytecode(subject: Subject, scratch: Path) -> None:
    """Fill the cache of a subject, and copy it without the broker's own modules."""
    full, rest = (_cache(subject, scratch, bytecode) for bytecode in BYTECODE)
    _start(subject, scratch, "with", writes=True)
    shutil.copytree(full, rest)
    shutil.rmtree(rest / subject.checkout.relative_to("/") / "ottla")


@contextmanager
def _serving(
    subject: Subject, scratch: Path, bytecode: str, writes: bool
) -> Iterator[tuple["subprocess.Popen[str]", float, str]]:
    """Run a broker. Yields its process, the time of its start and its address."""
    environment = dict(os.environ) | {"PYTHONPYCACHEPREFIX": str(_cache(subject, scratch, bytecode))}
    environment["PYTHONDONTWRITEBYTECODE"] = "" if writes else "1"
    data = scratch / "data"
    command = [subject.python, "-m", "ottla", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=subject.checkout, env=environment
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"{' '.join(command)} in {subject.checkout} ended with code {process.wait()}")
        yield process, began, line.split()[1].rpartition("//")[2]
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(data, ignore_errors=True)


def _start(subject: Subject, scratch: Path, bytecode: str, writes: bool = False) -> Figures:
    """Start a broker, send the requests on one connection, and stop it."""
    with _serving(subject, scratch, bytecode, writes) as (process, began, address):
        figures: Figures = {"ready_s": time.perf_counter() - began, "ready_cpu_s": raw.cpu_s(process.pid)}
        figures["ready_mb"] = Broker("ottla", address, process.pid).resident_mb() or 0.0
        figures |= _first_requests(address)
        figures["answered_s"] = time.perf_counter() - began
        if writes:
            _wait_until_idle(process.pid)
    return figures


def _wait_until_idle(pid: int) -> None:
    """Wait for the imports after the start, whose bytecode is written too."""
    before_s = 0.0
    while (now_s := raw.cpu_s(pid)) - before_s > 0.01:
        before_s = now_s
        time.sleep(0.2)


def _first_requests(address: str) -> Figures:
    figures: Figures = {}
    with raw.open_connection(address) as connection:
        for api, request, version in _requests():
            began = time.perf_counter()
            while not _has_no_error(connection.send(request, version)):
                pass
            figures[f"{api.title}_ms"] = (time.perf_counter() - began) * 1e3
    return figures


def _has_no_error(response: object) -> bool:
    """Return whether a response has no error; Metadata has one while it creates the topic."""
    topics = getattr(response, "topics", ())
    return all(not topic.error_code for topic in topics)


def _requests() -> Iterator[tuple[ApiKey, object, int]]:
    hello = codec.request_class(ApiKey.API_VERSIONS)
    yield ApiKey.API_VERSIONS, hello(client_software_name="benchmark", client_software_version="1"), 3
    metadata = codec.request_class(ApiKey.METADATA)
    topic = metadata.MetadataRequestTopic(name=TOPIC)
    yield ApiKey.METADATA, metadata(topics=[topic], allow_auto_topic_creation=True), 8
    yield ApiKey.PRODUCE, raw.produce_request(TOPIC, 0), 9
    fetch = codec.request_class(ApiKey.FETCH)
    partition = fetch.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [fetch.FetchTopic(topic=TOPIC, partitions=[partition])]
    request = fetch(replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1_000_000, session_epoch=-1, topics=topics)
    yield ApiKey.FETCH, request, 11
