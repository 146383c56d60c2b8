"""The same logs cleaned by Apache Kafka 4.3.1 and by ours, twice: the same batches, segments and transaction indexes.

Kafka's result is recorded (`record.py`); with Maven at hand, other logs are cleaned by it on the spot.
"""

import shutil
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import logs

ARCHIVE = Path(__file__).parents[2] / "data" / "compaction" / "kafka-4.3.1.tar.gz"
SEEDS = range(6)
LIVE_SEEDS = range(100, 112)
EVERY_KIND = {
    "empty marker",
    "empty batch",
    "marker with horizon",
    "tombstones with horizon",
    "thinned batch",
    "thinned compressed batch",
}


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """{seed: [(time of the cleaning, or 0; directory)]}: as written, and after the first and the second cleaning."""
    root = tmp_path_factory.mktemp("recorded")
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(root, filter="data")
    return {seed: [(time_of(state), state) for state in sorted((root / str(seed)).iterdir())] for seed in SEEDS}


def time_of(state):
    """`cleaned-1-at-1700` was cleaned at 1700."""
    return int(state.name.rpartition("-")[2]) if "-at-" in state.name else 0


def by_time(states):
    return sorted(states, key=lambda state: state[0])


def clean(source, directory, now_ms):
    """The partition that ours makes of a copy of `source`."""
    shutil.copytree(source, directory / "t-0")
    (directory / ".kafka_cleanshutdown").write_text("{}")
    logs.clean_with_ottla(directory, now_ms)
    return directory / "t-0"


def assert_alike(ours, kafkas):
    expected = logs.batches_of(kafkas)
    only_ours = logs.ends_of_segments(ours) - {batch[0] for batch in expected}
    assert [batch for batch in logs.batches_of(ours) if batch[0] not in only_ours] == expected
    assert logs.segments_of(ours) == logs.segments_of(kafkas)
    assert logs.aborted_of(ours) == logs.aborted_of(kafkas)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("turn", [1, 2])
def test_a_cleaning_leaves_what_kafkas_leaves(recordings, tmp_path, seed, turn):
    states = by_time(recordings[seed])
    (_, before), (now_ms, after) = states[turn - 1 : turn + 1]
    assert logs.batches_of(before) != logs.batches_of(after)
    assert_alike(clean(before, tmp_path, now_ms), after)


@pytest.mark.parametrize("seed", SEEDS)
def test_our_log_reads_as_kafkas_in_both_isolations(recordings, tmp_path, seed):
    (_, before), (now_ms, after), _ = by_time(recordings[seed])
    ours = logs.scan_partition(clean(before, tmp_path, now_ms))
    kafkas = logs.scan_partition(after)
    for isolation in ("read_committed", "read_uncommitted"):
        assert [*ours.records(isolation)] == [*kafkas.records(isolation)]
    assert ours.last_stable_offset == kafkas.last_stable_offset


def test_the_recording_has_every_kind_of_leftover(recordings):
    """Else the comparison would prove little."""
    cleaned = [state for states in recordings.values() for now_ms, state in states if now_ms]
    assert set().union(*map(logs.kinds_of, cleaned)) == EVERY_KIND
    assert any(logs.aborted_of(state) for state in cleaned)


@pytest.mark.maven
def test_kafkas_cleaner_agrees_on_other_logs(tmp_path):
    written = [tmp_path / f"written-{seed}" for seed in LIVE_SEEDS]
    now_ms = max(logs.write_log(directory, seed) for directory, seed in zip(written, LIVE_SEEDS, strict=True))
    for turn in (1, 2):
        now_ms += logs.LATER_MS
        before = [tmp_path / f"{turn}-{directory.name}" for directory in written]
        for copy, directory in zip(before, written, strict=True):
            shutil.copytree(directory / "t-0", copy)
        assert len(logs.clean_with_kafka(written, now_ms)) == len(written)
        for copy, directory in zip(before, written, strict=True):
            assert_alike(clean(copy, tmp_path / f"ours-{copy.name}", now_ms), directory / "t-0")


@pytest.mark.maven
def test_kafkas_dump_reads_our_cleaned_files(tmp_path):
    logs.clean_with_ottla(tmp_path, logs.write_log(tmp_path, 3) + logs.LATER_MS)
    files = sorted((tmp_path / "t-0").glob("*.log")) + sorted((tmp_path / "t-0").glob("*.*index"))
    tool = "org.apache.kafka.tools.DumpLogSegments"
    printed = logs.run_java(tool, "--deep-iteration", "--files", ",".join(map(str, files)))
    assert printed.count("Dumping ") == len(files)
    assert "isvalid: true" in printed and "endTxnMarker" in printed and "deleteHorizonMs: OptionalLong[" in printed
    for complaint in ("isvalid: false", "mismatch", "Exception", "unreadable"):
        assert complaint not in printed
