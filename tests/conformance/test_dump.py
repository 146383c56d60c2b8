"""Output of `ottla dump` on the files that our broker wrote in the scenario, against Kafka's own DumpLogSegments."""

import re
import subprocess
import sys

import pytest
from test_written_files import FILES_AT_ONCE, dump, written

# Kafka prints keys and values as they are, line ends among them.
PAYLOAD = re.compile(r"(headerKeys: \[[^\]]*\]) (?:key|payload): (?!\{).*")


def by_file(lines):
    files = {}
    for line in lines:
        if line.startswith("Dumping "):
            found = files.setdefault("/".join(line.split("/")[-2:]).removeprefix("Dumping "), [])
        elif line.startswith(("baseOffset: ", "| ")):
            found.append(PAYLOAD.sub(r"\1", line).rstrip())
    return files


def ottla_dump(*arguments):
    command = [sys.executable, "-m", "ottla.cli.main", "dump", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    return done.stdout.splitlines()


@pytest.mark.maven
@pytest.mark.parametrize("topic", ["__transaction_state", "*"])
def test_batches_and_records_of_our_files_read_as_in_kafkas_own_tool(data_dir, topic):
    files = [
        file for file in written(data_dir, topic, {".log"}) if topic != "*" or not file.parent.name.startswith("__")
    ]
    assert files
    option = "--transaction-log-decoder" if topic != "*" else "--deep-iteration"
    theirs = by_file(dump(data_dir, files[:FILES_AT_ONCE], option).splitlines())
    ours = by_file(ottla_dump(data_dir, "--records"))
    assert sum(map(len, theirs.values())) > 100
    assert {name: ours[name] for name in theirs} == theirs
