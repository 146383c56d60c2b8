"""Files that our broker wrote in the scenario, read by Kafka's own DumpLogSegments and the second scanner."""

import re
import shutil

import pytest
from targets import run_tool

from ottla.testkit.scanner import scan_partition, scan_segments

SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
FILES_AT_ONCE = 1_500
# What DumpLogSegments prints when something is wrong; all else it prints is offsets, numbers and names.
COMPLAINT = re.compile(
    r"mismatch|non-consecutive|out of order|duplicate timestamp|invalid|isvalid: false|corrupt|unknown|exception"
    r"|could not|unreadable|failed|error|unable",
    re.IGNORECASE,
)
# Where compaction took records there are gaps.
GAPS = re.compile(r"\nNon-consecutive offsets in \S+/([^/\s]+)-\d+/\d+\.log((?:\n  -?\d+ is followed by \d+)+)(?!\n  )")
# It starts to count offsets at -1 in every file, so the first record of a later segment of any Kafka looks like a gap.
FIRST_OF_A_SEGMENT = re.compile(r"\nNon-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1(?=\n)(?!\n  )")


def without_gaps(printed, compacted):
    """The text without the gaps of compacted topics, as long as offsets ascend across them."""

    def judge(found):
        gaps = re.findall(r"(-?\d+) is followed by (\d+)", found[2])
        ascend = all(int(before) < int(after) for before, after in gaps)
        return "" if found[1] in compacted and ascend else found[0]

    return GAPS.sub(judge, printed)


def dump(data_dir, files, *options, compacted=()):
    """Return the output of DumpLogSegments on the files after a check for errors; `compacted` are names of topics."""
    printed = []
    names = sorted(file.relative_to(data_dir).as_posix() for file in files)
    assert names
    for start in range(0, len(names), FILES_AT_ONCE):
        chosen = names[start : start + FILES_AT_ONCE]
        files_at = ("--files", ",".join(chosen))
        done = run_tool("org.apache.kafka.tools.DumpLogSegments", *options, *files_at, cwd=data_dir)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert said.count("Dumping ") == len(chosen)
        printed += FIRST_OF_A_SEGMENT.sub("\n", without_gaps("\n" + said, compacted)).splitlines()
    # What a record says is nobody's complaint: a group may be named after what failed.
    complaints = [line for line in printed if COMPLAINT.search(line) and not line.startswith("| offset: ")]
    assert complaints == []
    return "\n".join(printed)


def written(data_dir, topic="*", suffixes=SUFFIXES):
    return [file for file in data_dir.glob(f"{topic}-[0-9]*/*") if file.suffix in suffixes]


@pytest.mark.maven
def test_kafka_reads_every_file_without_a_complaint(data_dir):
    files = written(data_dir)
    assert {file.suffix for file in files} == SUFFIXES
    printed = dump(data_dir, files, "--deep-iteration")
    assert "endTxnMarker: COMMIT" in printed
    assert "endTxnMarker: ABORT" in printed


@pytest.mark.maven
@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_finds_every_index_sound(data_dir, check):
    printed = dump(data_dir, written(data_dir, suffixes={".index", ".timeindex"}), check)
    assert check != "--index-sanity-check" or "passed sanity check" in printed


@pytest.mark.maven
@pytest.mark.parametrize(
    ("topic", "decoder", "expected"),
    [
        ("__transaction_state", "--transaction-log-decoder", "order-processor-01"),
        ("__consumer_offsets", "--offsets-decoder", "billing"),
        ("__cluster_metadata", "--cluster-metadata-decoder", "FEATURE_LEVEL_RECORD"),
    ],
)
def test_kafka_decodes_the_internal_topics(data_dir, topic, decoder, expected):
    assert expected in dump(data_dir, written(data_dir, topic, {".log"}), decoder)


def test_the_second_scanner_finds_no_damage_and_the_same_aborted_transactions(data_dir):
    partitions = sorted({file.parent for file in written(data_dir, suffixes={".log"})})
    assert partitions
    aborted = 0
    for partition in partitions:
        found = scan_partition(partition)
        assert found.damages == [], partition
        assert found.last_stable_offset == found.log_end_offset, partition
        for batch in found.batches:
            assert [r.offset for r in batch.records()] == list(range(batch.base_offset, batch.last_offset + 1))
        indexes = b"".join(index.read_bytes() for index in sorted(partition.glob("*.txnindex")))
        entries = [indexes[n : n + 34] for n in range(0, len(indexes), 34)]
        stored = [tuple(int.from_bytes(entry[n : n + 8], "big") for n in (2, 10, 18, 26)) for entry in entries]
        assert stored == found.aborted_index, partition
        aborted += len(stored)
    assert aborted > 0


def test_the_second_scanner_reads_rolled_segments_as_one_log(data_dir):
    logs = {}
    for file in written(data_dir, suffixes={".log"}):
        logs.setdefault(file.parent, []).append(file)
    rolled = {partition: sorted(files) for partition, files in logs.items() if len(files) > 1}
    assert rolled
    for partition, files in rolled.items():
        whole = scan_segments(files)
        offsets = [offset for batch in whole.batches for offset in (batch.base_offset, batch.last_offset + 1)]
        assert offsets[1:-1:2] == offsets[2::2], f"a gap in {partition}"
        firsts = [scan_segments([file]).batches[0].base_offset for file in files]
        assert firsts == [int(file.stem) for file in files], partition


@pytest.mark.maven
@pytest.mark.parametrize(("suffix", "position"), [(".log", 100), (".index", 15), (".timeindex", 7)])
def test_kafka_would_complain_about_one_wrong_byte(data_dir, tmp_path, suffix, position):
    source = max(written(data_dir, suffixes={".txnindex"}), key=lambda file: file.stat().st_size).parent
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    file = sorted(copy.glob("*.log"))[0].with_suffix(suffix)
    data = bytearray(file.read_bytes())
    data[position] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(AssertionError, match=r"(?i)complaints|isvalid|mismatch|exception"):
        dump(tmp_path, [file], "--deep-iteration")
