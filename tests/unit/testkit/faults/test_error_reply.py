"""Error replies have the rows of the request, each with the error, in every version of every API that is served."""

import pytest

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.requests.structs import error_codes
from ottla.protocol.subject import subject_of
from ottla.testkit.faults.error_reply import error_reply
from ottla.testkit.in_memory.wire import message

REFUSED = ErrorCode.NOT_COORDINATOR
SERVED = [(api.key, version) for api in TABLE.values() for version in range(api.min_version, api.max_version + 1)]
WITHOUT_ERROR = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""They have no place for an error but the rows of log directories, which no request names."""


def _fill(struct, version):
    """Return a request in which every array has one entry."""
    values = {}
    for name, field in struct.fields.items():
        if not field.for_version_q(version) or not field.is_array():
            continue
        if field.is_struct_array():
            values[name] = [_fill(field.data_class, version)]
        else:
            values[name] = next(entry for entry in ([7], ["name"]) if _encodes(field, entry, version))
    return struct(version=version, **values)


def _encodes(field, value, version):
    try:
        field.encode(value, version=version, compact=False, tagged=False)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize(("key", "version"), SERVED, ids=[f"{ApiKey(key).title}-{version}" for key, version in SERVED])
def test_every_request_can_be_refused(key, version):
    request = _fill(codec.request_class(key), version)
    frame = error_reply(key, version, 5, request, REFUSED)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = codec.decode_response(key, version, frame[4:])
    assert correlation_id == 5
    errors = list(error_codes(response))
    assert (REFUSED in errors and set(errors) <= {0, REFUSED}) or (key, version) in WITHOUT_ERROR


def _refuse(key, version, **fields):
    request = message(key, version, **fields)
    return codec.decode_response(key, version, error_reply(key, version, 1, request, REFUSED)[4:])[1]


def test_an_error_reply_to_a_produce_has_each_row_of_the_request():
    rows = [{"index": index, "records": b""} for index in (3, 4)]
    topics = [{"name": "a", "partition_data": rows}]
    reply = _refuse(ApiKey.PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=1, topic_data=topics)
    (topic,) = reply.responses
    assert topic.name == "a"
    assert [(row.index, row.error_code, row.base_offset) for row in topic.partition_responses] == [
        (3, REFUSED, -1),
        (4, REFUSED, -1),
    ]


def test_the_rows_of_a_fetch_are_refused_and_not_its_session():
    rows = [{"partition": 2, "fetch_offset": 9, "partition_max_bytes": 1, "log_start_offset": 4}]
    reply = _refuse(
        ApiKey.FETCH,
        11,
        replica_id=-1,
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=0,
        topics=[{"topic": "a", "partitions": rows}],
        forgotten_topics_data=[],
        rack_id="",
    )
    (row,) = reply.responses[0].partitions
    assert (reply.error_code, row.partition_index, row.error_code) == (0, 2, REFUSED)
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)


def test_plain_keys_become_rows():
    reply = _refuse(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["x", "y"])
    assert [(row.key, row.node_id, row.error_code) for row in reply.coordinators] == [
        ("x", -1, REFUSED),
        ("y", -1, REFUSED),
    ]


def test_described_consumer_groups_become_rows():
    reply = _refuse(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g", "h"], include_authorized_operations=False)
    assert [(row.group_id, row.error_code) for row in reply.groups] == [("g", REFUSED), ("h", REFUSED)]


def test_a_request_with_an_error_for_the_whole_has_no_rows():
    topics = [{"name": "a", "partitions": [1, 2]}]
    one = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "verify_only": False, "topics": topics}
    reply = _refuse(ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=[one])
    assert (reply.error_code, reply.results_by_transaction) == (REFUSED, [])


def _subject(key, version, **fields):
    return subject_of(key, message(key, version, **fields), {}.get)


def test_the_subject_of_a_request_is_whom_and_what_it_names():
    topics = [{"name": "a", "partitions": [1, 2]}]
    old = {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0}
    asked = _subject(ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **old)
    assert asked == (frozenset({"t"}), frozenset(), frozenset({("a", 1), ("a", 2)}))
    asked = _subject(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False)
    assert asked == (frozenset(), frozenset({"g"}), frozenset())
    asked = _subject(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    assert asked == (frozenset(), frozenset({"g"}), frozenset())
    asked = _subject(ApiKey.METADATA, 9, topics=[{"name": "a"}], allow_auto_topic_creation=False)
    assert asked.partitions == frozenset({("a", None)})
    asked = _subject(ApiKey.END_TXN, 3, transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
    assert asked.transactional_ids == frozenset({"t"})
