"""The drivers of Node's client libraries, and their packages, which npm fetches into the cache folder on first use."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
DRIVERS = HERE / "drivers"
PROGRAMS = {"kafkajs": "kafkajs_driver.js", "confluent-kafka-javascript": "confluent_javascript_driver.js"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def node_command(name):
    """Return the command of a driver without its address."""
    return ["env", f"NODE_PATH={_packages() / 'node_modules'}", "node", str(DRIVERS / PROGRAMS[name])]


def _packages():
    """Return the folder with the packages. A folder that exists is complete."""
    listed = DRIVERS / "package.json"
    folder = CACHE / f"node-{hashlib.sha256(listed.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        fetched = CACHE / f"{folder.name}.{os.getpid()}"
        fetched.mkdir(parents=True)
        shutil.copy(listed, fetched)
        _run(fetched, "npm", "install", "--silent", "--ignore-scripts")
        # A native codec of kafkajs: without it, the driver lists lz4 as missing.
        _run(fetched, "npm", "rebuild", "--silent", "lz4", check=False)
        _fetch_binding(fetched)
        fetched.rename(folder)
    return folder


def _fetch_binding(folder):
    """Fetch the binding to librdkafka that GitHub has, or build one with the librdkafka of the test suites."""
    package = "@confluentinc/kafka-javascript"
    modules = folder / "node_modules"
    if _run(modules / package, str(modules / ".bin" / "node-pre-gyp"), "install", check=False).returncode == 0:
        return
    from client_suites import build_librdkafka

    root = build_librdkafka().parent
    folders = [root / "src", root / "src-cpp"]
    environment = {
        "BUILD_LIBRDKAFKA": "0",
        "CXXFLAGS": " ".join(f"-I{folder}" for folder in folders),
        "LDFLAGS": " ".join(f"-L{folder} -Wl,-rpath,{folder}" for folder in folders),
    }
    _run(folder, "npm", "rebuild", "--silent", package, **environment)


def _run(folder, *command, check=True, **environment):
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=1800
    )
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done
