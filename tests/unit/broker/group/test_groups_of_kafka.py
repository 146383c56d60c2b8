"""The offsets log of an Apache Kafka 4.3.1: ours reads the same state from it, and would log it byte for byte.

One librdkafka consumer of group `auditors`, whose transactional producer committed its offsets.
"""

import io
import tarfile
from pathlib import Path

import cramjam
import pytest

from ottla.broker.group.log import group_batch, offsets_batch, replay_batch
from ottla.broker.group.shard import GroupStore
from ottla.broker.group.states import ClassicGroupState
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.internal_topics.offsets_records import GroupKey
from ottla.protocol.values import ProducerIdAndEpoch

ARCHIVE = Path(__file__).parents[3] / "data" / "kafka-4.3.1" / "unclean.tar.zst"


@pytest.fixture(scope="module")
def batches():
    """Return (header, bytes) of every batch."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(bytes(cramjam.zstd.decompress(ARCHIVE.read_bytes())))) as archive:
        for member in archive:
            if "__consumer_offsets-" in member.name and member.name.endswith(".log"):
                data = memoryview(archive.extractfile(member).read())
                found += [(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]
    assert len(found) == 19
    return found


def replay(batches):
    store = GroupStore()
    states = []
    for header, batch in batches:
        for said in replay_batch(header, batch):
            store.apply(said, 0)
            if isinstance(said.key, GroupKey):
                states.append((header, batch, store.groups["auditors"].group.value()))
    return store, states


def test_last_committed_offset_and_the_empty_group_are_what_kafka_dumped(batches):
    store, states = replay(batches)
    (entry,) = store.groups.values()
    committed, pending = entry.offsets.to_value()
    assert {key: each.value.offset for key, each in committed.items()} == {("ledger", 2): 751} and not pending
    assert (entry.group.state, entry.group.generation, entry.group.protocol_type) == (
        ClassicGroupState.EMPTY,
        2,
        "consumer",
    )
    assert [(value.generation, len(value.members)) for *_, value in states] == [(0, 0), (1, 1), (2, 0)]


def test_aborted_offset_is_not_committed_in_between(batches):
    store, _ = replay([(h, b) for h, b in batches if h.base_offset <= 9])
    (committed,) = store.groups["auditors"].offsets.to_value()[0].values()
    assert committed.value.offset == 282


def test_group_records_are_encoded_as_kafka_did(batches):
    _, states = replay(batches)
    for header, batch, value in states:
        ours = group_batch("auditors", value, header.base_timestamp)
        # Ottla's batch has no offset and leader epoch before it is appended. They precede the CRC.
        assert (ours[8:12], ours[16:]) == (batch[8:12], batch[16:])


def test_offsets_in_transactions_are_encoded_as_kafka_did(batches):
    transactional = [(h, b) for h, b in batches if h.is_transactional and not h.is_control]
    assert len(transactional) == 8
    for header, batch in transactional:
        rows = [(said.key, said.value) for said in replay_batch(header, batch)]
        ours = offsets_batch(rows, header.base_timestamp, ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
        assert (ours[8:12], ours[16:]) == (batch[8:12], batch[16:])
