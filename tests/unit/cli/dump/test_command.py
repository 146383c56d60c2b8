"""`ottla dump` compared with the output of Apache Kafka's own tool for the same files, and on damaged files."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assign_offsets
from tests.unit.cli.kafka_directory import by_file, kafka_dump, unpack

VERDICT = re.compile(r"(sound|damaged): ")


def run(*arguments):
    result = CliRunner().invoke(main, ["dump", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout.splitlines()


@pytest.fixture(scope="module", params=["clean", "unclean"])
def directory(request, tmp_path_factory):
    return unpack(request.param, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return unpack("clean", tmp_path_factory.mktemp("kafka"))


@pytest.mark.slow
def test_every_batch_and_record_reads_as_in_kafkas_own_tool(directory):
    code, lines = run(directory, "--records")
    assert code == 0
    ours = by_file(line for line in lines if not VERDICT.match(line))
    logs = {name: expected for name, expected in kafka_dump(directory.name).items() if name.endswith(".log")}
    assert logs.keys() == {name for name in ours if name.endswith(".log")}
    for name, expected in logs.items():
        # Of other than internal topics the payloads are cut off in the recorded lines.
        is_cut = not name.startswith("__")
        assert len(ours[name]) == len(expected), name
        for line, theirs in zip(ours[name], expected, strict=True):
            assert (line[: len(theirs)] if is_cut and theirs[0] == "|" else line) == theirs, name
    assert sum(map(len, logs.values())) > 13_500


def test_snapshots_of_the_metadata_log_begin_as_in_kafkas_own_tool(clean):
    _, lines = run(clean)
    places = [number for number, line in enumerate(lines) if line.endswith(".checkpoint")]
    heads = {lines[place].rpartition("/")[2]: lines[place + 1] for place in places}
    assert heads == {
        "bootstrap.checkpoint": "KRaft bootstrap snapshot",
        "00000000000000000000-0000000000.checkpoint": "Snapshot end offset: 0, epoch: 0",
    }


def test_control_records_of_a_snapshot_are_printed_in_full(clean):
    snapshot = clean / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    _, lines = run(snapshot, "--records")
    told = [line.partition("headerKeys: [] ")[2] for line in lines if line.startswith("|")]
    assert told[0] == 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1795253781577}'
    assert told[1] == 'KRaftVersion {"version":0,"kRaftVersion":1}'
    assert told[2].startswith('KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"uzFn8UP_S666QHMe')
    assert told[-1] == 'SnapshotFooter {"version":0}'
    _, lines = run(snapshot, "--records", "--format", "json")
    controls = {
        each["control"]: each for each in map(json.loads, lines) if each.get("control") not in (None, True, False)
    }
    assert controls["KRaftVersion"]["decoded_value"] == {"version": 0, "kRaftVersion": 1}
    assert list(controls) == ["SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"]


def test_batches_alone_are_those_of_kafkas_own_tool(directory):
    _, lines = run(directory)
    ours = by_file(line for line in lines if not VERDICT.match(line))
    batches = {name: [line for line in dump if line[0] == "b"] for name, dump in kafka_dump(directory.name).items()}
    assert {name: ours[name] for name in batches if name.endswith(".log")} == {
        name: found for name, found in batches.items() if name.endswith(".log")
    }


def test_indexes_and_snapshots_read_as_in_kafkas_own_tool(clean):
    _, lines = run(clean)
    ours = by_file(line for line in lines if not VERDICT.match(line))
    # Kafka's tool has a sentence for an empty index.
    expected = {name: dump for name, dump in kafka_dump("clean").items() if not name.endswith(".log")}
    for name, dump in expected.items():
        assert ours[name] == [line for line in dump if not line.endswith(" is empty.")], name
    assert {Path(name).suffix for name in expected} == {".index", ".timeindex", ".txnindex", ".snapshot"}


def test_json_is_an_object_a_line_with_every_header_field(clean):
    code, lines = run(clean / "ledger-tv2-0" / "00000000000000000000.log", "--format", "json", "--records")
    assert code == 0
    found = [json.loads(line) for line in lines]
    assert [found[0]["kind"], found[-1]["kind"]] == ["file", "verdict"]
    batches = [each for each in found if each["kind"] == "batch"]
    expected = [line for line in kafka_dump("clean")["ledger-tv2-0/00000000000000000000.log"] if line[0] == "b"]
    assert len(batches) == len(expected)
    for batch, line in zip(batches, expected, strict=True):
        theirs = dict(zip(line.split()[::2], line.split()[1::2], strict=True))
        pairs = {"baseOffset:": "base_offset", "lastOffset:": "last_offset", "count:": "count", "crc:": "crc"}
        pairs |= {"producerId:": "producer_id", "producerEpoch:": "producer_epoch", "position:": "position"}
        pairs |= {"baseSequence:": "base_sequence", "lastSequence:": "last_sequence", "size:": "size_bytes"}
        pairs |= {"CreateTime:": "max_timestamp", "partitionLeaderEpoch:": "leader_epoch", "magic:": "magic"}
        assert {name: str(batch[ours]) for name, ours in pairs.items()} == {name: theirs[name] for name in pairs}
    markers = [each["control"] for each in found if "control" in each and each["kind"] == "record"]
    assert set(markers) == {"COMMIT", "ABORT"}


def test_the_decoder_can_be_chosen(clean, tmp_path):
    log = tmp_path / "copy.log"
    log.write_bytes((clean / "__transaction_state-2" / "00000000000000000000.log").read_bytes())
    _, plain = run(log, "--records")
    _, decoded = run(log, "--records", "--decoder", "transactions")
    assert not any("transactionalId" in line for line in plain)
    assert any('key: {"type":"0","data":{"transactionalId":' in line for line in decoded)


def test_small_files_are_read_too(clean):
    _, lines = run(clean)
    ours = by_file(line for line in lines if not VERDICT.match(line))
    assert "ledger 2 909" in ours["clean/recovery-point-offset-checkpoint"]
    assert "cluster.id=AAAAAAAAQACAAAAAAAAAAQ" in ours["clean/meta.properties"]
    assert ours["ledger-2/leader-epoch-checkpoint"] == ["epoch: 0 startOffset: 0", "epoch: 2 startOffset: 909"]
    assert any("topicId" in line or "topic_id" in line for line in ours["ledger-2/partition.metadata"])


@pytest.mark.parametrize(
    ("file", "change", "verdict"),
    [
        ("ledger-2/00000000000000000000.log", (100_000, 1), "damaged: wrong CRC at position 99879 "),
        ("ledger-2/00000000000000000000.log", (99_879 + 16, 1), "damaged: magic 3 at position 99879 "),
        ("ledger-2/00000000000000000000.index", (31, 1), "damaged: offset 83 at 18047, which has no batch, at "),
        ("ledger-2/00000000000000000000.timeindex", (31, 1), "damaged: timestamp 1795253792071 for offset 62, which "),
        ("ledger-2/00000000000000000000.txnindex", (0, 1), "damaged: transaction index entry at 0 has version 256 "),
        ("ledger-2/00000000000000000909.snapshot", (20, 1), "damaged: producer snapshot fails its CRC "),
        ("recovery-point-offset-checkpoint", (0, 1), "damaged: checkpoint of unknown version '1' "),
        ("ledger-2/partition.metadata", (9, 1), "damaged: partition.metadata holds neither "),
    ],
)
def test_each_kind_of_damage_is_named_in_the_verdict(tmp_path, file, change, verdict):
    directory = unpack("clean", tmp_path)
    content = bytearray((directory / file).read_bytes())
    content[change[0]] ^= change[1]
    (directory / file).write_bytes(content)
    code, lines = run(directory / file)
    assert code == 1
    assert lines[-1].startswith(verdict)
    _, lines = run(directory / file, "--format", "json")
    assert json.loads(lines[-1])["damage"].startswith(verdict.removeprefix("damaged: ").rstrip())


def test_a_batch_cut_short_ends_the_dump_as_damaged(tmp_path):
    directory = unpack("clean", tmp_path)
    log = directory / "ledger-0" / "00000000000000000000.log"
    _, whole = run(log)
    log.write_bytes(log.read_bytes()[:-20])
    code, cut = run(log)
    assert code == 1
    assert cut[:-1] == whole[:-2]
    assert (
        cut[-1]
        == "damaged: batch header cut short: 58 bytes at position 200026 (718 batches, 905 records, 200084 bytes)"
    )


def test_control_characters_are_escaped_and_binary_values_are_base64(tmp_path):
    batch = build_batch([(b"\x1b[2J", b"a\nb\xff")], timestamp_ms=1)
    assign_offsets(batch, 0, 0)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(batch)
    _, lines = run(log, "--records")
    assert lines[-2].endswith(r"key: \x1b[2J payload: a\nb�")
    _, lines = run(log, "--records", "--format", "json")
    assert json.loads(lines[-2])["value"] == {"base64": "YQpi/w=="}


def test_dump_changes_no_file(clean):
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in clean.rglob("*") if file.is_file()}
    run(clean, "--records")
    assert before == {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in clean.rglob("*") if file.is_file()}


def test_an_unsupported_or_dangling_file_exits_with_code_2(tmp_path):
    (tmp_path / "00000000000000000000.log").symlink_to("nowhere")
    (tmp_path / "notes.txt").write_text("x")
    result = CliRunner().invoke(main, ["dump", str(tmp_path / "notes.txt")])
    assert result.exit_code == 2
    assert "not a file that this command reads" in result.stderr
    assert CliRunner().invoke(main, ["dump", str(tmp_path / "00000000000000000000.log")]).exit_code == 2
