"""Groups of tests that share a process, and their order, if pytest-xdist runs several processes: `pytest -n 2`.

A group runs in one process, one test after the other. A group is one of these:
- all tests that start a JVM, so that one JVM runs at a time;
- all tests that compile kernels without a JVM, so that each kernel is compiled once;
- the tests of `tests/wire/broker`, which share brokers;
- a test of the simulation, which shares nothing;
- any other file, so that its fixtures are made once.

The longest groups begin first. The seeds are short and fill the end.
"""

import re

import pytest

JVM, KERNELS, BROKERS = "jvm", "kernels", "brokers"
MARKS_OF_JVM = ("java", "maven", "spark")
FILES_OF_JVM = (
    "tests/conformance/test_",
    "tests/conformance/compaction/",
    "tests/conformance/in_the_log/",
    "tests/spark/",
    "tests/wire/broker/test_configs_act.py",
    "tests/wire/test_kafka_reads_ours.py",
)
CASE_OF_JVM = re.compile(r"[\[-]apache[]-]")  # of a file whose other cases are for Ottla
FOLDERS = {"tests/audit/": KERNELS, "tests/scan/": KERNELS, "tests/wire/broker/": BROKERS}
TURNS = (JVM, KERNELS, BROKERS)
LONG_FOLDERS = ("tests/conformance/", "tests/crash/", "tests/sim/")
SEEDS = "tests/sim/test_seeds.py::test_no_seed_"


def group_of(nodeid):
    """The group of a test, by the name that pytest gives it."""
    if nodeid.startswith(FILES_OF_JVM) or CASE_OF_JVM.search(nodeid):
        return JVM
    for folder, group in FOLDERS.items():
        if nodeid.startswith(folder):
            return group
    return nodeid if nodeid.startswith("tests/sim/") else nodeid.partition("::")[0]


def turn_of(item):
    """Return the rank of a group: lower ranks run earlier."""
    group = group_of(item.nodeid)
    if group in TURNS:
        return TURNS.index(group)
    if item.nodeid.startswith(SEEDS):
        return len(TURNS) + 2
    return len(TURNS) + (0 if item.nodeid.startswith(LONG_FOLDERS) else 1)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail the collection of a file whose JVM could run at the same time as another: the scheduler sees names alone."""
    report = yield
    for item in report.result:
        marks = [mark for mark in MARKS_OF_JVM if isinstance(item, pytest.Item) and item.get_closest_marker(mark)]
        if marks and group_of(item.nodeid) != JVM:
            file, _, test = item.nodeid.partition("::")
            report.outcome = "failed"
            report.longrepr = f"{test} is marked {marks[0]}: add {file} to FILES_OF_JVM in tests/groups.py"
            report.result = []
            break
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Each process has the same tests in the same order."""
    if hasattr(config, "workerinput"):
        items.sort(key=turn_of)


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
