"""A broker on a directory with numbers and names that no Kafka writes: it serves, or logs the reason in one line."""

import shutil
import subprocess

import pytest
from served import SERVE, create, fetch

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from tests.invalid_numbers import CASE, END_OFFSET, ODD, write_directory
from tests.timeout import EVENT_TIMEOUT_S

# Only one of each kind, because a start takes a second.
REFUSED = (
    f"recovery-point-offset-checkpoint {2**63}",
    "log-start-offset-checkpoint partition",
    "log-start-offset-checkpoint bytes",
    f"node {2**31}",
    "directory id",
    "cluster id",
    f"elected epoch {2**31 - 1}",
    "elected epoch " + "[" * 20,
)
SERVED = (
    "recovery-point-offset-checkpoint negative",
    "replication-offset-checkpoint 2^63",
    f"leader epoch {2**31} 0, not stopped",
    f"producer id {2**63 - 1} in batches, not stopped",
    f"producer id {2**63 - 1} in states",
    f"producer id {-(2**63)} in snapshots",
    f"segment {2**64}",
    f"segment {2**63 - 2**31:020d}",
    f"snapshot {2**64}",
    "partition 2147483648",
    "folder of bytes",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def data(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "data")


def end_offset(connection):
    """Return the error and the end offset of the partition."""
    request = codec.request_class(ApiKey.LIST_OFFSETS)
    topic = request.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    message = request(replica_id=-1, isolation_level=0, topics=[topic(name=CASE, partitions=[asked])])
    row = connection.send(message, 6).topics[0].partitions[0]
    return row.error_code, row.offset


def next_producer_id(connection):
    request = codec.request_class(ApiKey.INIT_PRODUCER_ID)
    message = request(transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
    reply = connection.send(message, 4)
    assert reply.error_code == ErrorCode.NONE
    return reply.producer_id


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_broker_refuses_in_one_line(data, name):
    odd = ODD[name]
    assert odd.serve == "refuses"
    odd.change(data)
    before = {path: path.read_bytes() for path in data.rglob("*.log")}
    done = subprocess.run([*SERVE, "--data-dir", data], capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert odd.file in line and "put " in line
    assert {path: path.read_bytes() for path in data.rglob("*.log")} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_broker_serves_what_is_sound(data, serve, name):
    odd = ODD[name]
    odd.change(data)
    before = {path: path.read_bytes() for path in data.rglob("*.log")}
    served = serve().ready()
    with served.connect() as connection:
        if odd.serve == "offline":
            assert end_offset(connection) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        else:
            assert end_offset(connection) == (ErrorCode.NONE, END_OFFSET)
            assert connection.send(fetch(CASE, 0), version=11).responses[0].partitions[0].error_code == ErrorCode.NONE
        assert next_producer_id(connection) >= 0
        create(connection, "another")
    assert served.end() == 0
    said = served.process.stderr.read()
    assert "Traceback" not in said
    assert odd.serve == "serves" or len([line for line in said.splitlines() if odd.file in line]) == 1
    assert all(path.read_bytes() == content for path, content in before.items())
