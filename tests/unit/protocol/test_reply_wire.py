"""Small replies against the library's bytes."""

import pytest

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.reply_wire import encode_error_reply, encode_partition_errors, encode_producer_reply


def versions(api_key, lowest, highest):
    return [(api_key, version) for version in range(lowest, highest + 1)]


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        *versions(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
        *versions(ApiKey.END_TXN, 0, 4),
        *versions(ApiKey.HEARTBEAT, 1, 4),
    ],
)
def test_error_reply_has_the_bytes_that_the_library_writes(api_key, version):
    message = codec.response_class(api_key)(throttle_time_ms=70_000, error_code=51)
    expected = codec.encode_response(message, api_key, version, -9)
    assert encode_error_reply(api_key, version, -9, 51, 70_000) == expected


@pytest.mark.parametrize(
    ("api_key", "version"), [*versions(ApiKey.INIT_PRODUCER_ID, 0, 5), *versions(ApiKey.END_TXN, 5, 5)]
)
def test_producer_reply_has_the_bytes_that_the_library_writes(api_key, version):
    message = codec.response_class(api_key)(throttle_time_ms=3, error_code=-1, producer_id=2**62, producer_epoch=32766)
    expected = codec.encode_response(message, api_key, version, 9)
    assert encode_producer_reply(api_key, version, 9, -1, 2**62, 32766, 3) == expected


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        *versions(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3),
        *versions(ApiKey.TXN_OFFSET_COMMIT, 0, 5),
        *versions(ApiKey.OFFSET_COMMIT, 2, 9),
    ],
)
@pytest.mark.parametrize("topics", [[], [("t", [])], [("payments", [(0, 0), (7, 3)]), ("grüße", [(2**31 - 1, -1)])]])
def test_partition_errors_have_the_bytes_that_the_library_writes(api_key, version, topics):
    response = codec.response_class(api_key)
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        topic_class = response.AddPartitionsToTxnTopicResult
        row_class = topic_class.AddPartitionsToTxnPartitionResult
        rows = [
            topic_class(
                name=name,
                results_by_partition=[row_class(partition_index=p, partition_error_code=e) for p, e in partitions],
            )
            for name, partitions in topics
        ]
        message = response(throttle_time_ms=5, results_by_topic_v3_and_below=rows)
    else:
        title = ApiKey(api_key).title
        topic_class = getattr(response, f"{title}ResponseTopic")
        row_class = getattr(topic_class, f"{title}ResponsePartition")
        rows = [
            topic_class(name=name, partitions=[row_class(partition_index=p, error_code=e) for p, e in partitions])
            for name, partitions in topics
        ]
        message = response(throttle_time_ms=5, topics=rows)
    expected = codec.encode_response(message, api_key, version, 9)
    assert encode_partition_errors(api_key, version, 9, topics, 5) == expected
