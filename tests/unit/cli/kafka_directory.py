"""Copies of the directories that Apache Kafka 4.3.1 wrote, and the output of its own tool for them."""

import io
import tarfile
from pathlib import Path

import cramjam

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1"


def unpack(name, folder):
    """Unpack the directory `clean` or `unclean` into `folder`."""
    packed = (DATA / f"{name}.tar.zst").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(bytes(cramjam.zstd.decompress(packed)))) as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def kafka_dump(name):
    """Return lines of DumpLogSegments by "<directory>/<file>". Payloads are cut off except of internal topics."""
    text = bytes(cramjam.zstd.decompress((DATA / "dump-log-segments.txt.zst").read_bytes())).decode()
    part = text.split(f"== {name}\n")[1].split("== ")[0]
    return by_file(part.splitlines())


def by_file(lines):
    files = {}
    for line in lines:
        if line.startswith("Dumping "):
            found = files.setdefault("/".join(Path(line[len("Dumping ") :]).parts[-2:]), [])
        elif line and not line.startswith("Log starting offset"):
            found.append(line.rstrip())
    return files
