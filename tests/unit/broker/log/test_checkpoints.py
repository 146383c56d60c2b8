import pytest

from ottla.broker.log import checkpoints
from ottla.protocol.errors import ProtocolError


def test_offsets_are_written_as_kafka_writes_them():
    offsets = {("ledger", 1): 841, ("__consumer_offsets", 12): 0}
    content = checkpoints.encode_offsets(offsets)
    assert content == b"0\n2\nledger 1 841\n__consumer_offsets 12 0\n"
    assert checkpoints.decode_offsets(content) == offsets


def test_an_empty_checkpoint_file_has_no_entries():
    assert checkpoints.decode_offsets(b"") == {}
    assert checkpoints.decode_offsets(checkpoints.encode_offsets({})) == {}


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\nx\n", b"\xff\xfe"]
)
def test_broken_checkpoints_are_refused(content):
    with pytest.raises(ProtocolError):
        checkpoints.decode_offsets(content)


def test_epochs_round_trip():
    assert checkpoints.encode_epochs([(0, 0), (2, 244)]) == b"0\n2\n0 0\n2 244\n"
    assert checkpoints.decode_epochs(b"0\n2\n0 0\n2 244\n") == [(0, 0), (2, 244)]


def test_partition_metadata_as_kafka_writes_it():
    content = b"version: 0\ntopic_id: znw-95yeQrOTitjbXwS8Ag"
    topic_id = checkpoints.decode_partition_metadata(content)
    assert len(topic_id) == 16
    assert checkpoints.encode_partition_metadata(topic_id) == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 1\ntopic_id: znw-95yeQrOTitjbXwS8Ag",
        b"version: 0\n",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: short",
    ],
)
def test_broken_partition_metadata_is_refused(content):
    with pytest.raises(ProtocolError):
        checkpoints.decode_partition_metadata(content)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ledger-0", ("ledger", 0)),
        ("a-b-12", ("a-b", 12)),
        ("__cluster_metadata-0", ("__cluster_metadata", 0)),
        ("ledger", None),
        ("-0", None),
        ("ledger-01", None),
        ("ledger-x", None),
        ("ledger-0.00112233445566778899aabbccddeeff-delete", None),
        ("ledger-0.00112233445566778899aabbccddeeff-future", None),
        ("ledger-\u0663", None),
    ],
)
def test_directory_names(name, expected):
    assert checkpoints.parse_directory_name(name) == expected
