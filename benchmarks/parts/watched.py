"""Serve like `ottla serve`, and record the pauses of the garbage collector and of the broker's turns. shell

    python benchmarks/parts/watched.py FILE serve ...     the arguments of `ottla` follow

FILE contains eight numbers (`FIGURES`), which are always up to date. Writing zeros into it starts the count again.
Pauses are measured in CPU time of the main thread, so that other load on the machine is not counted.
"""

import gc
import mmap
import struct
import sys
import time
from pathlib import Path

FIGURES = struct.Struct("<8d")
"""Longest collection, longest full collection and longest turn (ms); numbers of full collections, of collected objects,
and of turns above 20 ms; the charge of the longest turn, and the largest excess of a turn over its charge (ms)."""


class Watch:
    """Numbers of one file."""

    def __init__(self, path: Path, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(FIGURES.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), FIGURES.size)

    def read(self) -> dict[str, float]:
        names = "gc_ms", "full_gc_ms", "turn_ms", "full_gcs", "collected", "long_turns", "charged_ms", "uncharged_ms"
        return dict(zip(names, FIGURES.unpack_from(self._map), strict=True))

    def reset(self) -> None:
        self._map[:] = bytes(FIGURES.size)

    def collection(self, generation: int, ms: float, collected: int) -> None:
        longest, longest_full, *others = FIGURES.unpack_from(self._map)
        turn_ms, full, total, *turns = others
        if generation == 2:
            longest_full, full = max(longest_full, ms), full + 1
        FIGURES.pack_into(self._map, 0, max(longest, ms), longest_full, turn_ms, full, total + collected, *turns)

    def turn(self, ms: float, charged_ms: float) -> None:
        *collections, turn_ms, full, total, late, charged, uncharged = FIGURES.unpack_from(self._map)
        if ms > turn_ms:
            turn_ms, charged = ms, charged_ms
        late, uncharged = late + (ms > 20), max(uncharged, ms - charged_ms)
        FIGURES.pack_into(self._map, 0, *collections, turn_ms, full, total, late, charged, uncharged)


def watch(watch: Watch) -> None:
    """Count collections and turns from now on."""
    from ottla.broker.turns import Turns

    cpu = time.thread_time_ns
    began = 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = cpu()
        else:
            watch.collection(info["generation"], (cpu() - began) / 1e6, info["collected"])

    # The callback runs before the broker's own one, so that the work of that one is not counted as a part of the
    # collection.
    gc.callbacks.insert(0, on_collection)
    event = Turns.event

    def time_event(self, work):  # type: ignore[no-untyped-def]
        if self._running:
            event(self, work)
            return
        start, charged_us = cpu(), self.charged_us
        event(self, work)
        if (ms := (cpu() - start) / 1e6) > 2:
            watch.turn(ms, (self.charged_us - charged_us) / 1000)

    Turns.event = time_event  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    watch(Watch(Path(sys.argv[1])))
    from ottla.cli.main import main

    sys.argv = ["ottla", *sys.argv[2:]]
    main()
