"""Freezing of pytest's objects of thousands of tests, so that no garbage collection scans a million of them.

No collection runs while the tests are collected: almost everything that is made then stays.

A broker in the process freezes what its start has made and thaws everything when it stops; so do its tests
(`ottla/broker/collector.py`). After the test these objects are frozen again, so that the next broker pays nothing;
in a test that stops several brokers, after each stop from the second on. Reference cycles of the test are frozen too;
after `THAWED_AT_MOST` tests a collection runs first.
"""

import gc

import pytest

THAWED_AT_MOST = 20
"""Number of tests that may leave brokers in reference cycles before a collection."""


class OutOfSight:
    def __init__(self):
        self.thawed = False
        self.times = 0
        self._unfreeze = gc.unfreeze

    def unfreeze(self):
        self._unfreeze()
        if self.thawed:
            gc.freeze()
        self.thawed = True

    def pytest_collection(self):
        gc.disable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self):
        gc.enable()
        gc.unfreeze = self.unfreeze  # to count what is frozen takes as long as a collection
        self.freeze()

    def pytest_runtest_logfinish(self):
        if self.thawed:
            self._unfreeze()
            self.times += 1
            self.freeze(self.times % THAWED_AT_MOST == 0)

    def freeze(self, collect=True):
        if collect:
            gc.collect()
        gc.freeze()
        gc.collect()  # what the collector saw last is what it waits for a quarter of
        self.thawed = False

    def pytest_unconfigure(self):
        gc.enable()
        gc.unfreeze = self._unfreeze


def pytest_configure(config):
    config.pluginmanager.register(OutOfSight())
