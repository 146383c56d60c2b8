"""The transaction log of an Apache Kafka 4.3.1: what its coordinator logged, ours would log, byte for byte.

librdkafka producers (transactions V1) and a Java producer (V2) on a cluster of `transaction.version` 2.
"""

import io
import tarfile
from collections import Counter
from pathlib import Path

import cramjam
import pytest

from ottla.broker.txn.end_txn_rules import completion, decide_abort, decide_end, decide_end_v2
from ottla.broker.txn.log import encode_change, read_changes
from ottla.broker.txn.machine import check_step, decide_add_partitions, decide_init_producer_id
from ottla.broker.txn.states import PREPARED
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PENDING
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode as E

ARCHIVE = Path(__file__).parents[3] / "data" / "kafka-4.3.1" / "unclean.tar.zst"
LEVEL = 2


@pytest.fixture(scope="module")
def steps():
    """Return (batch, id, state before, state after) of every record, in order."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(bytes(cramjam.zstd.decompress(ARCHIVE.read_bytes())))) as archive:
        for member in archive:
            if "__transaction_state-" not in member.name or not member.name.endswith(".log"):
                continue
            data = memoryview(archive.extractfile(member).read())
            before = {}
            for position, header in iter_batches(data):
                batch = data[position : position + header.size_bytes]
                for name, state in read_changes(header, batch, member.name):
                    found.append((header, batch, name, before.get(name), state))
                    before[name] = state
    assert len(found) == 1650
    return found


def test_every_step_is_one_that_our_table_allows(steps):
    for *_, before, after in steps:
        check_step(before, after)


def test_every_record_is_encoded_as_kafka_did(steps):
    for header, batch, name, _, after in steps:
        ours = encode_change(name, after, LEVEL, header.base_timestamp)
        # Ottla's batch has no offset and leader epoch before it is appended. They precede the CRC.
        assert (ours[8:12], ours[16:]) == (batch[8:12], batch[16:])


def decide(before, after):
    """Return the record that Ottla logs in the state `before`, for the request that must have led to `after`."""
    now_ms = after.last_update_ms
    producer = (after.producer_id, after.producer_epoch)
    if after.status is S.EMPTY:
        timeout_ms = after.timeout_ms
        return decide_init_producer_id(before, NO_PENDING, timeout_ms, -1, -1, LEVEL, now_ms, after.producer_id).record
    if after.status is S.ONGOING:
        added = [each for each in after.partitions if each not in before.partitions]
        return decide_add_partitions(before, NO_PENDING, *producer, added, now_ms, after.client_version).record
    if after.status not in PREPARED:
        return completion(before, now_ms)
    commit = after.status is S.PREPARE_COMMIT
    if after.client_version < 2:
        return decide_end(before, NO_PENDING, *producer, commit, now_ms).record
    if before.client_version < 2:
        # The coordinator's own abort of a V1 producer's transaction uses the level of the cluster.
        return decide_abort(before, NO_PENDING, LEVEL, now_ms, -1, E.NONE).record
    return decide_end_v2(before, NO_PENDING, before.producer_id, before.producer_epoch, commit, now_ms).record


def test_every_record_is_the_one_that_our_machine_would_log(steps):
    seen = Counter()
    for *_, before, after in steps:
        ours = decide(before, after)
        assert ours == after
        seen[after.status.name, after.client_version] += 1
    assert seen["PREPARE_COMMIT", 0] > 300
    assert seen["PREPARE_ABORT", 0] > 50
    assert seen["PREPARE_COMMIT", 2] > 10
    assert seen["PREPARE_ABORT", 2] > 0
