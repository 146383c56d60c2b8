"""ListOffsets: the special timestamps of each version and the offsets that they find."""

import pytest

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests.produced import check_produced_batch
from ottla.testkit.in_memory.schedule import START_MS
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

SERVED = range(TABLE[ApiKey.LIST_OFFSETS].min_version, TABLE[ApiKey.LIST_OFFSETS].max_version + 1)
# (timestamp, first version, offset and timestamp found): `ListOffsetsRequest`, `KafkaApis.handleListOffsetRequest`.
SPECIAL = [
    pytest.param(-1, 1, (5, -1), id="latest"),
    pytest.param(-2, 1, (2, -1), id="earliest"),
    pytest.param(-3, 7, (3, START_MS + 9), id="max timestamp, KIP-734"),
    pytest.param(-4, 8, (2, -1), id="earliest local, KIP-405"),
    pytest.param(-5, 9, (-1, -1), id="last tiered, KIP-1005"),
    pytest.param(-6, 11, (-1, -1), id="earliest pending upload, KIP-1023"),
]

ABSENT = [("ledger", 7), ("nobodys", 0)]


@pytest.fixture(scope="module")
def broker():
    """Return a broker with a log from offset 2 to 5; the record at 3 has the latest time."""
    broker = MemoryBroker()
    (partition,) = broker.create_topic("ledger")
    for time_ms in (0, 1, 2, 9, 4):
        batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=START_MS + time_ms))
        topics = [{"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}]
        asked = message(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1, topic_data=topics)
        assert not broker.ask(ApiKey.PRODUCE, 9, asked).responses[0].partition_responses[0].error_code
    broker.turns.event(lambda: partition.raise_log_start(2))
    return broker


def find(broker, version, timestamp, **row):
    """Send ListOffsets and return (error, offset, timestamp)."""
    topics = [{"name": "ledger", "partitions": [{"partition_index": 0, "timestamp": timestamp} | row]}]
    asked = message(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics)
    (found,) = broker.ask(ApiKey.LIST_OFFSETS, version, asked).topics[0].partitions
    return E(found.error_code), found.offset, found.timestamp


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize(("timestamp", "first_version", "found"), SPECIAL)
def test_a_special_timestamp_is_known_from_its_version_on(broker, version, timestamp, first_version, found):
    expected = (E.NONE, *found) if version >= first_version else (E.UNSUPPORTED_VERSION, -1, -1)
    assert find(broker, version, timestamp) == expected


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_an_undefined_negative_timestamp_is_refused_in_every_version(broker, version, timestamp):
    assert find(broker, version, timestamp) == (E.UNSUPPORTED_VERSION, -1, -1)


@pytest.mark.parametrize(("timestamp", "offset"), [(0, 2), (START_MS + 2, 2), (START_MS + 3, 3), (START_MS + 9, 3)])
def test_a_time_finds_the_first_record_that_is_no_older(broker, timestamp, offset):
    times = {2: START_MS + 2, 3: START_MS + 9}
    assert find(broker, 1, timestamp) == (E.NONE, offset, times[offset])
    assert find(broker, 1, START_MS + 10) == (E.NONE, -1, -1)


@pytest.mark.parametrize(("epoch", "error"), [(-1, E.NONE), (0, E.NONE), (1, E.UNKNOWN_LEADER_EPOCH)])
@pytest.mark.parametrize("version", [4, SERVED[-1]])
def test_a_later_leader_epoch_is_refused(broker, version, epoch, error):
    found = find(broker, version, -2, current_leader_epoch=epoch)
    assert found == ((error, -1, -1) if error else (E.NONE, 2, -1))


def test_an_unknown_partition_has_no_offset(broker):
    topics = [{"name": name, "partitions": [{"partition_index": index, "timestamp": -1}]} for name, index in ABSENT]
    reply = broker.ask(ApiKey.LIST_OFFSETS, 1, message(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=topics))
    rows = [topic.partitions[0] for topic in reply.topics]
    assert [(row.error_code, row.offset) for row in rows] == [(E.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2


@pytest.mark.parametrize("apart", [False, True])
def test_a_partition_that_is_named_twice_is_refused_once_in_each_topic_that_names_it(broker, apart):
    rows = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    topics = [{"name": "ledger", "partitions": [row]} for row in rows] if apart else [{"name": "ledger"}]
    if not apart:
        topics[0]["partitions"] = rows
    reply = broker.ask(ApiKey.LIST_OFFSETS, 1, message(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=topics))
    told = [[row.error_code for row in topic.partitions] for topic in reply.topics]
    assert told == [[E.INVALID_REQUEST]] * len(topics)


def latest(broker, version, **given):
    topics = [{"name": "ledger", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    asked = message(ApiKey.LIST_OFFSETS, version, **{"replica_id": -1} | given, topics=topics)
    return broker.ask(ApiKey.LIST_OFFSETS, version, asked).topics[0].partitions[0].offset


def test_the_latest_offset_is_as_far_as_the_reader_may_see(flushing):
    """An open transaction bounds the last stable offset, a pending flush the high watermark; replicas read all."""
    broker = flushing.broker
    broker.create_topic("ledger")
    owned = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for more in ({}, owned):
        data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=START_MS, base_sequence=0 if more else -1, **more))
        broker.turns.event(lambda data=data: append(broker, data))
    broker.advance(1_000)
    broker.turns.event(lambda: append(broker, memoryview(build_batch([(b"k", b"v")], timestamp_ms=START_MS))))
    for version in (2, SERVED[-1]):
        assert latest(broker, version, isolation_level=1) == 1
        assert latest(broker, version, isolation_level=0) == 2
        assert latest(broker, version, isolation_level=1, replica_id=-2) == 3
    assert latest(broker, 1) == 2


def append(broker, data):
    partition = broker.assembly.broker.cluster.partition("ledger", 0)
    assert not partition.append_from_client(check_produced_batch(data), data).error
