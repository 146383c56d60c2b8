"""Marks and what they need. A test that cannot run here is skipped with its reason, never passed over in silence."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess

import pytest

MARKS = {
    "java": "needs a Java 17 or later",
    "maven": "needs Java and Maven, which fetches Apache Kafka",
    "spark": "runs PySpark, which needs Java",
    "conformance": "plays the scenario against Apache Kafka too; runs when OTTLA_CONFORMANCE=1",
    "slow": "takes more than a few seconds; OTTLA_FAST=1 leaves it out",
}


def pytest_configure(config):
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")


@functools.cache
def java_lacks():
    """Why no Java 17 can be run, or an empty string."""
    java = shutil.which("java")
    if java is None:
        return "no java on the path"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"java does not run: {error}"
    version = re.search(r'version "(\d+)', told)
    return "" if version and int(version.group(1)) >= 17 else f"Java 17 is needed: {told.splitlines()[0]}"


def maven_lacks():
    return java_lacks() or ("" if shutil.which("mvn") else "no mvn on the path")


def spark_lacks():
    return java_lacks() or ("" if importlib.util.find_spec("pyspark") else "pyspark is not installed")


def conformance_lacks():
    return maven_lacks() if os.environ.get("OTTLA_CONFORMANCE") == "1" else "set OTTLA_CONFORMANCE=1 to run it"


def slow_lacks():
    return "OTTLA_FAST=1 leaves slow tests out" if os.environ.get("OTTLA_FAST") == "1" else ""


LACKS = {
    "java": java_lacks,
    "maven": maven_lacks,
    "spark": spark_lacks,
    "conformance": conformance_lacks,
    "slow": slow_lacks,
}


def pytest_runtest_setup(item):
    for mark, lacks in LACKS.items():
        if item.get_closest_marker(mark) and (reason := lacks()):
            pytest.skip(f"{mark}: {reason}")
