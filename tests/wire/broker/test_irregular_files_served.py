"""A broker on a directory where a FIFO or a device stands in the place of a file: it logs the file's name and stops."""

import os
import shutil
import subprocess

import pytest
from served import SERVE, fetch

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from tests.invalid_numbers import CASE, PARTITION, STATE, write_directory
from tests.irregular_files import KINDS, WORDS
from tests.timeout import EVENT_TIMEOUT_S

STAYS = ("--override", "log.dir.failure.exit=false")
LAST = f"{PARTITION}/00000000000000000008"
# Of a partition, which is opened when a client asks for it; the last is read for a timestamp in a segment before.
OF_A_PARTITION = [
    (f"{LAST}.log", "fifo"),
    (f"{LAST}.index", "fifo"),
    (f"{LAST}.timeindex", "device"),
    (f"{PARTITION}/00000000000000000009.snapshot", "fifo"),
    (f"{PARTITION}/leader-epoch-checkpoint", "fifo"),
    (f"{PARTITION}/00000000000000000004.timeindex", "fifo"),
]
OF_THE_START = [
    ("meta.properties", "fifo"),
    (".lock", "fifo"),
    ("recovery-point-offset-checkpoint", "fifo"),
    ("replication-offset-checkpoint", "device"),
    ("bootstrap.checkpoint", "socket"),
    (STATE, "fifo"),
]
TIME_IN_A_SEGMENT_BEFORE = 1_767_225_729_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def data(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "data")


def replace(path, kind):
    path.unlink(missing_ok=True)
    KINDS[kind](path)


def offset_at(connection, timestamp):
    request = codec.request_class(ApiKey.LIST_OFFSETS)
    topic = request.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    message = request(replica_id=-1, isolation_level=0, topics=[topic(name=CASE, partitions=[asked])])
    return connection.send(message, 6).topics[0].partitions[0].error_code


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), OF_A_PARTITION)
def test_partition_is_offline_and_the_broker_stops(data, serve, name, kind):
    replace(data / name, kind)
    served = serve(*STAYS).ready()
    with served.connect() as connection:
        assert offset_at(connection, TIME_IN_A_SEGMENT_BEFORE) == ErrorCode.KAFKA_STORAGE_ERROR
        reply = connection.send(fetch(CASE, 0), version=11)
        assert reply.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert served.end() == 1
    said = served.process.stderr.read()
    assert "Traceback" not in said
    assert f"{data / name}: {WORDS[kind]}" in said


@pytest.mark.parametrize(("name", "kind"), OF_THE_START)
def test_start_is_refused(data, name, kind):
    replace(data / name, kind)
    done = subprocess.run([*SERVE, "--data-dir", data], capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert f"{name}: {WORDS[kind]}" in done.stderr


@pytest.mark.slow
def test_recovery_meets_a_fifo(data):
    (data / ".kafka_cleanshutdown").unlink()
    replace(data / f"{LAST}.log", "fifo")
    done = subprocess.run([*SERVE, "--data-dir", data], capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert f"{os.fspath(data / LAST)}.log: is a FIFO" in done.stderr
