"""Rows of Kafka's producer-state rules, one test each."""

from random import Random

import pytest

from ottla.broker.log.producer_state_manager import AppendOrigin, ProducerStateManager
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import BatchHeader, read_header
from ottla.protocol.errors import ErrorCode

MAX = 2**31 - 1
NOW = 1_700_000_000_000


def batch(epoch=0, sequence=0, count=1, transactional=False, producer_id=7) -> BatchHeader:
    return read_header(
        build_batch(
            [(b"k", b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            last_offset_delta=count - 1,
            timestamp_ms=NOW,
        )
    )


def state(*batches, base_offset=0) -> ProducerStateManager:
    """Return the producer state after these batches. Each batch takes the offsets after the previous one."""
    producers = ProducerStateManager()
    for header in batches:
        producers.apply_batch(header, base_offset, NOW)
        base_offset += header.last_offset_delta + 1
    return producers


def error(producers, header, origin=AppendOrigin.CLIENT):
    return producers.check_batch(header, origin).error


@pytest.mark.parametrize(
    ("known", "sent", "expected"),
    [
        pytest.param([], batch(sequence=0), ErrorCode.NONE, id="unknown producer"),
        pytest.param([], batch(sequence=99), ErrorCode.NONE, id="unknown producer with any sequence"),
        pytest.param([], batch(epoch=5, sequence=3), ErrorCode.NONE, id="unknown producer with any epoch"),
        pytest.param([batch(count=3)], batch(sequence=3), ErrorCode.NONE, id="next sequence"),
        pytest.param([batch()], batch(sequence=2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="gap"),
        pytest.param([batch(count=3)], batch(sequence=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="part of a batch"),
        pytest.param([batch(sequence=MAX)], batch(sequence=0), ErrorCode.NONE, id="0 follows the last sequence"),
        pytest.param([batch(sequence=MAX - 1, count=3)], batch(sequence=1), ErrorCode.NONE, id="wrap inside a batch"),
        pytest.param(
            [batch(sequence=MAX)], batch(sequence=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="gap at the wrap"
        ),
        pytest.param([batch(epoch=2)], batch(epoch=1, sequence=1), ErrorCode.INVALID_PRODUCER_EPOCH, id="old epoch"),
        pytest.param([batch(epoch=2)], batch(epoch=3, sequence=0), ErrorCode.NONE, id="new epoch from 0"),
        pytest.param(
            [batch(epoch=2)], batch(epoch=3, sequence=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="new epoch from 1"
        ),
        pytest.param(
            [batch(epoch=2, sequence=4)],
            batch(epoch=3, sequence=5),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            id="new epoch goes on with the old sequence",
        ),
        pytest.param(
            [batch(transactional=True)], batch(sequence=1), ErrorCode.INVALID_TXN_STATE, id="plain inside a transaction"
        ),
        pytest.param(
            [batch(epoch=2, transactional=True)],
            batch(epoch=1, sequence=1, transactional=True),
            ErrorCode.INVALID_PRODUCER_EPOCH,
            id="old epoch inside a transaction",
        ),
    ],
)
def test_client_batch(known, sent, expected):
    assert error(state(*known), sent) is expected


@pytest.mark.parametrize("sequence", [0, 5, 99])
def test_a_coordinator_has_no_sequence_checks(sequence):
    assert error(state(batch(sequence=3)), batch(sequence=sequence), AppendOrigin.COORDINATOR) is ErrorCode.NONE


def test_a_coordinator_has_epoch_checks():
    assert error(state(batch(epoch=2)), batch(epoch=1), AppendOrigin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_coordinator_is_no_duplicate_of_itself():
    assert state(batch()).check_batch(batch(), AppendOrigin.COORDINATOR).duplicate is None


@pytest.mark.parametrize("behind", range(5))
def test_the_last_five_batches_are_duplicates(behind):
    producers = state(*[batch(sequence=2 * n, count=2) for n in range(6)])
    decision = producers.check_batch(batch(sequence=2 * (5 - behind), count=2), AppendOrigin.CLIENT)
    assert decision.error is ErrorCode.NONE
    assert decision.duplicate.first_offset == 2 * (5 - behind)
    assert decision.duplicate.last_offset == 2 * (5 - behind) + 1
    assert decision.duplicate.timestamp_ms == NOW


def test_the_sixth_batch_back_is_out_of_order():
    producers = state(*[batch(sequence=n) for n in range(6)])
    assert error(producers, batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_across_the_wrap_is_found():
    producers = state(batch(sequence=MAX - 1, count=4))
    assert producers.check_batch(batch(sequence=MAX - 1, count=4), AppendOrigin.CLIENT).duplicate.first_offset == 0
    assert next(iter(producers)).last_sequence == 1


def test_a_batch_with_the_same_first_but_another_last_sequence_is_no_duplicate():
    assert error(state(batch(count=3)), batch(count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_forgets_the_batches_of_the_old_one():
    producers = state(batch(epoch=0), batch(epoch=1))
    assert producers.check_batch(batch(epoch=1), AppendOrigin.CLIENT).duplicate is not None
    assert [known.last_offset for known in producers.get(7).batches] == [1]


def end(producers, *, epoch=0, coordinator_epoch=0, commit=True, offset=100, producer_id=7):
    return producers.apply_marker(producer_id, epoch, coordinator_epoch, commit, offset, NOW)


@pytest.mark.parametrize(
    ("known", "epoch", "version", "expected"),
    [
        pytest.param([], 3, 1, ErrorCode.NONE, id="unknown producer"),
        pytest.param([batch(epoch=3, transactional=True)], 3, 0, ErrorCode.NONE, id="equal epoch, version 0"),
        pytest.param([batch(epoch=3, transactional=True)], 3, 1, ErrorCode.NONE, id="equal epoch, version 1"),
        pytest.param([batch(epoch=3, transactional=True)], 2, 1, ErrorCode.INVALID_PRODUCER_EPOCH, id="old epoch"),
        pytest.param([batch(epoch=3, transactional=True)], 4, 2, ErrorCode.NONE, id="bumped epoch, version 2"),
        pytest.param(
            [batch(epoch=3, transactional=True)],
            3,
            2,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            id="equal epoch, version 2, the next transaction is open",
        ),
        pytest.param([batch(epoch=3)], 3, 2, ErrorCode.NONE, id="equal epoch, version 2, none open: a retry"),
        pytest.param(
            [batch(epoch=32767, transactional=True)], 32767, 2, ErrorCode.NONE, id="equal epoch, version 2, exhausted"
        ),
        pytest.param([batch(epoch=3)], 2, 2, ErrorCode.INVALID_PRODUCER_EPOCH, id="old epoch, version 2"),
    ],
)
def test_marker_epoch(known, epoch, version, expected):
    assert state(*known).check_marker(7, epoch, 0, version).error is expected


def test_a_marker_of_an_older_coordinator_is_fenced():
    producers = state(batch(transactional=True))
    end(producers, coordinator_epoch=4)
    assert producers.check_marker(7, 0, 3, 1).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.check_marker(7, 0, 4, 1).error is ErrorCode.NONE


def test_marker_of_an_unknown_producer_is_held_against_no_epoch():
    producers = ProducerStateManager()
    assert producers.check_marker(7, 0, -2, 1).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.check_marker(7, 0, -1, 1).error is ErrorCode.NONE
    assert len(producers) == 0


def test_a_marker_ends_the_transaction_and_names_its_range():
    producers = state(batch(transactional=True, count=2), batch(sequence=2, transactional=True), base_offset=10)
    assert producers.get(7).current_txn_first_offset == 10
    completed = end(producers, commit=False, offset=13)
    assert completed.index_entry == (7, 10, 13, 14)
    assert completed.aborted
    assert producers.get(7).current_txn_first_offset < 0


def test_a_marker_without_a_transaction_completes_nothing_and_keeps_its_epoch():
    producers = ProducerStateManager()
    assert end(producers, epoch=4, coordinator_epoch=2) is None
    assert producers.get(7).epoch == 4
    assert producers.get(7).coordinator_epoch == 2
    assert producers.get(7).last_sequence == -1


def test_sequences_go_on_after_a_marker_of_the_same_epoch():
    producers = state(batch(transactional=True, count=3))
    end(producers)
    assert error(producers, batch(sequence=3, transactional=True)) is ErrorCode.NONE
    assert error(producers, batch(sequence=5, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_a_sequence_of_an_ended_transaction_is_refused_for_any_count(sequence, count, commit):
    producers = state(batch(transactional=True, count=3))
    end(producers, commit=commit)
    header = batch(sequence=sequence, count=count, transactional=True)
    assert error(producers, header) is ErrorCode.UNKNOWN_PRODUCER_ID
    replayed = ProducerStateManager()
    opened = replayed.load(producers.snapshot(), NOW, 1)
    assert opened == []
    assert error(replayed, header) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_refused_reuse_names_the_batch_that_kafka_would_have_taken_it_for():
    producers = state(batch(transactional=True, count=3), base_offset=40)
    end(producers, offset=43)
    decision = producers.check_batch(batch(count=3, transactional=True), AppendOrigin.CLIENT)
    assert decision.message == (
        "producer 7 at epoch 0 sent sequences 0 to 2 again, after the marker of the transaction that wrote up to "
        "2: they are those of the batch at offset 40"
    )


def test_a_sequence_of_an_ended_transaction_is_refused_while_the_next_is_open():
    producers = state(batch(transactional=True))
    end(producers, offset=1)
    producers.apply_batch(batch(sequence=1, transactional=True), 2, NOW)
    decision = producers.check_batch(batch(transactional=True), AppendOrigin.CLIENT)
    assert decision.error is ErrorCode.UNKNOWN_PRODUCER_ID
    assert "the transaction that wrote up to 0: they are those of the batch at offset 0" in decision.message
    assert producers.check_batch(batch(transactional=True), AppendOrigin.CLIENT, False).duplicate.first_offset == 0
    assert producers.check_batch(batch(sequence=1, transactional=True), AppendOrigin.CLIENT).duplicate.first_offset == 2


def test_batches_pipelined_after_a_reused_sequence_are_refused_alike():
    producers = state(batch(transactional=True))
    end(producers)
    producers.maybe_create_verification_state_entry(7, 0, 0, NOW)
    for sequence in (0, 1, 2):
        assert error(producers, batch(sequence=sequence, transactional=True)) is ErrorCode.UNKNOWN_PRODUCER_ID
    producers.maybe_create_verification_state_entry(8, 0, 0, NOW)
    assert error(producers, batch(producer_id=8, sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_reuse_is_seen_across_the_wrap_of_sequences():
    producers = state(batch(sequence=MAX - 1, transactional=True, count=3))
    end(producers)
    for sequence in (MAX - 1, MAX, 0):
        assert error(producers, batch(sequence=sequence, transactional=True)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert error(producers, batch(sequence=1, transactional=True)) is ErrorCode.NONE
    assert error(producers, batch(sequence=2, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_within_its_open_transaction_is_a_duplicate():
    producers = state(batch(transactional=True), batch(sequence=1, transactional=True))
    assert producers.check_batch(batch(transactional=True), AppendOrigin.CLIENT).duplicate is not None
    end(producers, epoch=1)
    assert error(producers, batch(epoch=0, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_retry_without_a_transaction_is_a_duplicate():
    producers = state(batch(), batch(sequence=1))
    assert producers.check_batch(batch(), AppendOrigin.CLIENT).duplicate is not None


@pytest.mark.parametrize(
    ("count", "expected"), [(3, ErrorCode.NONE), (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)], ids=["same", "other"]
)
def test_without_the_rule_a_reused_sequence_is_answered_as_by_kafka(count, expected):
    producers = state(batch(transactional=True, count=3))
    end(producers)
    decision = producers.check_batch(batch(count=count, transactional=True), AppendOrigin.CLIENT, False)
    assert (decision.error, decision.duplicate is not None) == (expected, count == 3)


def test_coordinators_may_write_any_sequence():
    producers = state(batch(transactional=True, count=3))
    end(producers)
    assert error(producers, batch(transactional=True), AppendOrigin.COORDINATOR) is ErrorCode.NONE


def test_sequences_begin_at_0_after_a_marker_of_a_new_epoch():
    producers = state(batch(transactional=True, count=3))
    end(producers, epoch=1)
    assert error(producers, batch(epoch=1, sequence=0, transactional=True)) is ErrorCode.NONE
    assert error(producers, batch(epoch=1, sequence=3, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_index_entry_counts_only_other_producers():
    producers = state(batch(producer_id=1, transactional=True), batch(producer_id=2, transactional=True), base_offset=5)
    assert end(producers, producer_id=1, commit=False, offset=7).last_stable_offset == 6
    assert end(producers, producer_id=2, commit=False, offset=8).last_stable_offset == 9


def test_an_ended_transaction_is_unstable_until_its_marker_is_below_the_high_watermark():
    producers = state(batch(transactional=True), batch(producer_id=8, transactional=True), base_offset=3)
    end(producers, offset=5)
    assert producers.first_unstable_offset() == 3
    producers.forget_ended_txns(5)
    assert producers.first_unstable_offset() == 3
    producers.forget_ended_txns(6)
    assert producers.first_unstable_offset() == 4
    end(producers, producer_id=8, offset=6)
    producers.forget_ended_txns(7)
    assert producers.first_unstable_offset() is None


def test_producers_expire_by_their_timestamps_unless_a_transaction_is_open():
    producers = state(batch(producer_id=1), batch(producer_id=2, transactional=True))
    assert sum(producers.remove_expired_producers(NOW + 999, 1000)) == 0
    assert sum(producers.remove_expired_producers(NOW + 1000, 1000)) == 1
    assert [producer.producer_id for producer in producers] == [2]


def test_expiry_runs_in_slices_and_sees_batches_appended_between_them(monkeypatch):
    monkeypatch.setattr("ottla.broker.log.producer_state_manager.EXPIRY_SLICE", 2)
    producers = state(*(batch(producer_id=each) for each in range(5)))
    slices = producers.remove_expired_producers(NOW + 1000, 1000)
    assert next(slices) == 2
    producers.apply_batch(batch(producer_id=3, sequence=1), 5, NOW + 1)
    producers.apply_batch(batch(producer_id=8), 6, NOW + 1)
    assert list(slices) == [1, 1]
    assert [producer.producer_id for producer in producers] == [3, 8]


@pytest.mark.parametrize("seed", range(30))
def test_snapshots_and_expiries_that_take_many_turns_see_each_producer_once(monkeypatch, seed):
    """Producers appear, expire and return while a snapshot, an expiry or both run."""
    monkeypatch.setattr("ottla.broker.log.producer_state_manager.EXPIRY_SLICE", 3)
    monkeypatch.setattr("ottla.broker.log.producer_state_manager.SNAPSHOT_SLICE", 2)
    random, producers, now = Random(seed), ProducerStateManager(), NOW
    expiry = snapshot = walk = iter(())
    expected, taken, count = [], None, 0
    met, stayed = [], set()
    for number in range(600):
        now += 10
        what = random.random()
        if what < 0.5:
            producer_id = random.randrange(25)
            known = producers.get(producer_id)
            sequence = 0 if known is None else known.last_sequence + 1
            producers.apply_batch(batch(producer_id=producer_id, sequence=sequence), number, now)
        elif what < 0.7:
            if next(expiry, None) is None:
                expiry = producers.remove_expired_producers(now, random.choice((50, 400)))
            stayed &= set(producers)
        elif what < 0.85:
            each = next(walk, None)
            if each is not None:
                met.append(each)
                continue
            assert len(set(met)) == len(met) and stayed <= set(met)
            met, stayed, walk = [], set(producers), iter(producers)
        else:
            some = next(snapshot, None)
            if some is not None:
                taken += some
                continue
            if taken is not None:
                assert sorted(taken) == expected and len(taken) == count
                producers.thaw()
            taken, expected, count = [], sorted(producers.snapshot()), len(producers)
            snapshot = producers.freeze()
    producers.thaw()
    walk.close()
    left = list(producers)
    assert sum(producers.remove_expired_producers(now + 10**9, 1)) == len(left)
    assert list(producers) == [] and len(producers) == 0
    assert list(producers.freeze()) == []


def test_a_snapshot_keeps_the_last_batch_and_the_open_transactions():
    producers = state(
        batch(count=2, producer_id=9, transactional=True),
        batch(producer_id=3, transactional=True),
        batch(producer_id=3, sequence=1, transactional=True),
        base_offset=20,
    )
    loaded = ProducerStateManager()
    loaded.load_open(loaded.load(reversed(list(producers.snapshot())), NOW, 1000))
    assert list(loaded.ongoing_txns.items()) == [(20, 9), (22, 3)]
    assert loaded.get(9).to_value() == producers.get(9).to_value()
    assert loaded.check_batch(batch(producer_id=3, sequence=1, transactional=True), AppendOrigin.CLIENT).duplicate
    assert error(loaded, batch(producer_id=3, sequence=0, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_expired_producers_are_not_loaded_from_a_snapshot():
    producers = state(batch(producer_id=1), batch(producer_id=2, transactional=True))
    loaded = ProducerStateManager()
    loaded.load(producers.snapshot(), NOW + 1000, 1000)
    assert [producer.producer_id for producer in loaded] == [2]


def verifying(*sequences, epoch=0, known=()) -> ProducerStateManager:
    """Return producers whose transactional batches with these first sequences are being verified."""
    producers = state(*known)
    for sequence in sequences:
        producers.maybe_create_verification_state_entry(7, epoch, sequence, NOW)
    return producers


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("known", [[], [batch(count=5)]], ids=["unknown producer", "known producer"])
def test_batch_that_overtook_a_verified_one_waits_for_it(known, transactional):
    producers = verifying(6, 5, 7, known=known)
    assert error(producers, batch(sequence=6, transactional=transactional)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error(producers, batch(sequence=5, transactional=transactional)) == ErrorCode.NONE
    assert error(producers, batch(sequence=6), AppendOrigin.COORDINATOR) == ErrorCode.NONE


def test_lowest_verified_sequence_is_that_of_the_newest_epoch():
    producers = verifying(2, epoch=3)
    producers.maybe_create_verification_state_entry(7, 4, 5, NOW)
    producers.maybe_create_verification_state_entry(7, 3, 0, NOW)
    assert error(producers, batch(epoch=4, sequence=5)) == ErrorCode.NONE
    assert error(producers, batch(epoch=4, sequence=6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_duplicate_is_one_while_a_lower_sequence_is_verified():
    producers = verifying(0, known=[batch(), batch(sequence=1)])
    decision = producers.check_batch(batch(sequence=1), AppendOrigin.CLIENT)
    assert (decision.error, decision.duplicate.last_offset) == (ErrorCode.NONE, 1)


def test_verification_ends_with_a_transactional_batch_or_a_marker_or_by_its_age():
    begun, marked, aged, plain = (verifying(0) for _ in range(4))
    begun.apply_batch(batch(sequence=5, transactional=True), 0, NOW)
    marked.apply_marker(7, 0, 0, True, 0, NOW)
    assert sum(aged.remove_expired_producers(NOW + 1000, 1000)) == 0
    plain.apply_batch(batch(sequence=5), 0, NOW)
    assert error(begun, batch(sequence=6, transactional=True)) == ErrorCode.NONE
    assert error(aged, batch(sequence=6)) == ErrorCode.NONE
    marked.apply_batch(batch(), 1, NOW)
    assert error(marked, batch(sequence=1)) == ErrorCode.NONE
    assert error(plain, batch(sequence=6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def moving(sequence, epoch=0, known=()) -> ProducerStateManager:
    """Return producers whose batch with this first sequence is being verified, for a client of transactions V2."""
    producers = state(*known)
    producers.maybe_create_verification_state_entry(7, epoch, sequence, NOW, supports_epoch_bump=True)
    return producers


@pytest.mark.parametrize("sequence", [0, 3])
def test_a_v2_transaction_begins_with_sequence_0_where_nothing_is_known_of_its_producer(sequence):
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if sequence else ErrorCode.NONE
    sent = batch(sequence=sequence, transactional=True)
    assert error(moving(sequence), sent) is expected
    assert error(moving(sequence), sent, AppendOrigin.COORDINATOR) is ErrorCode.NONE
    assert error(verifying(sequence), sent) is ErrorCode.NONE  # V1: its state may have expired


def test_a_v2_transaction_after_a_marker_of_its_epoch_begins_at_sequence_0():
    producers = state(batch(transactional=True))
    producers.apply_marker(7, 1, 0, True, 1, NOW)
    producers.maybe_create_verification_state_entry(7, 1, 2, NOW, supports_epoch_bump=True)
    assert error(producers, batch(epoch=1, sequence=2, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.maybe_create_verification_state_entry(7, 1, 0, NOW, supports_epoch_bump=True)
    assert error(producers, batch(epoch=1, transactional=True)) is ErrorCode.NONE


def test_a_marker_of_the_epoch_that_is_being_verified_ends_the_transaction_before():
    for marker_epoch, sequence_2 in ((1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (2, ErrorCode.NONE)):
        producers = moving(0, epoch=1, known=[batch(transactional=True)])
        producers.apply_marker(7, marker_epoch, 0, True, 1, NOW)
        producers.apply_batch(batch(epoch=marker_epoch), 2, NOW)
        producers.apply_batch(batch(epoch=marker_epoch, sequence=1), 3, NOW)
        assert error(producers, batch(epoch=marker_epoch, sequence=2)) is sequence_2


@pytest.mark.parametrize(
    ("epoch", "open_already", "generation", "expected"),
    [
        pytest.param(4, True, 2, ErrorCode.INVALID_PRODUCER_EPOCH, id="V2, below"),
        pytest.param(5, True, 2, ErrorCode.INVALID_PRODUCER_EPOCH, id="V2, equal with a transaction open"),
        pytest.param(5, False, 2, ErrorCode.NONE, id="V2, equal without: the retry of a marker (KAFKA-19999)"),
        pytest.param(6, True, 2, ErrorCode.NONE, id="V2, above"),
        pytest.param(5, True, 3, ErrorCode.INVALID_PRODUCER_EPOCH, id="V3, as V2"),
        pytest.param(5, True, 1, ErrorCode.NONE, id="V1, equal"),
        pytest.param(5, True, 0, ErrorCode.NONE, id="V0, equal"),
        pytest.param(4, True, 1, ErrorCode.INVALID_PRODUCER_EPOCH, id="V1, below"),
    ],
)
def test_epoch_of_a_marker(epoch, open_already, generation, expected):
    producers = state(batch(epoch=5, transactional=open_already))
    assert producers.check_marker(7, epoch, 0, generation).error is expected


def test_a_marker_at_the_last_epoch_may_be_repeated_with_a_transaction_open():
    producers = state(batch(epoch=32767, transactional=True))
    assert producers.check_marker(7, 32767, 0, 2).error is ErrorCode.NONE
