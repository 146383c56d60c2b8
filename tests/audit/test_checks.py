"""Checks that need no directory: shape and its model, idle transactions, copies, the arguments."""

from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.audit.checks import copies, shape, stale
from ottla.audit.checks.finding import CHECKS
from ottla.audit.checks.once import Outcome
from ottla.audit.selection import BadArgument, parse_as_of, parse_checks
from ottla.protocol.internal_topics.transaction_records import TransactionValue
from ottla.scan import events, headers, states

DAY_MS = 86_400_000


def end_rows(sizes_and_durations, fate=1):
    rows = np.zeros((len(sizes_and_durations), events.ENDED_COLUMNS), dtype=np.int64)
    rows[:, events.ENDED_FATE] = fate
    rows[:, events.ENDED_BATCHES] = 1
    rows[:, [events.ENDED_RECORDS, events.ENDED_END_MS]] = sizes_and_durations
    rows[:, events.ENDED_BYTES] = 100 * rows[:, events.ENDED_RECORDS]
    return rows


NO_ROWS = np.empty((0, headers.COLUMNS), dtype=np.int64)


def test_model_is_found_again_and_one_that_was_left_open_does_not_matter():
    made = [(size, 2 * size + 50) for size in (1, 10, 100, 1000) for _ in range(20)]
    found = shape.fit(shape.of_step(NO_ROWS, end_rows([*made, (10, 900_000), (10, 800_000)])))
    assert found.write_ms == pytest.approx(2, rel=0.15)
    assert found.overhead_ms == pytest.approx(50, rel=0.15)
    assert found.record_bytes == 100
    assert found.bytes_per_second(1_000_000) == pytest.approx(1000 * 100 / 2, rel=0.15)


def test_no_model_without_different_sizes_and_in_any_number_of_steps_the_same():
    same = shape.of_step(NO_ROWS, end_rows([(5, 20)] * 40))
    assert shape.fit(same) is None
    made = [(size, 2 * size + 50) for size in (1, 10, 100) for _ in range(20)]
    parts = [shape.pack_shape(shape.of_step(NO_ROWS, end_rows(made[at : at + 7]))) for at in range(0, len(made), 7)]
    assert shape.fit(shape.merge(parts)) == shape.fit(shape.of_step(NO_ROWS, end_rows(made)))


def test_aborted_transactions_count_but_do_not_vote():
    both = shape.of_step(NO_ROWS, np.concatenate([end_rows([(5, 20)] * 3), end_rows([(5, 2_000)], fate=0)]))
    assert (both.committed, both.aborted, int(both.grid.sum())) == (3, 1, 3)
    assert "of 4 ends in partitions 25.0% are aborts" in shape.findings(both, Outcome())[0].message


def producers(*idle_ms, now_ms=10 * DAY_MS):
    rows = np.full((len(idle_ms), states.COLUMNS), -1, dtype=np.int64)
    rows[:, states.LAST_TIMESTAMP] = now_ms - np.array(idle_ms)
    return rows


def test_producers_beyond_the_expiration_and_about_to_reach_it_are_counted():
    idle = stale.idle_producers(producers(0, DAY_MS - 1_000, DAY_MS, 3 * DAY_MS), 10 * DAY_MS, DAY_MS)
    assert idle == stale.Idle(4, 2, 1, 7 * DAY_MS)
    (finding,) = stale.findings({}, [(("ledger", 0), idle)], 10 * DAY_MS, 7 * DAY_MS, DAY_MS)
    assert (finding.severity, finding.topic) == ("info", "ledger")
    assert "of 4 producers, 2 idle" in finding.message and "1 about to expire" in finding.message


@pytest.mark.parametrize(
    ("status", "idle_days", "said"),
    [(0, 6, None), (4, 6.5, "expires in 12 h"), (5, 8, "has expired"), (1, 8, None), (2, 8, None)],
)
def test_transactional_ids_that_no_transaction_keeps_expire(status, idle_days, said):
    now_ms = 20 * DAY_MS
    value = TransactionValue(5, 0, 60_000, status, None, now_ms - int(idle_days * DAY_MS), -1)
    found = stale.findings({"order-1": value}, [], now_ms, 7 * DAY_MS, DAY_MS)
    assert [said in one.message for one in found] == ([] if said is None else [True])


def test_hashes_of_different_names_differ_and_are_deterministic():
    import pyarrow as pa

    from ottla.audit.copy_tasks import _hashes

    names = pa.array([b"", b"a", b"b", b"ab", b"ba", b"a", b"\0", b"\0\0"], pa.binary())
    found = _hashes(names).tolist()
    assert len(set(found)) == 7 and found[1] == found[5]
    assert _hashes(names[1:3]).tolist() == found[1:3]
    assert _hashes(pa.array([b"order-17"], pa.binary())).tolist() == [signed_hash(b"order-17")]


def signed_hash(name):
    state = 0xCBF29CE484222325
    for byte in name:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    state ^= state >> 33
    state = state * 0xFF51AFD7ED558CCD % 2**64
    state ^= state >> 33
    return state - 2**64 if state >= 2**63 else state


def test_as_many_outputs_as_inputs_must_share_a_key():
    rows = np.array([[1, 0, 0, 5], [1, 1, 1, 5], [2, 0, 0, 6], [2, 0, 0, 7], [2, 1, 1, 6], [3, 1, 1, 9]])
    assert set(copies.unequal(rows)[:, copies.HASH].tolist()) == {2, 3}


@pytest.mark.parametrize("given", ["a=b", "a=b,", "=b,key", "a=,key", "a,key", "a=b,value", "a=b,header:"])
def test_copies_that_cannot_be_meant_are_refused(given):
    with pytest.raises(ValueError, match="not INPUT=OUTPUT,key"):
        copies.parse(given)
    assert copies.parse("a=b,header:id") == copies.Pair("a", "b", "id")


def test_as_of_parses_times_and_offsets_and_refuses_other_values():
    assert parse_as_of("") == (None, {})
    assert parse_as_of("1700000000000") == (1_700_000_000_000, {})
    assert parse_as_of("2023-11-14T22:13:20") == (1_700_000_000_000, {})
    assert parse_as_of("2023-11-14T23:13:20+01:00") == (1_700_000_000_000, {})
    assert parse_as_of("ledger:0:898, audit.log:1:12") == (None, {("ledger", 0): 898, ("audit.log", 1): 12})
    for one in ("ledger:0", "ledger:0:-5", "ledger:0:x", "²", "99999999999999999999", "0001-01-01T00:00+14:00"):
        with pytest.raises(BadArgument, match=r"^--as-of "):
            parse_as_of(one)
    with pytest.raises(BadArgument, match="TOPIC:PARTITION:OFFSET"):
        parse_as_of("ledger:0:-5")


def test_checks_are_named_in_the_order_of_reports():
    assert parse_checks("torn,damage", has_copies=False) == ("damage", "torn")
    assert parse_checks("", has_copies=True, directories=2) == CHECKS
    assert parse_checks("", has_copies=False, directories=2) == tuple(one for one in CHECKS if one != "copies")
    assert parse_checks("", has_copies=True) == tuple(one for one in CHECKS if one != "replicas")
    with pytest.raises(BadArgument, match="no check tron"):
        parse_checks("tron", has_copies=False)


def test_every_check_has_its_row_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "audits.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    assert [check for check in CHECKS if not any(f"`{check}`" in row for row in rows)] == []
