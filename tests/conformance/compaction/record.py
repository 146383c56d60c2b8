"""Write what Apache Kafka 4.3.1's cleaner makes of a few logs: python record.py FILE.tar.gz"""

import gzip
import io
import sys
import tarfile
import tempfile
from pathlib import Path

from logs import KEPT_SUFFIXES, LATER_MS, clean_with_kafka, write_log

SEEDS = range(6)


def record(archive):
    """For each seed the log as it was written, and as it was after the first and the second cleaning."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=packed, mode="w") as tar:
        directories = [Path(scratch) / str(seed) for seed in SEEDS]
        now_ms = max(write_log(directory, seed) for seed, directory in zip(SEEDS, directories, strict=True))
        keep(tar, directories, "written")
        for turn in (1, 2):
            now_ms += LATER_MS
            print(clean_with_kafka(directories, now_ms))
            keep(tar, directories, f"cleaned-{turn}-at-{now_ms}")
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def keep(tar, directories, state):
    for directory in directories:
        for file in sorted((directory / "t-0").iterdir()):
            if file.suffix in KEPT_SUFFIXES:
                info = tarfile.TarInfo(f"{directory.name}/{state}/{file.name}")
                info.size = file.stat().st_size
                tar.addfile(info, io.BytesIO(file.read_bytes()))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
