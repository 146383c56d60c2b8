"""Applications of Quix Streams and FastStream that copy a topic, through a stop and a restart."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from cache_folder import fill_once
from clients import eventually
from scenario import StepContext

PROGRAM = Path(__file__).parent / "drivers" / "python_applications.py"
PACKAGES = ("quixstreams==3.28.1", "faststream[kafka,confluent]==0.7.8")
NAMES = {
    "quix": "Quix Streams 3.28.1, exactly-once",
    "faststream-kafka": "FastStream 0.7.8 over aiokafka",
    "faststream-confluent": "FastStream 0.7.8 over confluent-kafka",
}
EXACTLY_ONCE = {"quix"}
"""The others promise each record at least once."""
VALUES = [f"record {number:04}" for number in range(1_000)]
PARTITIONS = 3

pytestmark = pytest.mark.conformance


def fetch_python():
    """Return the Python of an environment with the packages, which pip fetches on first use."""
    wanted = f"{sys.version_info[:2]} {PACKAGES}"

    def install(folder):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, timeout=300)
        command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            pytest.skip(f"pip cannot install {', '.join(PACKAGES)}: {done.stderr.strip().splitlines()[-1]}")

    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    return fill_once(f"applications-{digest}", install) / "bin" / "python"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["ottla", "apache"])
def test_a_restarted_application_copies_every_record(ensemble, cell, tmp_path, target, name):
    cell(target, NAMES[name])
    python = fetch_python()
    client = ensemble.client(target, "confluent-kafka")
    context = StepContext(client, name)
    source, sink = context.topics("source", "sink", partitions=PARTITIONS)
    with context.producer() as producer:
        producer.send_records([(source, number % PARTITIONS, None, value, ()) for number, value in enumerate(VALUES)])
    command = [python, PROGRAM, name, client.bootstrap, context.name("group"), source, sink]
    log_file = tmp_path / "application.log"
    for copied in (1, len(VALUES)):
        with log_file.open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as application:
            try:
                eventually(lambda wanted=copied: len(set(client.values([sink]))) >= wanted, log_file, timeout_s=120)
            finally:
                application.terminate()
    copies = client.values([sink])
    assert (copies if name in EXACTLY_ONCE else sorted(set(copies))) == VALUES
