"""Output of Kafka's DumpLogSegments and of `ottla dump` on the same files, in a form that can be compared."""

import json
import re
import subprocess
import sys
from pathlib import Path

from test_written_files import SUFFIXES, dump

DECODERS = {
    "__transaction_state": "--transaction-log-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
VERDICT = re.compile(r"(sound|damaged): ")


def files_of(root, directories, suffixes=SUFFIXES):
    """The files of all partitions in some data directories below `root`."""
    found = [file for name in directories for file in (root / name).glob("*-[0-9]*/*") if file.suffix in suffixes]
    assert {file.suffix for file in found} == set(suffixes)
    return found


def topic_of(file):
    return file.parent.name.rpartition("-")[0]


def is_internal_log(name):
    return name.endswith(".log") and topic_of(Path(name)) in DECODERS


def kafka_lines(root, files, compacted=()):
    """{file below the root: lines} of Kafka's tool, which must complain about nothing. A JVM for each decoder."""
    logs = [file for file in files if file.suffix == ".log"]
    decoded = {topic: [file for file in logs if topic_of(file) == topic] for topic in DECODERS}
    others = set(files).difference(*decoded.values())
    printed = dump(root, others, "--deep-iteration", "--print-data-log", compacted=compacted).splitlines()
    for topic, chosen in decoded.items():
        printed += dump(root, chosen, "--deep-iteration", DECODERS[topic], compacted=DECODERS).splitlines()
    found = by_file(printed, root)
    assert len(found) == len(files)
    return found


def ottla_lines(root, directories):
    """The same of `ottla dump`, which must find every file sound."""
    lines = []
    for name in directories:
        command = [sys.executable, "-m", "ottla.cli.main", "dump", str(root / name), "--records"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr + done.stdout[-2000:]
        lines += done.stdout.splitlines()
    verdicts = [line for line in lines if VERDICT.match(line)]
    found = by_file((line for line in lines if not VERDICT.match(line)), root)
    assert len(verdicts) == len(found)
    assert all(line.startswith("sound: ") for line in verdicts)
    return found


def by_file(lines, root):
    """Return the lines about each file by its path below the root. Kafka has a special line for an empty index."""
    files, found = {}, []
    for line in lines:
        if line.startswith("Dumping "):
            found = files.setdefault(line.removeprefix("Dumping ").removeprefix(f"{root}/"), [])
        elif line and not line.startswith("Log starting offset") and not line.endswith(" is empty."):
            found.append(line.rstrip())
    return files


def as_values(line):
    """The line with decoded keys and payloads as values: the order of their fields says nothing."""
    head, *objects = re.split(r" (?=(?:key|payload): \{)", line)
    return [head, *(json.loads(each.partition(": ")[2]) for each in objects)]


def differences(ours, theirs):
    """(file, our line, their line) wherever the two differ in any file of theirs."""
    found = []
    for name, lines in theirs.items():
        see = as_values if is_internal_log(name) else str
        assert len(ours[name]) == len(lines), name
        found += [(name, mine, line) for mine, line in zip(ours[name], lines, strict=True) if see(mine) != see(line)]
    return found
