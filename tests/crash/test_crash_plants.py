"""Deliberate bugs that the crash states, the damages and the failing calls must detect, with the expected findings.

`test_crash_states.py` holds that the same states have no finding without a bug, so that the bug causes all of them.
"""

import pytest

from lab.crash.plants import PLANTS, hunt_plant

NOTICED_AS = {
    "acknowledged-early": "lost record",
    "recovery-unsynced": "shown, then lost with the power",
    "names-unsynced": "lost record",
    "recovery-point-too-far": "wrong time",
    "roll-unsynced": "offline: ",
    "metadata-unsynced": "lost topic",
    "stop-unsynced": "lost record",
    "torn-tail-kept": "is damaged",
    "producers-unread": "wrong records",
    "crc-unchecked": "recovered although it is wrong",
    "cut-at-any-damage": "sound batches were cut off",
    "lost-pages-unknown": "only an unsynced page is missing",
    "append-error-ignored": "nothing is logged or reported",
    "sync-error-ignored": "acknowledged after a failed sync",
    "failed-sync-retried": "acknowledged after a failed sync",
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_noticed(name):
    notice = hunt_plant(name, NOTICED_AS[name])
    assert notice is not None
    assert NOTICED_AS[name] in notice.problems
