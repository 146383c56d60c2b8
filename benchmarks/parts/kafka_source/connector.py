"""Spark's own Kafka source: its jars from Maven, and a Python environment with the matching Spark. shell

Both are stored in a cache directory, so that only the first run fetches them.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

POM = Path(__file__).resolve().parent / "pom.xml"
# Versions that Maven had when this was written, the newest first. The version of our Spark is tried before these.
KNOWN = ("4.2.0", "4.1.1", "4.0.0")
FETCH_TIMEOUT_S = 900


class Connector(NamedTuple):
    """Spark's Kafka source of one version: the jars, and the interpreter whose pyspark they are put into."""

    version: str
    jars: tuple[str, ...]
    python: str
    spark_version: str


def need_java_and_maven() -> None:
    """Exit if Java or Maven is missing."""
    for name, what in (("java", "Java 17"), ("mvn", "Maven, which fetches Apache Kafka and Spark's Kafka source")):
        if shutil.which(name) is None:
            raise SystemExit(f"this needs {what}: no {name} on the path")


def connector(cache: Path, version: str | None, *, same_spark: bool) -> Connector:
    """Return the source in `version`; without one in the version of our Spark, else the newest that Maven has.

    It runs on the Spark of its own version, in a separate environment; with `same_spark` on ours.
    """
    import pyspark

    ours = pyspark.__version__
    wanted = (version,) if version else (ours, *(one for one in KNOWN if one != ours))
    found, jars = _jars(cache, wanted)
    if same_spark or found == ours:
        return Connector(found, jars, sys.executable, ours)
    return Connector(found, jars, _python_with_spark(cache, found), found)


def _jars(cache: Path, versions: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    for version in versions:
        folder = cache / f"spark-kafka-{version}"
        if not folder.exists():
            _tell(f"asking Maven for Spark's Kafka source {version}")
            said = _copy_jars(version, folder)
            if said is not None:
                continue
        return version, tuple(str(path) for path in sorted(folder.glob("*.jar")))
    raise SystemExit(f"Maven has no Spark Kafka source in {', '.join(versions)}:\n{said}")


def _copy_jars(version: str, folder: Path) -> str | None:
    """Copy the jars to `folder`. Return Maven's output if it fails."""
    # The folder has another name until it is complete.
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    done = subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(POM), f"-Dconnector.version={version}", "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={new}"),
        ],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
    )
    if done.returncode != 0 or not new.exists():
        said = (line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line)
        return next(said, f"Maven ended with {done.returncode}")
    new.rename(folder)
    return None


def _python_with_spark(cache: Path, version: str) -> str:
    """Return the path of an interpreter with this pyspark and nothing else."""
    folder = cache / f"pyspark-{version}-python{sys.version_info.major}.{sys.version_info.minor}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        _tell(f"making an environment with pyspark {version} in {folder}: a minute or two")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=FETCH_TIMEOUT_S)
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise SystemExit(f"pip did not install pyspark {version}:\n{done.stderr[-2000:]}")
        complete.touch()
    return str(python)


def _tell(line: str) -> None:
    print(f"{line} ...", file=sys.stderr, flush=True)
