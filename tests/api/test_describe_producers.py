"""DescribeProducers: the producers of a partition, with the values that end a hanging transaction."""

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.schedule import START_MS
from tests.api.callers import LEDGER, ORDERS, Producer, batch, produce

NOT_HOSTED = "This server does not host this topic-partition."


def describe(broker, *rows):
    """[(topic, [(partition, error, message, [(producer, epoch, sequence, time, coordinator epoch, start)])])]."""
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in rows]
    return [
        (
            topic.name,
            [
                (
                    *(row.partition_index, E(row.error_code), row.error_message),
                    [
                        (
                            *(each.producer_id, each.producer_epoch, each.last_sequence),
                            *(each.last_timestamp, each.coordinator_epoch, each.current_txn_start_offset),
                        )
                        for each in row.active_producers
                    ],
                )
                for row in topic.partitions
            ],
        )
        for topic in broker.call(K.DESCRIBE_PRODUCERS, 0, topics=topics).topics
    ]


def producers_of(broker, topic=LEDGER, partition=0):
    ((_, ((_, error, message, found),)),) = describe(broker, (topic, [partition]))
    assert (error, message) == (E.NONE, None)
    return found


def test_an_idempotent_producer_has_its_last_sequence_and_no_transaction(broker):
    for sequence, time_ms in ((0, 5), (3, 7)):
        fields = {"producer_id": 70, "producer_epoch": 2, "base_sequence": sequence, "timestamp_ms": START_MS + time_ms}
        assert produce(broker, batch(3, **fields))[0] is E.NONE
    assert producers_of(broker) == [(70, 2, 5, START_MS + 7, -1, -1)]


def test_a_transaction_has_its_first_offset_until_its_marker_is_there(broker):
    """The coordinator epoch is known after the first marker."""
    assert produce(broker, batch(4))[0] is E.NONE
    producer = Producer(broker)
    producer.begin(0)
    who = (producer.producer_id, 0)
    assert producers_of(broker) == [(*who, 0, START_MS, -1, 4)]
    assert producer.end() is E.NONE
    ((*found, written_ms, coordinator_epoch, start),) = producers_of(broker)
    assert (*found, coordinator_epoch, start) == (*who, 0, 0, -1) and written_ms > START_MS
    producer.add((LEDGER, [0]))
    producer.produce(1)
    assert producers_of(broker) == [(*who, 1, START_MS, 0, 6)]


def test_each_partition_is_answered_once_in_order_with_its_error(broker):
    broker.turns.event(lambda: broker.assembly.broker.cluster.partition(LEDGER, 2).take_offline("bad batch"))
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(broker, (LEDGER, [2, 1, 9, 1]), (ORDERS, []), (LEDGER, [-1, 0, 2]), ("none", [0])) == [
        (
            LEDGER,
            [
                (2, E.KAFKA_STORAGE_ERROR, "bad batch", []),
                (1, E.NONE, None, []),
                (9, unknown, None, []),
                (-1, unknown, None, []),
                (0, E.NONE, None, []),
            ],
        ),
        (ORDERS, []),
        ("none", [(0, unknown, NOT_HOSTED, [])]),
    ]


def test_an_invalid_topic_name_is_refused_as_invalid(broker):
    ((_, ((_, error, message, _),)),) = describe(broker, ("a/b", [0]))
    assert error is E.INVALID_TOPIC_EXCEPTION and "a/b" in message
