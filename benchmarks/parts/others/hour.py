"""Latencies of a well-behaved producer and group during attacks of ten hostile clients, and the memory. shell

One broker serves the well-behaved clients alone for a while, then with the hostile ones for the given time, then alone
again. Each hostile client runs the attacks of attacks.py in turn, beginning with a different one. They run at the
lowest priority, so that they take time of the broker from the well-behaved clients, and not time of the machine.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ottla.protocol.api_keys import ApiKey
from parts import processes
from parts.others import attacks, hostile, stage
from parts.others.attacks import MEBIBYTE
from parts.others.stage import Figures, Stage

HERE = Path(__file__).resolve().parent
HOSTILE = 10
ALONE_S = 30.0
STRIKE_S = 20.0
SEGMENT = f"log.segment.bytes={16 * MEBIBYTE}"
TOPIC = "sound"
CREATED, TOPICS = 50, 2_000
WARM_UP = 2
"""Windows at the beginning of a part that are not counted, because the group forms and the attackers connect."""


def prepare(scene: Stage) -> None:
    """Create the topic of the well-behaved clients, and the state that the attacks request."""
    scene.create([TOPIC], 4)
    for attack in (
        attacks.commit_long_metadata,
        attacks.open_long_ids,
        attacks.write_large_batches,
        attacks.write_mebibytes,
        attacks.create_zstd,
        attacks.find_group,
        attacks.create_many(TOPICS),
    ):
        attack(scene)


def create_and_delete(scene: Stage) -> None:
    mine = attacks.names(CREATED, f"created-{threading.get_ident()}")
    topics = [{"name": name} for name in mine]
    created = hostile.frame(ApiKey.METADATA, 7, topics=topics, allow_auto_topic_creation=True)
    scene.send(created, hostile.frame(ApiKey.DELETE_TOPICS, 5, topic_names=mine, timeout_ms=60_000))


MIX: tuple[Callable[[Stage], None], ...] = (
    attacks.fetch_offsets(20),
    attacks.list_by_pattern,
    attacks.list_by_time,
    attacks.fetch_and_never_read,
    attacks.idle_some,
    attacks.produce_zstd,
    create_and_delete,
    attacks.describe_configs(TOPICS),
    attacks.ask_metadata,
    attacks.describe_groups,
    attacks.join_greedily,
    attacks.describe_log_dirs,
)


def strike_on(scene: Stage, first: int, until: float, counts: list[int]) -> None:
    """Run attacks in turn until `until`, as one hostile client."""
    os.nice(19)
    number = first
    while time.monotonic() < until:
        mine = scene.beside(min(until, time.monotonic() + STRIKE_S))
        try:
            MIX[number % len(MIX)](mine)
            counts[0] += 1
        except OSError:
            counts[1] += 1
            time.sleep(0.2)
        finally:
            mine.hang_up()
        number += 1


class Sound:
    """Well-behaved clients of one part, in a separate process."""

    def __init__(self, bootstrap: str, seconds: float) -> None:
        command = [sys.executable, str(HERE / "healthy.py"), bootstrap, TOPIC, str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._seconds = seconds

    def windows(self) -> Iterator[dict[str, float]]:
        """Yield the figures of each window as soon as its line is printed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def part(scene: Stage, name: str, seconds: float, told: bool) -> Figures:
    """Run the well-behaved clients; return medians over the windows, the worst p99, and the memory over time."""
    windows, memory = [], []
    scene.memory.reset()
    for window in Sound(scene.broker.bootstrap, seconds).windows():
        windows.append(window)
        memory.append(round(scene.memory.now_mb(), 1))
        if told:
            print(line_of(f"{name}, window {len(windows)}", window, memory[-1]), file=sys.stderr, flush=True)
    if not windows:
        raise SystemExit("the well-behaved clients ended without figures: see their error above")
    counted = windows[WARM_UP:] or windows
    figures: Figures = {key: statistics.median(row[key] for row in counted) for key in counted[0]}
    figures["worst_acknowledged_p99_ms"] = max(row["acknowledged_p99_ms"] for row in counted)
    figures["failed"] = sum(row["failed"] for row in windows)
    figures["rebalances"] = sum(row["rebalances"] for row in counted)
    return figures | {"rss_mb": memory, "most_mb": scene.memory.most_mb()}


def line_of(title: str, row: Figures, memory_mb: float) -> str:
    rates = f"{row['acknowledged_per_s']:8,.0f} {row['acknowledged_p50_ms']:8.1f} {row['acknowledged_p99_ms']:9.1f}"
    read = f"{row['read_per_s']:8,.0f} {row['read_p99_ms']:9.1f}"
    return f"{title:28} {rates} {read} {row['failed']:7.0f} {row['rebalances']:6.0f} {memory_mb:7.0f}"


HEADING = (
    f"{'':28} {'written':>8} {'p50':>8} {'p99':>9} {'read':>8} {'p99':>9} {'failed':>7} {'rebal-':>6} {'RSS':>7}\n"
    f"{'':28} {'/s':>8} {'ms':>8} {'ms':>9} {'/s':>8} {'ms':>9} {'':>7} {'ances':>6} {'MB':>7}"
)


def run(options: Any) -> dict[str, Figures]:
    """Return the figures of the parts: alone, hostile, after."""
    told = options.format == "text"
    with processes.ottla(None, (SEGMENT,)) as broker, stage.open_stage(broker, options.seconds) as scene:
        prepare(scene)
        if told:
            print(HEADING, file=sys.stderr)
        alone_s = min(ALONE_S, options.hour)
        parts = {"alone": part(scene, "alone", alone_s, told)}
        until = time.monotonic() + options.hour
        counts = [0, 0]
        threads = [
            threading.Thread(target=strike_on, args=(scene, number, until, counts), daemon=True)
            for number in range(HOSTILE)
        ]
        for thread in threads:
            thread.start()
        parts["hostile"] = part(scene, "ten hostile", options.hour, told) | {"strikes": counts[0], "refused": counts[1]}
        for thread in threads:
            thread.join(2 * STRIKE_S)
        parts["after"] = part(scene, "alone again", alone_s, told)
    if told:
        print(HEADING)
        for name, row in parts.items():
            print(line_of(name, row, row["most_mb"]))
        worst_ms = parts["hostile"]["worst_acknowledged_p99_ms"]
        print(f"{counts[0]} strikes, {counts[1]} broken off; worst p99 {worst_ms:.0f} ms")
    return parts
