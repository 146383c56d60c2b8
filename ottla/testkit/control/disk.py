"""A disk with faults: appends that fail, syncs that fail or are slow. shell"""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath

from ottla.broker.ports.disk import Buffer, RealDisk, RealFile, SyncJob
from ottla.testkit.control.crash import crash
from ottla.testkit.faults.fault import Fault
from ottla.testkit.faults.plan import Named, Plan


class SteeredDisk(RealDisk):
    """The machine's file system, with faults on appends and syncs."""

    __slots__ = ("plan",)

    def __init__(self, open_files_max: int, plan: Plan) -> None:
        super().__init__(open_files_max)
        self.plan = plan

    def open(self, path: str, create: bool = False) -> RealFile:
        return SteeredFile(path, create, self)

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        fault = next((fault for path in paths for fault in _striking(self.plan, "sync", path)), None)
        if fault is None:
            return super().start_sync(paths, on_end)
        if fault.do == "crash":
            crash(fault)
        job = _SteeredJob(on_end)
        if fault.do == "fail":
            threading.Timer(0.0, job.end, (_error(fault, paths[0]),)).start()
        else:
            threading.Timer(fault.ms / 1000, lambda: job.follow(self, paths)).start()
        return job

    def start_real_sync(self, paths: Sequence[str], on_end: Callable[[], None]) -> SyncJob:
        """Start a sync without faults, after a delay fault has waited."""
        return super().start_sync(paths, on_end)


class SteeredFile(RealFile):
    """A file with faults on appends."""

    __slots__ = ("_plan",)

    def __init__(self, path: str, create: bool, disk: SteeredDisk) -> None:
        super().__init__(path, create, disk)
        self._plan = disk.plan

    def append(self, buffers: Sequence[Buffer]) -> None:
        for fault in _striking(self._plan, "append", self._path):
            if fault.do == "crash":
                crash(fault)
            raise _error(fault, self._path)
        super().append(buffers)


class _SteeredJob:
    """A sync that fails or starts late."""

    def __init__(self, on_end: Callable[[], None] | None) -> None:
        self.done = False
        self.error: OSError | None = None
        self._on_end = on_end

    def end(self, error: OSError | None) -> None:
        """End the job. Runs in a thread of its own."""
        self.error = error
        self.done = True
        if self._on_end is not None:
            self._on_end()

    def follow(self, disk: SteeredDisk, paths: Sequence[str]) -> None:
        """Run the real sync, wait for it, and end with its result."""
        ended = threading.Event()
        real = disk.start_real_sync(paths, ended.set)
        ended.wait()
        self.end(real.error)


def _striking(plan: Plan, point: str, path: str) -> Sequence[Fault]:
    if not plan.watches(point) or not path.endswith(".log"):
        return ()
    topic, _, index = PurePath(path).parent.name.rpartition("-")
    return plan.find_firing(point, Named({"topic": topic, "partition": int(index) if index.isdigit() else -1}))


def _error(fault: Fault, path: str) -> OSError:
    return OSError(fault.errno, os.strerror(fault.errno), path)
