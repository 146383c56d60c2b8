"""Partitions of a transaction compared to each other, without the coordinator's log."""

import random
import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.audit.checks import across
from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.batch import build_record_batch
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)
from ottla.scan.fates import OpenTransaction
from tests.segment_files import LogWriter

T0 = 1_700_000_000_000
MINUTE_MS = 60_000


def found(root, *more, now_ms=T0 + 10_000_000):
    """Return (check, severity, place, message) of torn and hanging transactions."""
    request = Request((str(root), *map(str, more)), (), now_ms, ("hanging", "torn"))
    return [(one.check, one.severity, one.place, one.message) for one in audit(ThreadRunner(1), request).findings]


def torn(*arguments, **more):
    return [one for one in found(*arguments, **more) if one[:2] == ("torn", "error")]


def two_partitions(write_log, *ends, epoch=3, marker_epoch=4):
    """Write a transaction of producer 7 in as many partitions as `ends`: True committed, False aborted, None open."""
    logs = [write_log("ledger", number) for number in range(len(ends))]
    for log, commit in zip(logs, ends, strict=True):
        log.data(2, producer_id=7, epoch=epoch, timestamp_ms=T0)
        if commit is not None:
            log.marker(7, commit, epoch=marker_epoch, timestamp_ms=T0 + 10)
    return write_log.root


def test_commit_and_abort_of_one_transaction_are_torn_on_both_sides(write_log):
    one, other = torn(two_partitions(write_log, True, False))
    assert (one[2], other[2]) == ("ledger-0@2", "ledger-1@2")
    assert "COMMIT in this partition, ABORT in ledger-1@2, for one transaction of producer 7, epoch 4" in one[3]


def test_the_partition_that_disagrees_with_the_majority_is_reported(write_log):
    (one,) = torn(two_partitions(write_log, True, False, True))
    assert one[2] == "ledger-1@2"
    assert "COMMIT in ledger-0@2, ledger-2@2" in one[3]


def test_a_commit_with_a_partition_still_open_is_reported_incomplete(write_log):
    root = two_partitions(write_log, True, None)
    (one,) = torn(root)
    assert one[2] == "ledger-1@0"
    assert "incomplete: COMMIT in ledger-0@2" in one[3]
    (hangs,) = [one for one in found(root) if one[0] == "hanging"]
    assert "decided: the coordinator completed it as COMMIT" in hangs[3]


def test_a_marker_that_may_be_on_its_way_is_waited_for(write_log):
    assert torn(two_partitions(write_log, True, None), now_ms=T0 + MINUTE_MS) == []


def test_a_marker_that_its_coordinator_still_has_to_write_is_no_finding_however_old(write_log):
    """As when the broker was killed between the two markers: its next start writes the other."""
    places = (("ledger", (0, 1)),)
    prepared = TransactionValue(7, 4, MINUTE_MS, 2, places, T0 + 5, T0)
    write_log("__transaction_state").append(
        build_record_batch(transaction_key("order-1"), encode_transaction_value(prepared), T0 + 5)
    )
    root = two_partitions(write_log, True, None)
    (one,) = audit(ThreadRunner(1), Request((str(root),), (), T0 + 10_000_000)).open_transactions
    assert str(one.verdict) == "ending"
    assert [one for one in found(root) if one[1] != "info"] == []


def test_transactions_that_share_an_epoch_are_unverifiable(write_log):
    root = two_partitions(write_log, True, False, None, epoch=3, marker_epoch=3)
    assert torn(root) == []
    assert {one[1] for one in found(root) if one[0] == "torn"} == {"info"}


def test_an_older_transaction_of_the_same_epoch_is_another_one(write_log):
    """A producer of V1 goes on as V2: data of epoch 3 was aborted with epoch 3 before."""
    log, other = write_log("ledger", 0), write_log("ledger", 1)
    log.data(1, producer_id=7, epoch=3)
    log.marker(7, False, epoch=3)
    for one in (log, other):
        one.data(1, producer_id=7, epoch=3, base_sequence=1)
        one.marker(7, True, epoch=4)
    # And back: the cluster's transaction.version is lowered.
    other.data(1, producer_id=7, epoch=4)
    other.marker(7, False, epoch=4)
    assert torn(write_log.root) == []


def test_a_marker_without_data_proves_nothing(write_log):
    root = two_partitions(write_log, True)
    write_log("ledger", 1).marker(7, False, epoch=4)
    assert torn(root) == []


def write_cluster(root, seed, partitions=4):
    """Transactions of three producers over random partitions, V1 and V2, some fenced; returns markers one can turn."""
    chance, now = random.Random(seed), T0
    logs = [LogWriter(root, "ledger", number) for number in range(partitions)]
    producers = {pid: {"epoch": 0, "sequences": [0] * partitions, "version": 1} for pid in range(3)}
    shared = []
    for _ in range(chance.choice([20, 60])):
        pid = chance.randrange(3)
        producer = producers[pid]
        chosen = chance.sample(range(partitions), chance.randrange(1, partitions + 1))
        for number in chosen:
            now += chance.choice([0, 1, 40])
            sequence = producer["sequences"][number]
            # Producers set their timestamps freely.
            spoken = chance.choice([now, T0 - 1_000_000, now + 5_000])
            logs[number].data(2, producer_id=pid, epoch=producer["epoch"], base_sequence=sequence, timestamp_ms=spoken)
            producer["sequences"][number] += 2
        commit, fenced = chance.random() < 0.6, chance.random() < 0.15
        bumps = fenced or producer["version"] == 2
        epoch = producer["epoch"] + bumps
        places = []
        for number in chosen:
            now += chance.choice([0, 1, 40])
            places.append((number, logs[number].next_offset))
            logs[number].marker(pid, commit and not fenced, epoch=epoch, timestamp_ms=now)
        if bumps:
            producer.update(epoch=epoch, sequences=[0] * partitions)
            if len(chosen) > 1:
                shared.append((places, commit and not fenced))
        if fenced:
            producer["epoch"] += 1
        producer["version"] = max(producer["version"], chance.choice([1, 1, 1, 2]))
    return shared


def cluster(tmp_path, seed):
    root = tmp_path / f"log-{seed}"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\n")
    return root, write_cluster(root, seed)


@pytest.mark.parametrize("seed", range(40))
def test_sound_clusters_have_no_finding_and_each_turned_marker_is_found(tmp_path, seed):
    from tests.audit.mutations import Log

    root, shared = cluster(tmp_path, seed)
    assert torn(root) == []
    if not shared:
        return
    places, commit = random.Random(seed).choice(shared)
    number, offset = places[0]
    log = Log(root, f"ledger-{number}")
    index = next(at for at in log.markers() if log.header(at).base_offset == offset)
    log.batches[index] = log.rebuild_marker(index, commit=not commit)
    log.save()
    assert f"ledger-{number}@{offset}" in [one[2] for one in torn(root)]


def test_replicas_in_two_directories_agree(tmp_path):
    root, shared = cluster(tmp_path, 3)
    assert shared
    shutil.copytree(root, tmp_path / "replica")
    assert torn(root, tmp_path / "replica") == []


def test_a_replica_that_ends_earlier_lacks_nothing(write_log, tmp_path):
    """The replica of a partition was copied before its transaction ended; the audit reads it next to the original."""
    root = two_partitions(write_log, True, None)
    shutil.copytree(root, tmp_path / "replica")
    LogWriter(root, "ledger", 1, base_offset=2).marker(7, True, epoch=4, timestamp_ms=T0 + 20)
    assert [one for one in found(root, tmp_path / "replica") if one[1] != "info"] == []
    assert torn(tmp_path / "replica") != []


def test_packed_numbers_are_unpacked_in_order():
    every = np.array([[3, 1, 9, 2**50]]).ravel()
    assert across.unpack(across.pack([every[:2], every[2:]])).tolist() == sorted(every.tolist())
    assert across.unpack(across.pack([])).tolist() == []
    assert across.unpack(across.join([across.pack([every[:2]]), across.pack([every[2:]])])).tolist() == [1, 3, 9, 2**50]


def test_buckets_change_nothing(monkeypatch):
    chance = random.Random(1)
    parts = [across.pack([np.array([chance.randrange(3000) for _ in range(500)])]) for _ in range(4)]
    opened = [OpenTransaction(0, epoch, 0, 1, T0) for epoch in range(50)]
    whole = across.find_ambiguous(parts, opened)
    monkeypatch.setattr(across, "MOST_AT_ONCE", 100)
    assert across.find_ambiguous(parts, opened)[0].tolist() == whole[0].tolist()
    monkeypatch.setattr(across, "MOST_REPORTED", 10)
    assert across.find_ambiguous(parts, ())[1] > 0
