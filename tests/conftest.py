"""Marks and their requirements, tests that share a process, and the summary of tests that did not run.

A test that was not requested is deselected. One that cannot run here is skipped, and the summary has the reason.
"""

import functools
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
from collections import Counter

import hypothesis
import pytest

from tests.engine import IS_COMPILED

# Log directories for whoever reads files (the scan, the audit, the data source), browsers, tests in several processes.
pytest_plugins = [
    "tests.segment_files",
    "tests.certificates",
    "tests.chromium",
    "tests.groups",
    "tests.reruns",
    "tests.frozen_objects",
    "ottla.testkit.pytest_plugin",
]

MARKS = {
    "java": "needs a Java 17 or later",
    "maven": "needs Java and Maven, which fetches Apache Kafka",
    "spark": "runs PySpark, which needs Java",
    "conformance": "plays the scenario against Apache Kafka too; runs when OTTLA_CONFORMANCE=1",
    "plain": "replaces a function of the engine, which only plain Python notices",
    "compiled": "compares both forms of the engine: make test-compiled",
    "slow": "takes more than a second on a busy machine; OTTLA_FAST=1, so `make test`, leaves it out",
}
# Brokers and JVMs in real time, and simulations of minutes: all of a folder, but for the seeds that a commit draws.
SLOW_FOLDERS = ("tests/conformance/", "tests/crash/", "tests/sim/", "tests/spark/")
LEFT_OUT = pytest.StashKey[Counter]()


def pytest_configure(config):
    config.stash[LEFT_OUT] = Counter()
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")
    # A shell ignores SIGINT in a background command, nohup ignores SIGHUP; processes of a test would inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # What is drawn decides whether a test passes, and not how busy the machine is.
    patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
    hypothesis.settings.register_profile("patient", **patient)
    hypothesis.settings.load_profile("patient")


@pytest.fixture
def caplog(caplog):
    """Keep only the lines of Ottla: a client library may log from a thread that an earlier test left running.

    The report of a failed test still has all lines.
    """
    only_ottla = logging.Filter("ottla")
    caplog.handler.addFilter(only_ottla)
    yield caplog
    caplog.handler.removeFilter(only_ottla)


@functools.cache
def java_lacks():
    """Return the reason why no Java 17 can run, or an empty string."""
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


LACKS = {
    "java": java_lacks,
    "maven": maven_lacks,
    "spark": spark_lacks,
    "conformance": maven_lacks,
    "plain": lambda: "the engine is compiled" if IS_COMPILED else "",
    "compiled": lambda: "" if IS_COMPILED else "the engine is plain Python here: make test-compiled",
}


def pytest_runtest_setup(item):
    for mark, lacks in LACKS.items():
        if item.get_closest_marker(mark) and (reason := lacks()):
            pytest.skip(reason)


def not_asked_for(item):
    """Return the summary's text for a deselected test, or an empty string."""
    if item.get_closest_marker("conformance") and os.environ.get("OTTLA_CONFORMANCE") != "1":
        return "compared with Apache Kafka: `make conformance` runs them, and so does OTTLA_CONFORMANCE=1"
    if is_slow(item) and os.environ.get("OTTLA_FAST") == "1":
        return "slow: CI runs them, and so does whoever does not set OTTLA_FAST=1"
    return ""


def is_slow(item):
    in_folder = item.nodeid.startswith(SLOW_FOLDERS) and "seeds" not in item.fixturenames
    return in_folder or item.get_closest_marker("slow") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """First of all: what follows sees only what will run."""
    reasons = [not_asked_for(item) for item in items]
    config.stash[LEFT_OUT].update(filter(None, reasons))
    if any(reasons):
        config.hook.pytest_deselected(items=[item for item, reason in zip(items, reasons, strict=True) if reason])
        items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]


def pytest_sessionfinish(session):
    """Send the deselected tests to the controller, if several processes run tests: each has collected all of them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    if "left out" in getattr(node, "workeroutput", {}):  # a process that died said nothing
        node.config.stash[LEFT_OUT] = Counter(node.workeroutput["left out"])


def pytest_terminal_summary(terminalreporter, config):
    lacking = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        *_, reason = report.longrepr
        what = "file" if isinstance(report, pytest.CollectReport) else "test"
        lacking[what, reason.removeprefix("Skipped: ")] += 1
    if lacking:
        terminalreporter.section("skipped for what this machine or a client lacks")
    for (what, reason), count in lacking.most_common():
        terminalreporter.write_line(f"{count:5} {what}{'s' if count > 1 else ''}: {reason}")
    for reason, count in config.stash[LEFT_OUT].most_common():
        terminalreporter.write_line(f"Not asked for: {count:,} tests {reason}.")
