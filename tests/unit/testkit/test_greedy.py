"""Greedy requests are as large as the broker accepts, for every API."""

from uuid import UUID

import pytest

from lab.greedy import Fill, State, greedy
from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import MAX_ENTRIES, MAX_SMALL_REQUEST_BYTES
from ottla.protocol.requests.produce_wire import decode_produce_request

COUNT = 100
STATE = State(
    topics=[f"topic-{number}" for number in range(COUNT)],
    topic_ids=[UUID(int=number + 1) for number in range(COUNT)],
    groups=[f"group-{number}" for number in range(COUNT)],
    transactional_ids=[f"id-{number}" for number in range(COUNT)],
    producer_ids=list(range(COUNT)),
    timestamp_ms=1,
    batch=b"b" * 70,
    large_batch=b"l" * 5_000,
)


def asks(api_key, version, max_entries=500, max_bytes=30_000):
    return list(greedy(api_key, version, version, STATE, max_entries, max_bytes))


def one(api_key, version, fill, array, **limits):
    (ask,) = [ask for ask in asks(api_key, version, **limits) if ask[2:4] == (fill, array) and ask.flags]
    return ask.message()


@pytest.mark.parametrize("api", TABLE.values(), ids=lambda api: api.title)
def test_every_request_is_one_that_the_broker_reads(api):
    for ask in greedy(api.key, api.min_version, api.max_version, STATE, 100, 10_000):
        body = bytes(ask.message().encode(version=ask.version))
        if api.key == ApiKey.PRODUCE:
            decode_produce_request(ask.version, memoryview(body))
        else:
            codec.decode_request(api.key, ask.version, body)


def test_an_array_is_filled_to_the_most_entries_or_the_most_bytes():
    whole = one(ApiKey.METADATA, 12, Fill.ROWS, "topics", max_entries=MAX_ENTRIES, max_bytes=MAX_SMALL_REQUEST_BYTES)
    assert len(whole.topics) == MAX_ENTRIES
    long = one(ApiKey.METADATA, 12, Fill.LONG, "topics")
    assert 29_000 < len(long.encode(version=12)) <= 30_000


def test_rows_name_what_exists_and_then_what_does_not():
    names = [topic.name for topic in one(ApiKey.METADATA, 12, Fill.ROWS, "topics").topics]
    assert names[:COUNT] == STATE.topics
    assert len(set(names)) == len(names) == 500
    new = {topic.name for topic in one(ApiKey.METADATA, 12, Fill.NEW, "topics").topics}
    assert len(new) == 500 and not new & set(STATE.topics)


def test_one_name_is_repeated():
    groups = one(ApiKey.OFFSET_FETCH, 8, Fill.REPEATED, "groups").groups
    assert {group.group_id for group in groups} == {"group-0"} and len(groups) == 500
    assert all(group.topics is None for group in groups), "null asks for all that the group has"


def test_a_produce_of_version_13_names_topics_by_id():
    topics = one(ApiKey.PRODUCE, 13, Fill.ROWS, "topic_data").topic_data
    assert [topic.topic_id for topic in topics[:COUNT]] == STATE.topic_ids


def test_a_request_with_a_struct_outside_arrays_is_filled_in_every_way():
    api_key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    filled = {(ask.fill, ask.array) for ask in asks(api_key, codec.schema_versions(api_key)[1])}
    assert filled >= {(fill, "topics") for fill in Fill if fill is not Fill.ALL}
