"""The drivers of Node's client libraries, and their packages, which npm fetches into the cache folder on first use."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

from cache_folder import fill_once
from client_suites import BUILT, CONFLUENT_KAFKA_JAVASCRIPT, build_librdkafka

DRIVERS = Path(__file__).parent / "drivers"
CONFLUENT = "@confluentinc/kafka-javascript"
PROGRAMS = {"kafkajs": "kafkajs_driver.js", "confluent-kafka-javascript": "confluent_javascript_driver.js"}
PACKAGES = {
    "kafkajs": ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0", "kafkajs-lz4@1.2.1"),
    "confluent-kafka-javascript": (f"{CONFLUENT}@{CONFLUENT_KAFKA_JAVASCRIPT}",),
}


class FetchError(Exception):
    """Packages that npm cannot fetch or build here."""


def node_command(name):
    """Return the command of a driver without its address."""
    return ["env", f"NODE_PATH={_fetch(name) / 'node_modules'}", "node", str(DRIVERS / PROGRAMS[name])]


@functools.cache
def lacks_packages(name):
    """Return the reason why a driver cannot be started here, or an empty string."""
    if shutil.which("npm") is None:
        return "no npm on the path"
    try:
        _fetch(name)
    except FetchError as error:
        return str(error)
    return ""


def _fetch(name):
    """Return the folder with the packages of a driver."""

    def fetch(folder):
        _run(folder, "npm", "install", "--silent", "--ignore-scripts", *PACKAGES[name])
        if name == "kafkajs":
            # A native codec: without it, the driver lists lz4 as missing.
            _run(folder, "npm", "rebuild", "--silent", "lz4", check=False)
        else:
            _fetch_binding(folder)

    return fill_once(f"node-{PACKAGES[name][0].lstrip('@').replace('/', '-')}", fetch)


def _fetch_binding(folder):
    """Fetch the binding to librdkafka that GitHub has, or build one with the librdkafka of the test suites."""
    modules = folder / "node_modules"
    if _run(modules / CONFLUENT, str(modules / ".bin" / "node-pre-gyp"), "install", check=False).returncode == 0:
        return
    build_librdkafka()
    root = BUILT / "package" / "deps" / "librdkafka"
    folders = [root / "src", root / "src-cpp"]
    environment = {
        "BUILD_LIBRDKAFKA": "0",
        "CXXFLAGS": " ".join(f"-I{folder}" for folder in folders),
        "LDFLAGS": " ".join(f"-L{folder} -Wl,-rpath,{folder}" for folder in folders),
    }
    _run(folder, "npm", "rebuild", "--silent", CONFLUENT, **environment)


def _run(folder, *command, check=True, **environment):
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=1800
    )
    if check and done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise FetchError(f"{' '.join(command)}: exit code {done.returncode} {' '.join(last)}")
    return done
