"""Each call of the disk fails once, in three ways; `python -m lab.crash failures` runs all of them."""

import pytest

from lab.crash.failures import sweep


@pytest.mark.parametrize("flushing", [True, False], ids=["flushed", "unflushed"])
def test_failing_disk_calls_violate_no_guarantee(flushing):
    """Nothing is acknowledged after a failed sync, nothing acknowledged is lost, and the failure is reported."""
    met, problems = sweep(flushing, every=41)
    assert problems == []
    kinds = {name.partition(" of ")[2] for name in met}
    assert kinds > {"append", "append, short", "write", "write, short", "link", "sync"}
