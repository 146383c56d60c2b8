"""Positions of a consumer in transaction()."""

import pytest
from kafka.errors import IllegalGenerationError, KafkaTimeoutError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from ottla.client import ProducerFenced, TransactionAborted, TransactionFatal, transaction
from tests.unit.client.scripted import AUDIT, LEDGER, Consumer, Producer, offsets_sent, run


def test_positions_are_committed_in_the_transaction():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: 3})
    run(producer, consumer=consumer)
    (_, (name, offsets, metadata), _) = producer.calls
    assert name == "offsets"
    assert offsets == {LEDGER: OffsetAndMetadata(7), AUDIT: OffsetAndMetadata(3)}
    assert metadata.member_id == "member"


def test_only_positions_that_moved_are_sent_again():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: 3})
    run(producer, consumer=consumer)
    consumer.positions[AUDIT] = 4
    run(producer, consumer=consumer, sends=0)
    run(producer, consumer=consumer, sends=0)
    assert offsets_sent(producer)[1:] == [{AUDIT: OffsetAndMetadata(4)}]


def test_a_new_generation_sends_all_positions_again():
    producer, consumer = Producer(), Consumer({LEDGER: 7})
    run(producer, consumer=consumer)
    consumer.generation = 2
    run(producer, consumer=consumer)
    assert len(offsets_sent(producer)) == 2


def test_a_rebalance_inside_the_block_aborts():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(TransactionAborted, match="rebalanced") as caught, transaction(producer, consumer=consumer):
        consumer.generation = 2
    assert caught.value.retriable
    assert offsets_sent(producer) == []
    assert consumer.positions == {LEDGER: 5}


def test_the_first_join_inside_the_block_is_no_rebalance():
    producer, consumer = Producer(), Consumer({})
    consumer.generation = -1
    with transaction(producer, consumer=consumer):
        consumer.generation, consumer.positions = 1, {LEDGER: 7}
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_a_member_that_was_thrown_out_does_not_commit():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    consumer.generation = -1
    with pytest.raises(TransactionAborted, match="no longer a member"):
        run(producer, consumer=consumer)
    assert offsets_sent(producer) == []


def test_partitions_assigned_by_hand_need_no_membership():
    producer, consumer = Producer(), Consumer({LEDGER: 7})
    consumer.generation, consumer.topics = -1, None
    run(producer, consumer=consumer)
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_a_partition_without_a_position_is_left_out():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: None})
    run(producer, consumer=consumer)
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_an_abort_takes_the_consumer_back_to_the_committed_positions():
    producer, consumer = Producer(), Consumer({LEDGER: 7, AUDIT: 3}, committed={LEDGER: 5})
    with pytest.raises(ValueError):
        run(producer, consumer=consumer, body_error=ValueError())
    assert consumer.positions == {LEDGER: 5, AUDIT: "beginning"}


def test_a_latest_consumer_without_commits_is_reset_to_the_block_start():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, auto_offset_reset="latest")
    with pytest.raises(ValueError), transaction(producer, consumer=consumer):
        consumer.positions[LEDGER] = 9
        raise ValueError
    assert consumer.positions == {LEDGER: 7}


def test_a_rebalance_before_the_commit_aborts_and_forgets_the_offsets():
    producer, consumer = Producer(offsets=IllegalGenerationError()), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(TransactionAborted, match="rebalanced") as caught:
        run(producer, consumer=consumer)
    assert caught.value.retriable
    assert consumer.positions == {LEDGER: 5}
    assert producer._transaction_manager._pending_txn_offset_commits == {}


def test_offsets_without_an_answer_abort_the_transaction():
    producer, consumer = Producer(offsets="never"), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(TransactionAborted, match="no answer to the offsets"):
        run(producer, consumer=consumer)
    assert consumer.positions == {LEDGER: 5}


def test_a_fenced_producer_leaves_the_consumer_at_the_committed_positions():
    producer, consumer = Producer(commit=ProducerFencedError()), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(ProducerFenced):
        run(producer, consumer=consumer)
    assert consumer.positions == {LEDGER: 5}


def test_a_consumer_that_cannot_be_reset_makes_the_abort_fatal():
    producer, consumer = Producer(), Consumer({LEDGER: 7})
    consumer.offsets = KafkaTimeoutError("no answer")
    with pytest.raises(TransactionFatal) as caught:
        run(producer, consumer=consumer, body_error=ValueError())
    assert "close it too" in caught.value.__notes__[0]
    assert producer.calls[-1] == "close"


@pytest.mark.parametrize("config", [{"group_id": None}, {"enable_auto_commit": True}])
def test_a_consumer_that_cannot_commit_in_a_transaction_is_refused(config):
    producer = Producer()
    with pytest.raises(ValueError, match=next(iter(config))):
        run(producer, consumer=Consumer({LEDGER: 7}, **config))
    assert producer.calls == []


def test_positions_polled_before_an_abort_are_not_sent_again():
    """The consumer went back, so the record will be polled again."""
    producer, consumer = Producer(), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(ValueError):
        run(producer, consumer=consumer, body_error=ValueError())
    with pytest.raises(RuntimeError, match="Poll inside the code that you run again"):
        run(producer, consumer=consumer)
    assert offsets_sent(producer) == []
    consumer.positions[LEDGER] = 7
    run(producer, consumer=consumer)
    assert offsets_sent(producer) == [{LEDGER: OffsetAndMetadata(7)}]


def test_an_empty_poll_after_an_abort_is_no_mistake():
    producer, consumer = Producer(), Consumer({LEDGER: 7}, committed={LEDGER: 5})
    with pytest.raises(ValueError):
        run(producer, consumer=consumer, body_error=ValueError())
    run(producer, consumer=consumer, sends=0)
    consumer.positions[LEDGER] = 7
    run(producer, consumer=consumer)
    assert offsets_sent(producer)[-1] == {LEDGER: OffsetAndMetadata(7)}


def test_an_unknown_latest_position_at_abort_closes_the_producer():
    """The first poll was inside the block: its records would be skipped, or all earlier records repeated."""
    producer, consumer = Producer(), Consumer({}, auto_offset_reset="latest")
    with pytest.raises(TransactionFatal) as caught, transaction(producer, consumer=consumer):
        consumer.positions[LEDGER] = 9
        raise ValueError
    assert "commit a position before" in caught.value.__notes__[0]
    assert producer.calls[-1] == "close"
