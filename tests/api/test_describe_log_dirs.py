"""DescribeLogDirs: the one directory and the sizes of its partitions."""

import pytest

from lab.in_memory.disk import VOLUME_BYTES
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, LEDGER_PARTITIONS, ORDERS, batch, produce

VERSIONS = range(1, 5)


def describe(broker, version, topics):
    """Return the directory's row and {topic: [(partition, size)]}."""
    rows = topics and [{"topic": name, "partitions": indexes} for name, indexes in topics]
    (row,) = broker.call(K.DESCRIBE_LOG_DIRS, version, topics=rows).results
    for topic in row.topics:
        assert {(each.offset_lag, each.is_future_key) for each in topic.partitions} == {(0, False)}
    return row, {
        topic.name: [(each.partition_index, each.partition_size) for each in topic.partitions] for topic in row.topics
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_names_partitions_each_once_and_those_that_are_not_there_are_left_out(broker, version):
    records = batch(3)
    produce(broker, records, partition=2)
    asked = [(LEDGER, [2, 1, 2]), ("none", [0]), (ORDERS, [7]), (LEDGER, [1, 9, 0])]
    row, found = describe(broker, version, asked)
    assert (row.error_code, row.log_dir) == (E.NONE, "/data")
    assert found == {LEDGER: [(2, len(records)), (1, 0), (0, 0)]}


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_list_every_partition_is_described(broker, version):
    _, found = describe(broker, version, None)
    assert {name: len(rows) for name, rows in found.items()} == {
        LEDGER: LEDGER_PARTITIONS,
        ORDERS: 1,
        "__consumer_offsets": 1,
        "__transaction_state": 1,
    }
    assert describe(broker, version, [])[1] == {}


@pytest.mark.parametrize(("version", "size_bytes"), [(3, -1), (4, VOLUME_BYTES)])
def test_volume_sizes_are_returned_from_version_4_on(broker, version, size_bytes):
    row, _ = describe(broker, version, [])
    assert (row.total_bytes, row.usable_bytes) == (size_bytes, size_bytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_directory_returns_a_storage_error_and_no_partitions(broker, version, monkeypatch):
    monkeypatch.setattr(broker.assembly.broker.logs, "volume", lambda: None)
    row, found = describe(broker, version, None)
    assert (row.error_code, row.log_dir, found) == (E.KAFKA_STORAGE_ERROR, "/data", {})
