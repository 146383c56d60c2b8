"""Reruns of failed tests: a process of pytest-xdist asks the controller only after a failure.

pytest-rerunfailures asks it three times for each test, over a socket. The third message of a short test waits 40 ms,
because the kernel holds it until the second is acknowledged. Two of the answers are for a test that another process
began, and the scheduler of `tests/groups.py` gives no test to two processes. The third, the number of reruns of all
processes, matters to a failed test alone.
"""

import pytest


class AfterFailure:
    """Replace the questions of `db`, the plugin's connection to the controller."""

    def __init__(self, db):
        self._count_reruns = db.get_suite_reruns
        self.failed = False
        db.get_suite_reruns = self.get_suite_reruns
        db.get_test_failures = lambda nodeid: 0
        db.set_test_reruns = lambda nodeid, reruns: None

    def get_suite_reruns(self):
        return self._count_reruns() if self.failed else 0

    def pytest_runtest_logstart(self):
        self.failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        self.failed = self.failed or report.failed
        return report


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if hasattr(config, "workerinput") and config.getoption("reruns", None) is not None:
        config.pluginmanager.register(AfterFailure(config.failures_db))
