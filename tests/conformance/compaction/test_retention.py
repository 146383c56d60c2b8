"""The same logs under retention by Apache Kafka 4.3.1 and by ours: the same segments go, the same records are left."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import logs

SEEDS = range(200, 216)
CASES_PER_LOG = 6
POLICIES = ("delete", "delete", "compact,delete", "compact")


def cases_of(directory, random, now_ms):
    """[(policy, retention in ms, in bytes, log start)]: none of them alone, and any of them together."""
    found = logs.scan_partition(directory)
    ages = [now_ms - batch.max_timestamp for batch in found.batches]
    size = sum(file.stat().st_size for file in directory.glob("*.log"))
    for _ in range(CASES_PER_LOG):
        yield (
            random.choice(POLICIES),
            random.choice((-1, random.choice(ages), 0, max(ages) + 1)),
            random.choice((-1, random.randrange(size), 0, size)),
            random.choice((0, random.randrange(found.log_end_offset), found.log_end_offset)),
        )


def retain_with_ottla(directory, now_ms, policy, retention_ms, retention_bytes, start):
    """The start of the log."""
    (directory / ".kafka_cleanshutdown").write_text("{}")
    settings = replace(
        logs.SETTINGS,
        cleanup_policy=policy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
    )
    log = logs.Log(directory, now_ms, settings)
    log.partition.raise_log_start(start)
    log_start = log.retain()
    log.close()
    return log_start


def visible(partition, log_start):
    """Return the records that readers of both isolation levels see, and the end of what they may see."""
    found = logs.scan_partition(partition)
    records = [
        [(r.offset, r.key, r.value) for r in found.records(isolation) if r.offset >= log_start]
        for isolation in ("read_committed", "read_uncommitted")
    ]
    return records, found.last_stable_offset, found.log_end_offset


@pytest.mark.conformance
@pytest.mark.maven
def test_the_same_segments_go_as_with_kafka(tmp_path):
    random, cases = Random(7), []
    now_ms = logs.NOW_MS + logs.LATER_MS
    for seed in SEEDS:
        written = tmp_path / f"written-{seed}"
        logs.write_log(written, seed)
        for number, case in enumerate(cases_of(written / "t-0", random, now_ms)):
            ours, kafkas = (tmp_path / f"{whose}-{seed}-{number}" for whose in ("ours", "kafkas"))
            for copy in (ours, kafkas):
                shutil.copytree(written / "t-0", copy / "t-0")
            cases.append((case, ours, kafkas))
    arguments = [each for (case, _, kafkas) in cases for each in (kafkas / "t-0", *case)]
    printed = logs.run_java(logs.CLEAN_LOG, "retain", now_ms, logs.SEGMENT_BYTES, *arguments)
    starts = [int(line) for line in printed.splitlines() if line.isdigit()]
    left = set()
    for (case, ours, kafkas), start in zip(cases, starts, strict=True):
        assert retain_with_ottla(ours, now_ms, *case) == start, case
        assert logs.segments_of(ours / "t-0") == logs.segments_of(kafkas / "t-0"), case
        assert visible(ours / "t-0", start) == visible(kafkas / "t-0", start), case
        assert logs.aborted_of(ours / "t-0") == logs.aborted_of(kafkas / "t-0"), case
        left.add(len(logs.segments_of(ours / "t-0")))
    assert len(left) > 5, "one outcome for all"
