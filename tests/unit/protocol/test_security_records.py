"""ACLs, SCRAM users and quotas in the metadata, as Apache Kafka 4.3.1 serialised them, and refusals of damage."""

import gzip
import json
from base64 import b64encode
from pathlib import Path

import pytest

from ottla.protocol.checkpoints import encode_id
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.metadata_records import decode_metadata_record, encode_metadata_record
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

FILE = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "records-as-json.txt.gz"
NAMES = {
    "ACCESS_CONTROL_ENTRY_RECORD": AccessControlEntryRecord,
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": RemoveAccessControlEntryRecord,
    "USER_SCRAM_CREDENTIAL_RECORD": UserScramCredentialRecord,
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": RemoveUserScramCredentialRecord,
    "CLIENT_QUOTA_RECORD": ClientQuotaRecord,
}


def rows():
    """(type, bytes, fields as Kafka prints them) of every such record that Kafka wrote."""
    for line in gzip.decompress(FILE.read_bytes()).decode().splitlines():
        _, name, _, content, shown = line.split(" ", 4)
        if name in NAMES:
            yield pytest.param(NAMES[name], bytes.fromhex(content), json.loads(shown), id=f"{name}-{content[:24]}")


def as_kafka_prints(record):
    fields = {}
    for name, value in record._asdict().items():
        first, *rest = name.split("_")
        fields[first + "".join(map(str.title, rest))] = value
        if isinstance(value, bytes):
            fields[first + "".join(map(str.title, rest))] = (
                encode_id(value) if name == "id" else b64encode(value).decode()
            )
    if "entity" in fields:
        fields["entity"] = [{"entityType": kind, "entityName": name} for kind, name in fields["entity"]]
    return fields


@pytest.mark.parametrize(("kind", "content", "shown"), [*rows()])
def test_a_record_has_the_bytes_that_kafka_writes(kind, content, shown):
    record = decode_metadata_record(content)
    assert type(record) is kind
    assert as_kafka_prints(record) == shown
    assert encode_metadata_record(record) == content


@pytest.mark.parametrize(("kind", "content", "shown"), [*rows()])
def test_cut_or_longer_records_are_refused(kind, content, shown):
    for broken in [content[:cut] for cut in range(len(content))] + [content + b"\0"]:
        with pytest.raises(ProtocolError):
            decode_metadata_record(broken)


def test_the_default_of_an_entity_type_has_no_name():
    record = ClientQuotaRecord((("user", None), ("client-id", "app")), "producer_byte_rate", 1048576.0, False)
    value = encode_metadata_record(record)
    assert value.hex() == "010e0003057573657200000a636c69656e742d69640461707000" + (
        "1370726f64756365725f627974655f7261746541300000000000000000"
    )
    assert decode_metadata_record(value) == record


@pytest.mark.parametrize("key", [11, 14, 18, 19, 22])
def test_newer_versions_are_named(key):
    with pytest.raises(UnknownVersion, match=f"metadata record {key} of version 1"):
        decode_metadata_record(bytes([1, key, 1]) + bytes(60))


def test_the_text_of_a_credential_holds_none_of_its_keys():
    record = UserScramCredentialRecord("alice", 2, b"SALT", b"STORED", b"SERVER", 4096)
    assert repr(record) == str(record) == "UserScramCredentialRecord(name='alice', mechanism=2, iterations=4096)"
