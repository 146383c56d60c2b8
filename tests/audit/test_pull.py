"""`ottla pull`: a copy of a cluster as a log directory, with the bytes of the source."""

import hashlib
import json
import re
import stat
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from click.testing import CliRunner

from ottla.cli.pull.command import pull
from ottla.protocol.batch_header import iter_batches
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from tests.audit.test_cluster import HERE, SERVED, SOON_MS, audit_of, facts_of
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker

EVERYTHING = ("--topics", "*", "--groups", "--transactions")


def serving(case, tmp_path):
    root = write_files(files_of(HERE[case]), tmp_path / "source") / "data"
    return ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING), root


def run(broker, directory, *options):
    return CliRunner().invoke(pull, [f"kafka://{broker.bootstrap}", str(directory), *options])


def pulled(broker, directory, *options):
    """Pull as JSON; return the document."""
    result = run(broker, directory, *options, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def batches_of(directory, from_offset=0):
    """Return the bytes of all batches of a partition that reach `from_offset` or later."""
    content = b""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for at, header in iter_batches(memoryview(data)):
            if header.last_offset >= from_offset:
                content += data[at : at + header.size_bytes]
    return content


def digests_of(root, names, starts):
    return {name: hashlib.sha1(batches_of(root / name, starts[name])).hexdigest() for name in names}


def logs_of(root):
    """Return {partition: {file: content}} of the segments, indexes and snapshots."""
    return {
        each.name: {path.name: path.read_bytes() for path in sorted(each.iterdir())}
        for each in sorted(root.iterdir())
        if each.is_dir()
    }


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_each_partition_has_the_bytes_of_the_source(case, tmp_path):
    broker, root = serving(case.name, tmp_path)
    copy = tmp_path / "copy"
    with broker:
        rows = {row["partition"]: row for row in pulled(broker, copy, *EVERYTHING)["partitions"]}
        starts = {name: row["start_offset"] for name, row in rows.items()}
        source = digests_of(root, rows, starts)
        assert digests_of(copy, rows, starts) == source
        assert set(rows) == {path.name for path in root.iterdir() if path.is_dir()} - {"__cluster_metadata-0"}
        again = pulled(broker, copy, *EVERYTHING)["partitions"]
        assert {row["size_bytes"] for row in again} == {0}
        assert {row["partition"]: row["end_offset"] for row in again} == {
            name: row["end_offset"] for name, row in rows.items()
        }
