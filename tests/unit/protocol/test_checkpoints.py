import pytest

from ottla.protocol import checkpoints
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


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, "1_0", "\u0663", "+", "9" * 5000])
def test_number_that_java_does_not_read_is_refused(number):
    with pytest.raises(ProtocolError, match="not"):
        checkpoints.decode_offsets(f"0\n1\na 0 {number}\n".encode())


@pytest.mark.parametrize(("text", "number"), [("-5", -5), ("+7", 7), ("007", 7), (checkpoints.LAST_BASE_OFFSET,) * 2])
def test_number_that_java_reads_is_read(text, number):
    assert checkpoints.decode_offsets(f"0\n1\na 0 {text}\n".encode()) == {("a", 0): number}


@pytest.mark.parametrize("entry", ["-1 0", "0 -1", "2147483648 0", f"0 {2**63}"])
def test_epoch_out_of_range_is_refused(entry):
    with pytest.raises(ProtocolError):
        checkpoints.decode_epochs(f"0\n1\n{entry}\n".encode())


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
        ("ledger-2147483647", ("ledger", 2147483647)),
        ("ledger-2147483648", None),
        ("ledger-" + "1" * 200, None),
        ("led ger-0", None),
        ("\udcff-0", None),
        ("a" * 250 + "-0", None),
    ],
)
def test_directory_names(name, expected):
    assert checkpoints.parse_directory_name(name) == expected
