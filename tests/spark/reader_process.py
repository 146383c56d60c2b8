"""A Spark in a process of its own, which counts the rows of views: for what a process is alone to show.

Its peak memory is that of reading, and its stderr is the log of a driver. Its environment is not activated: `python3`
is another Python, which has nothing that a worker needs. It creates the session before it imports our package, which
is the more difficult order.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.timeout import EVENT_TIMEOUT_S

SCRIPT = """
import json, re, sys, threading
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
import ottla.spark_jobs

print(json.dumps(spark.sparkContext.parallelize([1], 1).map(lambda _: sys.prefix).first()), flush=True)

def field(status, name):
    return next((int(line.split()[1]) for line in status if line.startswith(name)), 0)


def peaks_of_python():
    "Peak memory in KiB of the processes below this one that run Python, by process id."
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            program = (entry / "exe").readlink().name
            status = (entry / "status").read_text().splitlines()
        except OSError:  # it ended
            continue
        found[int(entry.name)] = field(status, "PPid:"), field(status, "VmHWM:"), program
    below = {os_id for os_id in found if found[os_id][2] == "java"}
    for _ in range(4):
        below |= {os_id for os_id, (parent, _, _) in found.items() if parent in below}
    return {os_id: found[os_id][1] for os_id in below if found[os_id][2].startswith("python")}


peaks = {}


def look():
    for os_id, peak in peaks_of_python().items():
        peaks[os_id] = max(peak, peaks.get(os_id, 0))


def watch(ended):
    while not ended.wait(0.05):
        look()


def count(root, options):
    try:
        return str(spark.read.format("ottla").options(**options).load(root).count())
    except PySparkException as error:
        return "|".join(sorted(set(re.findall(r"\\bottla(?:\\.\\w+)+: .*", str(error)))))


for line in sys.stdin:
    root, options = json.loads(line)
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=[ended], daemon=True)
    watcher.start()
    counted = count(root, options)
    ended.set()
    watcher.join()
    look()
    print(json.dumps([counted, max(peaks.values(), default=0)]), flush=True)
"""


ROOT = Path(__file__).parents[2]


def environment(folder):
    """Return the variables of an environment that is not activated; `folder` gets the other Python."""
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return given | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TZ": "UTC"}


class ReaderProcess:
    """A running process. `log` is what it has written to its stderr, `worker_prefix` the `sys.prefix` of a worker."""

    def __init__(self, folder):
        self._log_path = folder / "log"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT], stderr=log, env=environment(folder), **pipes
            )
        self.worker_prefix = self._read()

    @property
    def log(self):
        return self._log_path.read_text()

    def count(self, root, **options):
        """Return (the number of rows, or the lines of the error; peak memory of a Python process so far in KiB)."""
        print(json.dumps([str(root), options]), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self):
        answer = self._process.stdout.readline()
        assert answer, self.log
        return json.loads(answer)

    def stop(self):
        self._process.communicate(timeout=EVENT_TIMEOUT_S)
        assert self._process.returncode == 0, self.log


@pytest.fixture(scope="session")
def reader_process(tmp_path_factory):
    process = ReaderProcess(tmp_path_factory.mktemp("reader"))
    yield process
    process.stop()
