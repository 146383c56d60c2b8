import pytest

from ottla.protocol.hashing import coordinator_partition, java_hash


@pytest.mark.parametrize(
    ("key", "value", "partition"),
    [
        ("my-txn", -1061187895, 45),
        ("transactional-id-0", 1051133890, 40),
        ("foo", 101574, 24),
        ("t1", 3645, 45),
        ("", 0, 0),
        ("polygenelubricants", -(2**31), 0),
        ("é", 233, 33),
    ],
)
def test_ids_land_where_kafka_puts_them(key, value, partition):
    assert java_hash(key) == value
    assert coordinator_partition(key, 50) == partition


def test_characters_beyond_the_bmp_count_as_two_surrogates():
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
