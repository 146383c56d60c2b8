"""Build and start kfake. shell

It runs one broker without limits on versions, and keeps its log in memory. It writes no file, and checks batches but
not the records in them.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from parts.processes import Broker, answering, running

HERE = Path(__file__).resolve().parent
SOURCES = ("main.go", "go.mod", "go.sum")


class Missing(Exception):
    """Error that says why kfake cannot be built here."""


def built() -> Path:
    """Return the program, built on first use. Its name contains the digest of its source."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in SOURCES)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
    program = cache / f"kfake-{digest}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise Missing("Go is not installed")
    cache.mkdir(parents=True, exist_ok=True)
    # Another process may build at the same time, and must not find an incomplete file.
    unfinished = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run([go, "build", "-o", str(unfinished), "."], cwd=HERE, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Missing(f"go build in {HERE.name}: {lines[-1]}")
    unfinished.rename(program)
    return program


def version() -> str:
    """Return the version of kfake in `go.mod`."""
    return next(line.split()[-1] for line in (HERE / "go.mod").read_text().splitlines() if "pkg/kfake" in line)


@contextlib.contextmanager
def kfake(program: Path, directory: Path) -> Iterator[Broker]:
    """Run one broker, with its output in `directory`."""
    log = directory / "kfake.log"
    with running([str(program)], log) as (process, began):
        while not (line := log.read_text()).endswith("\n"):
            if process.poll() is not None:
                raise SystemExit(f"kfake ended with code {process.returncode}:\n{line[-2000:]}")
            time.sleep(0.005)
        yield answering("kfake", line.strip(), process, log, began)
