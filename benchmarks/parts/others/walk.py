"""Requests of every served API, the greediest that its schema allows, on a large state. shell

No API is named here: the requests are generated from the schemas (`lab.greedy`) for every entry of the
broker's table. If an API changes topics or configs, the next API gets a fresh copy of the state.
"""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.furnish import Size, furnish
from lab.greedy import GreedyRequest, State, greedy
from ottla.broker.api.context import Api
from ottla.broker.api.table import TABLE
from parts import processes, raw
from parts.options import check_chosen
from parts.others import hostile, stage
from parts.others.felt import heading, line_of
from parts.others.stage import Figures, Stage
from parts.processes import Broker
from parts.watched import Watch

WATCHED = str(Path(__file__).resolve().parents[1] / "watched.py")
METADATA_LOG = "__cluster_metadata-0"
WORST = 10
MOST_BYTES = 4 << 30
"""Address space of the broker: a broker that needs more fails before the memory of the machine is full."""
QUIET_CPU_S = 0.02
QUIET_EVERY_S = 0.1
STARTED_WITHIN_S = 60.0


def size_of(scale: float) -> Size:
    """Return the size of the large state, multiplied by `scale` down to a minimum."""
    return Size(
        topics=max(20, int(2_000 * scale)),
        partitions=max(200, int(10_000 * scale)),
        groups=max(20, int(3_000 * scale)),
        ids=max(20, int(10_000 * scale)),
        offsets=max(100, int(3_000 * scale)),
        metadata_bytes=4_000,
        logs=max(5, int(50 * scale)),
        records=18_000,
        start_ms=time.time_ns() // 1_000_000,
    )


@contextlib.contextmanager
def watch_broker(data_dir: Path, figures: Path) -> Iterator[tuple[Broker, Watch]]:
    watch = Watch(figures, create=True)
    with processes.ottla(data_dir, (), (WATCHED, str(figures))) as broker:
        assert broker.pid is not None
        stage.limit_memory(broker.pid, MOST_BYTES)
        yield broker, watch


def fill_state(data_dir: Path, figures: Path, size: Size) -> State:
    with watch_broker(data_dir, figures) as (broker, _), stage.open_stage(broker, 60) as scene:
        connection = scene.connection
        return furnish(lambda key, version, asked: connection.send(asked, version), lambda: time.sleep(0.02), size)


class Copies:
    """Fresh copies of a data directory, one at a time."""

    def __init__(self, template: Path, root: Path) -> None:
        self._template = template
        self._root = root
        self.path = root / "copy"
        self.renew()

    def renew(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self._template, self.path)

    @property
    def spoiled(self) -> bool:
        return _metadata_bytes(self.path) != _metadata_bytes(self._template)


def _metadata_bytes(data_dir: Path) -> int:
    """Return the size of the metadata log, which grows with each change of a topic or config."""
    return sum(path.stat().st_size for path in (data_dir / METADATA_LOG).glob("*.log"))


def quiet(pid: int, deadline: float) -> None:
    """Wait until the broker has nothing more to do."""
    used_s = raw.cpu_s(pid)
    while time.monotonic() < deadline:
        time.sleep(QUIET_EVERY_S)
        before_s, used_s = used_s, raw.cpu_s(pid)
        if used_s - before_s < QUIET_CPU_S:
            return


def strike(ask: GreedyRequest, times: int) -> Callable[[Stage], None]:
    """Return an attack that pipelines the request, and waits until the work after the reply has ended."""

    def run(scene: Stage) -> None:
        scene.send(*[hostile.frame_of(ask.message(), ask.version)] * times)
        quiet(scene.pid, scene.deadline)

    return run


def title_of(api: Api, ask: GreedyRequest) -> str:
    flags = "" if ask.flags else ", not flagged"
    return f"{api.title} {ask.version} {ask.fill} {ask.array}{flags}"


def walk_api(api: Api, state: State, copies: Copies, options: Any) -> Iterator[Figures]:
    with watch_broker(copies.path, copies.path.parent / "figures") as (broker, watch):
        assert broker.pid is not None
        quiet(broker.pid, time.monotonic() + STARTED_WITHIN_S)
        for ask in greedy(api.key, api.min_version, api.max_version, state):
            if options.match not in title_of(api, ask):
                continue
            watch.reset()
            with stage.open_stage(broker, options.seconds) as scene:
                row = stage.measure(scene, strike(ask, options.times), settle_s=0)
            yield {"title": title_of(api, ask), "api": api.title, **row, **watch.read()}


def walk(options: Any) -> Iterator[Figures]:
    """Yield the figures of each request, API by API."""
    with tempfile.TemporaryDirectory(prefix="ottla-walk-") as directory:
        root = Path(directory)
        state = fill_state(root / "template", root / "figures", size_of(options.scale))
        copies = Copies(root / "template", root)
        for api in TABLE.values():
            if options.only and api.title not in options.only:
                continue
            yield from walk_api(api, state, copies, options)
            if copies.spoiled:
                copies.renew()


def worst(rows: list[Figures], of: Callable[[Figures], float]) -> list[Figures]:
    return sorted(rows, key=of, reverse=True)[:WORST]


def summary(rows: list[Figures]) -> str:
    """Return the worst requests by the wait of other clients, and by memory."""
    lines = [
        "",
        f"the {WORST} longest waits, in CPU time of the loop (and its longest turn, and what that was charged)",
    ]
    for row in worst(rows, lambda row: float(row["longest_loop_ms"])):
        waits = f"{row['longest_loop_ms']:9.1f} {row['turn_ms']:9.1f} {row['charged_ms']:9.1f} ms"
        lines.append(f"{row['title']:70} {waits}")
    lines += ["", f"the {WORST} that took most memory, and what of it stayed"]
    for row in worst(rows, grown_mb):
        lines.append(f"{row['title']:70} {grown_mb(row):9.1f} {row['after_mb'] - row['before_mb']:9.1f} MB")
    return "\n".join(lines)


def grown_mb(row: Figures) -> float:
    return float(row["peak_mb"] - row["before_mb"])


def run(options: Any) -> list[Figures]:
    """Send the requests of all APIs, print a line for each, and then the worst ones."""
    rows: list[Figures] = []
    if options.format == "text":
        print(heading())
    for row in walk(options):
        rows.append(row)
        if options.format == "text":
            print(line_of(row["title"], "ottla", row), flush=True)
    check_chosen(rows, options.match)
    if options.format == "text":
        print(summary(rows))
    sys.stdout.flush()
    return rows
