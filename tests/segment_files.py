"""Log directories of a real Apache Kafka 4.3.1, unpacked once per run, and builders of small ones."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parent / "data" / "kafka-4.3.1"


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """Unpack `clean` or `unclean` and return its path; the same path every time."""
    zstandard = pytest.importorskip("zstandard", reason="the spark extra is not installed")
    root = tmp_path_factory.mktemp("kafka-4.3.1")

    def unpack(name):
        if not (root / name).exists():
            packed = (REFERENCE / f"{name}.tar.zst").read_bytes()
            unpacked = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)).read()
            with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
                archive.extractall(root, filter="data")
        return root / name

    return unpack


@pytest.fixture(scope="session")
def consume():
    """Return the records of Kafka's own consumer: isolation -> (end offset by partition, records)."""
    with gzip.open(REFERENCE / "consumed.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]

    def read(isolation):
        mine = [row for row in rows if row["isolation"] == isolation]
        return {row["end"]: row["offset"] for row in mine if "end" in row}, [row for row in mine if "end" not in row]

    return read


class LogWriter:
    """Writes one partition's segment: batches get the next offsets, markers too."""

    def __init__(self, root, topic="ledger", partition=0, base_offset=0):
        self.folder = Path(root) / f"{topic}-{partition}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.next_offset = base_offset
        self.roll()

    def roll(self):
        self.path = self.folder / f"{self.next_offset:020d}.log"
        self.path.write_bytes(b"")
        return self

    def append(self, batch):
        """Append `batch` at the next offset; returns its position in the file."""
        from ottla.protocol.batch_header import assign_offsets, read_header

        assign_offsets(batch, self.next_offset, 0)
        position = self.path.stat().st_size
        with self.path.open("ab") as file:
            file.write(batch)
        self.next_offset = read_header(batch).next_offset
        return position

    def data(self, records=1, *, producer_id=-1, epoch=0, transactional=None, timestamp_ms=1000, value=b"v", **more):
        from ottla.protocol.batch import build_batch

        transactional = producer_id >= 0 if transactional is None else transactional
        more.setdefault("base_sequence", 0 if producer_id >= 0 else -1)
        return self.append(
            build_batch(
                [(b"k%d" % index, value) for index in range(records)],
                timestamp_ms=timestamp_ms,
                producer_id=producer_id,
                producer_epoch=epoch if producer_id >= 0 else -1,
                transactional=transactional,
                **more,
            )
        )

    def marker(self, producer_id, commit, epoch=0, timestamp_ms=2000):
        from ottla.protocol.batch import build_marker

        return self.append(build_marker(producer_id, epoch, 0, commit, timestamp_ms))


@pytest.fixture
def write_log(tmp_path):
    """`write_log(topic, partition)`: a LogWriter under a fresh log directory, `write_log.root`."""

    def make(topic="ledger", partition=0, base_offset=0):
        return LogWriter(make.root, topic, partition, base_offset)

    make.root = tmp_path / "log"
    make.root.mkdir()
    (make.root / "meta.properties").write_text("version=1\n")
    return make


@pytest.fixture
def run_audit(capsys):
    """Run the audit with a command line and return exit code, stdout and stderr."""
    from ottla.spark_jobs.audit import main

    def run(*argv):
        code = main([str(argument) for argument in argv])
        return code, *capsys.readouterr()

    return run
