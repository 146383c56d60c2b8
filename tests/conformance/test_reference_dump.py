"""`ottla dump` against Kafka's own tool on the directories that a real Apache Kafka 4.3.1 left, clean and killed."""

from pathlib import Path

import pytest
from dumps import by_file, files_of, kafka_lines, ottla_lines
from test_written_files import SUFFIXES, dump

from tests.unit.cli.kafka_directory import unpack

DIRECTORIES = ("clean", "unclean")
COMPACTED = ("compacted",)

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("kafka")
    for name in DIRECTORIES:
        unpack(name, root)
    return root


def is_preallocated(file):
    """Whether zeros end an index, as a killed broker leaves it: Kafka's tool takes them for entries, or fails."""
    return file.suffix in (".index", ".timeindex") and file.read_bytes().endswith(bytes(12))


def snapshot_lines(root):
    """Return the output of Kafka's tool on the snapshots of the metadata logs and on the snapshots these began from."""
    files = [file for name in DIRECTORIES for file in (root / name).rglob("*.checkpoint")]
    return by_file(dump(root, files, "--cluster-metadata-decoder").splitlines(), root)


def test_every_line_is_that_of_kafkas_tool(root):
    all_files = files_of(root, DIRECTORIES)
    files = [file for file in all_files if not is_preallocated(file)]
    assert {file.suffix for file in files} == SUFFIXES
    left_out = {file.relative_to(root).as_posix() for file in set(all_files).difference(files)}
    theirs = kafka_lines(root, files, COMPACTED) | snapshot_lines(root)
    ours = ottla_lines(root, DIRECTORIES)
    assert theirs.keys() == {name for name in ours if Path(name).suffix in SUFFIXES | {".checkpoint"}} - left_out
    assert sum(map(len, theirs.values())) > 18_000
    for name, lines in theirs.items():
        assert len(ours[name]) == len(lines), name
        for mine, line in zip(ours[name], lines, strict=True):
            assert mine == line, name
