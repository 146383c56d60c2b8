"""Records of consumer groups, byte by byte as Kafka 4.3.1 writes them."""

import pytest

from ottla.protocol.internal_topics.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupRecordType,
    MemberMetadata,
    decode_consumer_group_value,
    encode_consumer_group_value,
)

MEMBER = MemberMetadata(None, None, "client", "/127.0.0.1", ("t",), "", 30_000, None)
PLAIN = bytes.fromhex("0000000007636c69656e740b2f3132372e302e302e31020274010000753000")
# Kafka's default is an empty struct: a member without the tag would be one of the classic protocol.
NULL_TAG = bytes.fromhex("01000100")
CLASSIC_TAG = bytes.fromhex("010010010000afc8020672616e6765020a0000")


@pytest.mark.parametrize(
    ("classic", "tags"),
    [
        (None, NULL_TAG),
        (ClassicMemberMetadata(45_000, (("range", b"\n"),)), CLASSIC_TAG),
        (ClassicMemberMetadata(0, ()), b"\0"),
    ],
)
def test_member_metadata_are_the_bytes_of_kafka(classic, tags):
    member = MEMBER._replace(classic=classic)
    assert encode_consumer_group_value(member) == PLAIN + tags
    assert decode_consumer_group_value(ConsumerGroupRecordType.MEMBER_METADATA, PLAIN + tags) == member
