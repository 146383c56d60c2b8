"""Addresses in replies: replaced at their place, with any length, and nothing else changed."""

import random

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.testkit.proxying.addresses import names_brokers, parse_address, refused_api_versions, rewritten
from tests.wire.messages import MessageMaker, framed_by_library

NAMING = [ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.PRODUCE, ApiKey.FETCH]
VERSIONS = [
    (api_key, version)
    for api_key in NAMING
    for version in range(codec.schema_versions(api_key)[0], codec.schema_versions(api_key)[1] + 1)
]


def frame(message, api_key, version):
    return framed_by_library(message, api_key, version, 7)[4:]


def replace(address):
    return "a-host-with-quite-another-length.example", 9


def hosts(message):
    rows = [*(getattr(message, "brokers", None) or ()), *(getattr(message, "coordinators", None) or ())]
    rows += getattr(message, "node_endpoints", None) or ()
    return rows + ([message] if "host" in type(message).fields else [])


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_rewritten_reply_differs_in_its_addresses_only(api_key, version):
    rng = random.Random(version * 100 + api_key)
    for _ in range(20):
        given = frame(MessageMaker(rng, version).make(codec.response_class(api_key)), api_key, version)
        expected = codec.decode_response(api_key, version, given)[1]
        changed = codec.decode_response(api_key, version, rewritten(api_key, version, given, replace))[1]
        for row in hosts(expected):
            if row.host and row.port > 0:
                row.host, row.port = replace(None)
        assert repr(changed) == repr(expected)


def test_a_reply_stays_as_it_is_byte_by_byte_when_no_address_changes():
    response = codec.response_class(ApiKey.METADATA)
    broker = response.MetadataResponseBroker(node_id=1, host="kafka", port=9092, rack=None)
    given = frame(response(brokers=[broker], cluster_id="c", controller_id=1, topics=[]), ApiKey.METADATA, 12)
    assert rewritten(ApiKey.METADATA, 12, given, lambda address: address) is given


def test_a_coordinator_that_is_not_known_has_no_address_to_replace():
    response = codec.response_class(ApiKey.FIND_COORDINATOR)
    row = response.Coordinator(key="t", node_id=-1, host="", port=-1, error_code=15, error_message=None)
    given = frame(response(coordinators=[row]), ApiKey.FIND_COORDINATOR, 4)
    assert rewritten(ApiKey.FIND_COORDINATOR, 4, given, replace) is given


def test_replies_of_unknown_versions_pass_if_they_have_no_address():
    assert rewritten(ApiKey.END_TXN, 99, b"\0\0\0\7??", replace) == b"\0\0\0\7??"
    assert rewritten(999, 0, b"\0\0\0\7??", replace) == b"\0\0\0\7??"
    with pytest.raises(ProtocolError):
        rewritten(ApiKey.METADATA, 99, b"\0\0\0\7??", replace)


def api_versions(*rows, error=0):
    response = codec.response_class(ApiKey.API_VERSIONS)
    keys = [response.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows]
    return response(error_code=error, api_keys=keys, throttle_time_ms=0)


def rewrite_reply(message, version):
    given = frame(message, ApiKey.API_VERSIONS, version)
    reply = rewritten(ApiKey.API_VERSIONS, version, given, replace)
    answer = codec.decode_response(ApiKey.API_VERSIONS, version, reply)[1]
    return given, reply, [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_without_replaceable_addresses_are_left_out(version):
    rows = [(ApiKey.METADATA, 0, 99), (ApiKey.END_TXN, 0, 99), (ApiKey.SASL_HANDSHAKE, 0, 1), (78, 0, 2), (500, 3, 4)]
    _, _, answer = rewrite_reply(api_versions(*rows), version)
    highest = codec.schema_versions(ApiKey.METADATA)[1]
    assert answer == [
        (ApiKey.METADATA, 0, highest),
        (ApiKey.END_TXN, 0, 99),
        (ApiKey.SASL_HANDSHAKE, 1, 1),
        (500, 3, 4),
    ]


def test_an_api_versions_reply_within_the_limits_passes_unchanged():
    given, reply, _ = rewrite_reply(api_versions((ApiKey.METADATA, 0, 12), (ApiKey.PRODUCE, 3, 11)), 4)
    assert reply is not None
    assert reply == given


def test_a_too_new_api_versions_request_gets_the_highest_known_version():
    highest = codec.schema_versions(ApiKey.API_VERSIONS)[1]
    assert refused_api_versions(highest, 1) is None
    _, message = codec.decode_response(ApiKey.API_VERSIONS, highest, refused_api_versions(highest + 1, 1))
    assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.max_version) for row in message.api_keys] == [(ApiKey.API_VERSIONS, highest)]


def test_an_unsupported_version_is_answered_in_version_0_and_stays_so():
    given = frame(api_versions((ApiKey.API_VERSIONS, 0, 3), (78, 0, 1), error=35), ApiKey.API_VERSIONS, 0)
    reply = rewritten(ApiKey.API_VERSIONS, 4, given, replace)
    _, message = codec.decode_response(ApiKey.API_VERSIONS, 0, reply)
    assert [row.api_key for row in message.api_keys] == [ApiKey.API_VERSIONS]


def test_produce_10_and_fetch_16_are_the_first_to_name_brokers():
    assert names_brokers(ApiKey.PRODUCE, 10) and not names_brokers(ApiKey.PRODUCE, 9)
    assert names_brokers(ApiKey.FETCH, 16) and not names_brokers(ApiKey.FETCH, 15)
    assert not names_brokers(ApiKey.END_TXN, 5)


@pytest.mark.parametrize(
    ("given", "address"), [("kafka:9092", ("kafka", 9092)), ("[::1]:1", ("::1", 1)), (":9", ("127.0.0.1", 9))]
)
def test_an_address_is_read(given, address):
    assert parse_address(given) == address


@pytest.mark.parametrize("given", ["kafka", "kafka:", "kafka:x", "kafka:70000", ""])
def test_an_address_without_a_valid_port_is_refused(given):
    with pytest.raises(ProtocolError, match="is not HOST:PORT"):
        parse_address(given)
