"""The coordinator over real partitions: LSO, aborted lists, and kill -9 between any two markers."""

import logging

import pytest

from ottla.broker.log.results import FetchIsolation
from ottla.broker.txn.log import encode_change, read_changes
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import TransactionState
from ottla.protocol.batch import build_marker, iter_records
from ottla.protocol.batch_header import read_header
from ottla.protocol.errors import ErrorCode as E

LEDGER = [("ledger", index) for index in range(4)]


def open_transaction(parts):
    answer = parts.ask(parts.coordinator.init_producer_id("t", 60_000))
    producer = (answer.producer_id, answer.producer_epoch)
    assert parts.ask(parts.coordinator.add_partitions("t", *producer, LEDGER)) is E.NONE
    for place in LEDGER:
        assert parts.write(producer, 0, place).error is E.NONE
        assert parts.offsets(place) == (0, 1)
    return producer


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("heard", range(5))
def test_a_kill_between_markers_leaves_no_partition_open(parts, heard, commit):
    producer = open_transaction(parts)
    parts.sink.hearing = heard
    assert parts.ask(parts.coordinator.end("t", *producer, commit, v2=False)).error is E.NONE
    assert sum(parts.offsets(place) == (2, 2) for place in LEDGER) == heard
    parts.kill()
    parts.start()
    for number, place in enumerate(LEDGER):
        stable, end = parts.offsets(place)
        assert stable == end
        # Partitions with a marker get a second one if Complete was not logged. It does not end anything again.
        assert parts.markers(place) == (2 if number < heard < 4 else 1)
        found = parts.cluster.partition(*place).read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
        assert found.aborted == ([] if commit else [(producer[0], 0)])
    state = parts.coordinator.describe("t").state
    assert state.status is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert parts.ask(parts.coordinator.end("t", *producer, commit, v2=False)).error is E.NONE
    assert parts.ask(parts.coordinator.add_partitions("t", *producer, LEDGER)) is E.NONE
    assert parts.write(producer, 1, LEDGER[0]).error is E.NONE


def test_a_kill_with_an_open_transaction_leaves_it_to_its_producer_or_its_timeout(parts):
    producer = open_transaction(parts)
    parts.kill()
    parts.start()
    assert parts.write(producer, 1, LEDGER[0]).error is E.NONE
    parts.clock.advance(80_000)
    assert [parts.offsets(place) for place in LEDGER] == [(3, 3), (2, 2), (2, 2), (2, 2)]
    assert parts.ask(parts.coordinator.end("t", *producer, True, v2=False)).error is E.PRODUCER_FENCED
    assert parts.coordinator.verify("t", *producer, LEDGER[:1]) == [E.PRODUCER_FENCED]


@pytest.mark.parametrize(
    ("level", "generation", "version"),
    [(0, 0, 0), (1, 0, 1), (2, 0, 1), (2, 2, 1), (0, 2, 1)],
)
def test_the_level_decides_the_version_of_a_record_but_for_what_v2_began(level, generation, version):
    """A transaction that a V2 client began before a downgrade to level 0 cannot be written in version 0."""
    state = TransactionState(7, 0, S.ONGOING, 60_000, {LEDGER[0]: None}, 1, 2, 7, -1, generation)
    batch = memoryview(encode_change("t", state, level, 3))
    header = read_header(batch)
    (record,) = iter_records(batch, header)
    assert int.from_bytes(record.value[:2]) == version
    ((name, read),) = read_changes(header, batch, "here")
    assert (name, read) == ("t", state if version else state._replace(previous_producer_id=-1))


def test_a_control_batch_in_the_transaction_log_is_skipped_silently(caplog):
    caplog.set_level(logging.WARNING, "ottla")
    batch = memoryview(bytearray(build_marker(7, 0, 0, True, 5)))
    assert [*read_changes(read_header(batch), batch, "here")] == []
    assert caplog.records == []
