"""Comparison of workloads that take turns, each on its own broker, by the broker's CPU time. shell"""

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parts import processes
from parts.processes import Broker
from parts.raw import cpu_s
from parts.watched import Watch

WATCHED = str(Path(__file__).resolve().parent / "watched.py")


@contextlib.contextmanager
def watch_broker(data_dir: Path | None = None, *overrides: str) -> Iterator[tuple[Broker, Watch]]:
    with tempfile.TemporaryDirectory(prefix="ottla-watch-") as directory:
        path = Path(directory) / "figures"
        watch = Watch(path, create=True)
        with processes.ottla(data_dir, overrides, (WATCHED, str(path))) as broker:
            yield broker, watch


def spent(broker: Broker, work: Callable[[], Any]) -> float:
    """Return the CPU seconds of the broker while `work` runs."""
    assert broker.pid is not None
    before = cpu_s(broker.pid)
    work()
    return cpu_s(broker.pid) - before


def each_ms(broker: Broker, count: int, work: Callable[[], Any]) -> float:
    def all_of_it() -> None:
        for _ in range(count):
            work()

    return spent(broker, all_of_it) / count * 1000


def medians_ms(rounds: int, count: int, *works: tuple[Broker, Callable[[], Any]]) -> list[float]:
    """Return the median time of each work. They take turns, so that other load affects all alike.

    The first round is not counted.
    """
    samples = [[each_ms(broker, count, work) for broker, work in works] for _ in range(rounds + 1)]
    return [statistics.median(column) for column in zip(*samples[1:], strict=True)]
