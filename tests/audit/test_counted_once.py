"""Transactions count once for any number of partitions; V1 transactions without decisions give a lower bound."""

import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.checks.once import Ended, phrases
from ottla.audit.pipeline import audit
from ottla.audit.report.text import text_report
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from tests.audit.test_checks_sound import T0, Coordinator

PARTITIONS = 3
NUMBERS = tuple(range(PARTITIONS))


def outcome(*roots):
    return audit(ThreadRunner(2), Request(tuple(map(str, roots)), (), T0 + 60_000)).ended


def run_transactions(write_log, fates, *, v2, is_decided):
    """Each transaction writes to the partitions that its fate names, `(commit, partitions)`."""
    logs = [write_log("ledger", number) for number in NUMBERS]
    coordinator = Coordinator(write_log.root) if is_decided else None
    sequences = [0] * PARTITIONS
    for number, (commit, places) in enumerate(fates):
        now_ms, epoch = T0 + number * 1_000, number if v2 else 0
        marked = epoch + 1 if v2 else 0
        for place in places:
            logs[place].data(
                1, producer_id=7, epoch=epoch, base_sequence=0 if v2 else sequences[place], timestamp_ms=now_ms
            )
            sequences[place] += 1
            logs[place].marker(7, commit, epoch=marked, timestamp_ms=now_ms + 11 + place)
        if coordinator is not None:
            coordinator.transaction(now_ms, commit, epoch=marked, data_epoch=epoch, places=(("ledger", tuple(places)),))
    return write_log.root


FATES = [(True, NUMBERS)] * 5 + [(False, (0, 1))] * 2 + [(True, (2,))] * 3


@pytest.mark.parametrize(("v2", "is_decided"), [(False, True), (True, True), (True, False)])
def test_decisions_or_v2_epochs_give_exact_transaction_counts(write_log, v2, is_decided):
    found = outcome(run_transactions(write_log, FATES, v2=v2, is_decided=is_decided))
    assert found == (Ended(8, True, 18), Ended(2, True, 4))


def test_transactions_v1_without_decisions_are_a_lower_bound(write_log):
    found = outcome(run_transactions(write_log, [*FATES, (True, (0,))], v2=False, is_decided=False))
    # Eight in partition 2, six in partition 0: no record says which of them are the same.
    assert found == (Ended(8, False, 19), Ended(2, False, 4))
    assert phrases(found)[0] == "at least 8 transactions committed (19 ends in partitions)"


def test_transactions_of_one_partition_are_exact_without_decisions(write_log):
    found = outcome(run_transactions(write_log, [(True, (1,))] * 4, v2=False, is_decided=False))
    assert found == (Ended(4, True, 4), Ended(0, True, 0))
    assert phrases(found) == ["4 transactions committed", "0 transactions aborted"]


def test_replicas_count_once(write_log, tmp_path):
    root = run_transactions(write_log, FATES, v2=True, is_decided=True)
    shutil.copytree(root, tmp_path / "replica")
    assert outcome(root, tmp_path / "replica") == outcome(root)


@pytest.mark.parametrize("folder", ["clean", "unclean"])
def test_the_count_of_kafkas_files_is_that_of_its_decisions(reference, folder, tmp_path):
    """Kafka's coordinators have every decision of these directories: V1 and V2, of 14 ids over 11 topics."""
    whole = outcome(reference(folder))
    assert whole.committed.is_exact and whole.aborted.is_exact
    copy = tmp_path / "copy"
    shutil.copytree(reference(folder), copy, ignore=shutil.ignore_patterns("__transaction_state-*"))
    alone = outcome(copy)
    for known, bound in zip(whole, alone, strict=True):
        assert bound.in_partitions == known.in_partitions
        assert bound.many <= known.many < known.in_partitions
        assert not bound.is_exact


def test_the_report_counts_transactions_and_ends_without_a_column_sum(write_log):
    root = run_transactions(write_log, FATES, v2=True, is_decided=True)
    text = text_report(audit(ThreadRunner(1), Request((str(root),), (), T0 + 60_000)), everything=False, colour=False)
    words = " ".join(text.split())
    assert "8 transactions committed (18 ends in partitions), 2 transactions aborted (4 ends in partitions)" in words
    (sums,) = [line for line in text.splitlines() if line.startswith("all ")]
    assert sums.split("│")[2].strip() == ""
