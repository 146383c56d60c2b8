"""A standalone Spark cluster on this machine: a master and two workers, none of which finds our source tree."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 120


@contextmanager
def spark_cluster(folder):
    """Yields (master's URL, environment for drivers); ends what it started."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_GATEWAY_PORT")
    }
    environment |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python_without_us(folder)),
        "PYSPARK_DRIVER_PYTHON": str(python_without_us(folder)),
        "TZ": "UTC",
        # As in a container whose user has no home: what is to outlive an application goes to the temporary folder.
        "HOME": os.devnull,
        "TMPDIR": str(folder),
    }
    environment.pop("XDG_CACHE_HOME", None)
    with ExitStack() as running:

        def start(name, *arguments):
            command = [home / "bin/spark-class", *arguments, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            (folder / name).mkdir()
            log = folder / f"{name}.log"
            process = running.enter_context(_start(command, folder / name, log, environment))
            return process, log

        master, log = start("master", "org.apache.spark.deploy.master.Master")
        url = _wait_for(r"Starting Spark master at (spark://\S+)", master, log)
        for name in ("worker-0", "worker-1"):
            sizes = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name)]
            worker, log = start(name, "org.apache.spark.deploy.worker.Worker", url, *sizes)
            _wait_for(r"(Successfully registered with master)", worker, log)
        yield url, environment


def python_without_us(folder):
    """A Python with the installed libraries, which does not find the package that is installed to be edited."""
    path = folder / "python"
    libraries = [one for one in sys.path if Path(one).name == "site-packages"]
    # -S: site would read the .pth file that points to our source tree.
    found = os.pathsep.join(["${PYTHONPATH:-}", *libraries])
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{found}" exec {sys.executable} -S "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


@contextmanager
def _start(command, folder, log, environment):
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(one) for one in command], cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(pattern, process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        text = log.read_text(encoding="utf-8", errors="replace")
        if match := re.search(pattern, text):
            return match[1]
        assert process.poll() is None, f"ended with {process.returncode}:\n{text[-2000:]}"
        time.sleep(0.2)
    raise AssertionError(f"not started within {START_SECONDS} s:\n{log.read_text(errors='replace')[-2000:]}")
