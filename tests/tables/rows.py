"""Names of the cases of the decision tables, and the states that they begin with."""

import re

import pytest

from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import TransactionSettings, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E

ROW = re.compile(r"[A-Z][A-Z0-9]*-\d+")
"""A row's id. What follows it in the name of a case, behind a blank, says which of the row's conditions is played."""

PID, OLD_PID, FRESH_PID = 4000, 3000, 5000
NOW = 1_700_000_000_000
BEGAN = NOW - 500
PLACES = {("foo", 1): None, ("bar", 0): None}

RESTING = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
LOGGED = (*RESTING, S.ONGOING, *PREPARED)
PENDING = TransientState(pending=TransactionState(PID, 5, S.COMPLETE_COMMIT, 60_000, {}, BEGAN, NOW))

BUSY, FENCED, MAPPING = E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING
STATE, LOADING, EPOCH = E.INVALID_TXN_STATE, E.COORDINATOR_LOAD_IN_PROGRESS, E.INVALID_PRODUCER_EPOCH


def row(*cases):
    """Run the function with these cases; its argument `row` is the case's name, which begins with the row's id."""
    assert all(ROW.match(case) for case in cases)
    return pytest.mark.parametrize("row", cases)


def rows(cases):
    """Run the function with these values; their first field is the case's name."""
    names = [case[0] for case in cases]
    assert all(map(ROW.match, names)) and len(set(names)) == len(names), names
    return pytest.mark.parametrize("case", cases, ids=names)


def build_state(status, epoch=5, *, previous=PID, version=0):
    """Return the coordinator's state of an id of 60 s timeout; open and prepared ones have two partitions."""
    partitions = {} if status in RESTING else PLACES
    began = -1 if status is S.EMPTY else BEGAN
    return TransactionState(PID, epoch, status, 60_000, partitions, began, NOW - 400, previous, -1, version)


def build_prepare(status, epoch=5, *, began=BEGAN, partitions=PLACES, next_id=-1, version=0):
    """Return the Prepare record that ends the open transaction of `build_state`."""
    return TransactionState(PID, epoch, status, 60_000, partitions, began, NOW, PID, next_id, version)


HOUR_MS = 3_600_000


def quick_expiry(rig):
    """Expire ids after ten hours and check timeouts each hour: a week would be 60,000 scans."""
    rig.settings = TransactionSettings(id_expiration_ms=10 * HOUR_MS, abort_interval_ms=HOUR_MS)
    rig.restart()
