"""Records that Apache Kafka 4.3.1 serialised (by WriteRecords.java), compared with the JSON of its tools."""

import gzip
import json
from pathlib import Path

import pytest

from ottla.cli.dump.decode import METADATA, OFFSETS, decode_control, decoder_for
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.offsets_records import GroupMember, GroupValue, encode_group_value, group_key

FILE = Path(__file__).parents[3] / "data" / "kafka-4.3.1" / "records-as-json.txt.gz"
TYPES_OF_METADATA = 26
TYPES_OF_CONTROL = 5


def rows(kind):
    """(type, version, bytes, JSON) of every record of a kind."""
    for line in gzip.decompress(FILE.read_bytes()).decode().splitlines():
        found, name, version, content, shown = line.split(" ", 4)
        if found == kind:
            yield name, int(version), bytes.fromhex(content), shown


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def metadata(content):
    key, value = decoder_for("", METADATA)(None, content)
    assert key is None
    return value


def member(protocol_type, subscription, assignment=b""):
    one = GroupMember("m", None, "c", "h", 1, 2, subscription, assignment)
    value = encode_group_value(GroupValue(protocol_type, 1, "range", "m", 5, (one,)))
    _, shown = decoder_for("", OFFSETS)(group_key("g"), value)
    return shown["data"]["members"][0]


def test_metadata_records_of_every_type_and_version_read_as_in_kafka():
    seen = set()
    for name, version, content, shown in rows("metadata"):
        found = metadata(content)
        assert (found["type"], found["version"]) == (name, version)
        assert compact(found["data"]) == shown, (name, version)
        seen.add(name)
    assert len(seen) == TYPES_OF_METADATA


def test_control_records_of_every_type_read_as_in_kafka():
    seen = set()
    for kind, _, content, shown in rows("control"):
        name, fields = decode_control(int(kind), content)
        assert compact(fields) == shown, name
        seen.add(name)
    assert len(seen) == TYPES_OF_CONTROL


def test_subscriptions_and_assignments_read_as_in_kafka():
    versions = []
    for (_, version, subscription, shown), (*_, assignment, assigned) in zip(
        rows("subscription"), rows("assignment"), strict=True
    ):
        found = member("consumer", subscription, assignment)
        assert (compact(found["subscription"]), compact(found["assignment"])) == (shown, assigned)
        versions.append(version)
    assert set(versions) == {0, 1, 2, 3}


SUBSCRIPTION = bytes.fromhex("000000010006") + b"ledger" + bytes.fromhex("ffffffff")
OF_VERSION_3 = SUBSCRIPTION + bytes(4) + bytes.fromhex("00000005ffff")
AS_VERSION_3 = {"topics": ["ledger"], "userData": None, "ownedPartitions": [], "generationId": 5, "rackId": None}


# The right-hand sides are what DumpLogSegments printed for the same bytes.
@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"\0\4" + OF_VERSION_3 + b"xyz", AS_VERSION_3),
        (b"\0\0" + SUBSCRIPTION + b"trail", {"topics": ["ledger"], "userData": None}),
        (b"\xff\xff" + SUBSCRIPTION, {"topics": ["ledger"], "userData": None}),
        (b"\0\3" + SUBSCRIPTION, "AAMAAAABAAZsZWRnZXL/////"),
        (b"\0", "AA=="),
        (b"", ""),
    ],
)
def test_subscriptions_of_other_versions_or_cut_read_as_in_kafkas_tool(content, shown):
    assert member("consumer", content)["subscription"] == shown


def test_members_of_other_protocols_keep_their_bytes():
    assert member("connect", b"\0\0" + SUBSCRIPTION, b"\0\1")["subscription"] == "AAAAAAABAAZsZWRnZXL/////"
    assert member("connect", b"", b"\0\1")["assignment"] == "AAE="


PARTITION_CHANGE = bytes([1, 5, 2]) + bytes(4) + bytes(16)
UNCHANGED = {"partitionId": 0, "topicId": "A" * 22}


# The right-hand sides are what DumpLogSegments printed for the same bytes.
@pytest.mark.parametrize(
    ("tags", "shown"),
    [
        ("010104ffffffff", UNCHANGED | {"leader": -1}),
        ("010104fffffffe", UNCHANGED),
        ("01000100", UNCHANGED),
        ("00", UNCHANGED),
    ],
)
def test_a_tagged_field_at_its_default_is_left_out_though_it_was_written(tags, shown):
    assert metadata(PARTITION_CHANGE + bytes.fromhex(tags))["data"] == shown


def test_a_tagged_field_that_does_not_fill_its_size_is_an_error():
    with pytest.raises(ProtocolError, match="1 bytes after"):
        metadata(PARTITION_CHANGE + bytes.fromhex("010105ffffffff00"))


def test_unknown_types_and_versions_of_metadata_are_hex():
    assert metadata(bytes([1, 0, 5, 7, 8])) == {"type": "REGISTER_BROKER_RECORD", "version": 5, "undecoded": "0708"}
    assert metadata(bytes([1, 99, 0, 7])) == {"type": 99, "version": 0, "undecoded": "07"}


def test_unknown_types_and_versions_of_control_records_have_at_most_a_name():
    assert decode_control(7, b"") is None
    assert decode_control(2, b"\0\1" + bytes(8)) == ("LeaderChange", None)


def test_cut_records_and_records_with_trailing_bytes_are_errors():
    for _, _, content, _ in rows("metadata"):
        for broken in (*(content[:size] for size in range(3, len(content))), content + b"\0"):
            with pytest.raises(ProtocolError):
                metadata(broken)
    for kind, _, content, _ in rows("control"):
        for size in range(len(content)):
            with pytest.raises(ProtocolError):
                decode_control(int(kind), content[:size])
    with pytest.raises(ProtocolError, match="frame version 2"):
        metadata(b"\2\0\0")
