"""Groups of tests that share a process, and their order, if pytest-xdist runs several processes: `pytest -n 2`.

A group runs in one process, one test after the other. A group is one of these:
- all tests that run Spark, which share a session;
- all others that start a JVM, so that one Kafka runs at a time;
- all that compile kernels without Spark, so that each kernel is compiled once;
- the tests of `tests/wire/broker`, which share brokers;
- a test of the simulation, which shares nothing;
- any other file, so that its fixtures are made once.

The longest groups begin first, and those that wait most. The seeds are short and fill the end.
"""

import os
import re

import pytest

SPARK, JVM, BROKERS, KERNELS = GROUPS = "spark", "jvm", "brokers", "kernels"
MARKS_OF_JVM = ("java", "maven", "spark")
GROUP_OF_FILES = {
    "tests/spark/": SPARK,
    "tests/conformance/test_": JVM,
    "tests/conformance/compaction/": JVM,
    "tests/conformance/in_the_log/": JVM,
    "tests/conformance/several_brokers/": JVM,
    "tests/wire/broker/test_configs_act.py": JVM,
    "tests/wire/test_kafka_reads_ours.py": JVM,
    "tests/wire/broker/": BROKERS,
    "tests/audit/": KERNELS,
    "tests/scan/": KERNELS,
}
"""The group of files whose names begin so; the first entry that fits."""
CASE_OF_JVM = re.compile(r"[\[-](apache|java)[]-]")
BYTES_OF_PROCESS = 2 << 30
LONG_FOLDERS = ("tests/conformance/", "tests/crash/", "tests/sim/", "tests/wire/")
SEEDS = "tests/sim/test_seeds.py::test_no_seed_"


def group_of(nodeid):
    """Return the group of a test, by the name that pytest gives it."""
    if CASE_OF_JVM.search(nodeid):
        return JVM
    for files, group in GROUP_OF_FILES.items():
        if nodeid.startswith(files):
            return group
    return nodeid if nodeid.startswith("tests/sim/") else nodeid.partition("::")[0]


def turn_of(item):
    """Return the rank of a group: lower ranks run earlier."""
    group = group_of(item.nodeid)
    if group in GROUPS:
        return GROUPS.index(group)
    if item.nodeid.startswith(SEEDS):
        return len(GROUPS) + 2
    return len(GROUPS) + (0 if item.nodeid.startswith(LONG_FOLDERS) else 1)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail the collection of a file whose JVM could run next to another: the scheduler knows only names."""
    report = yield
    for item in report.result:
        marks = {mark.name for mark in item.iter_markers()} if isinstance(item, pytest.Item) else set()
        if (java := marks.intersection(MARKS_OF_JVM)) and group_of(item.nodeid) not in (SPARK, JVM):
            file, _, test = item.nodeid.partition("::")
            report.outcome = "failed"
            report.longrepr = f"{test} is marked {min(java)}: add {file} to GROUP_OF_FILES in tests/groups.py"
            report.result = []
            break
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Each process has the same tests in the same order."""
    if hasattr(config, "workerinput"):
        items.sort(key=turn_of)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return two processes for each processor, as far as memory allows: many tests wait for a client."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(processors, min(2 * processors, memory_bytes // BYTES_OF_PROCESS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Replace `--dist loadgroup`, which writes groups into the names of tests: from pytest 9.2 on they are not read.

    https://github.com/pytest-dev/pytest-xdist/issues/1386
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)
