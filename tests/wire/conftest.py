"""The log directories of a real Apache Kafka 4.3.1 to which the formats and the second scanner are compared."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import cramjam
import pytest

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"


@pytest.fixture(scope="session", params=["clean", "unclean"])
def kafka_directory(request, tmp_path_factory):
    """The log directory after a clean stop, and the same one after a kill before that."""
    root = tmp_path_factory.mktemp(request.param)
    packed = (DATA / f"{request.param}.tar.zst").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(bytes(cramjam.zstd.decompress(packed)))) as archive:
        archive.extractall(root, filter="data")
    return root / request.param


@pytest.fixture(scope="session")
def consumed_rows():
    """The rows that Kafka's consumer returned: end offsets first, then records."""
    with gzip.open(DATA / "consumed.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]
