"""`ottla serve` as a process: ready line, lock, signals, a clean directory, restarts."""

import resource
import signal
import subprocess
import sys
import time

import pytest
from served import create, fetch, produce

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from tests.timeout import EVENT_TIMEOUT_S

BEFORE_THE_IMPORTS = """
import sys
from ottla.cli import serve

def load(*flags):
    sys.exit("the ready file is there" if serve.Path(sys.argv[-1]).exists() else "it is gone")

serve.load_or_exit = load
serve.serve.main(["--ready-file", sys.argv[-1]])
"""


@pytest.mark.slow
def test_the_ready_file_of_a_killed_broker_is_removed_before_the_imports(serve):
    served = serve().ready()
    served.end(signal.SIGKILL)
    assert served.ready_file.exists()
    command = [sys.executable, "-c", BEFORE_THE_IMPORTS, str(served.ready_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.stderr.strip() == "it is gone"


# On a slow machine a checkpoint would fail on the full disk before the client's write does.
NO_CHECKPOINT = ("--override", "replica.high.watermark.checkpoint.interval.ms=86400000")


def fill_disk(served, connection):
    """Let no file of the broker grow any more. Wait for the topic's files, which may be opened after its creation."""
    create(connection, "ledger")
    assert produce(connection, "ledger", b"before").error_code == 0
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1, 1))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no limit can be set on another process here")
def test_broker_whose_directory_fails_ends_with_exit_code_1_as_kafka_does(serve, tmp_path):
    served = serve(*NO_CHECKPOINT).ready()
    with served.connect() as connection:
        fill_disk(served, connection)
        assert produce(connection, "ledger", b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert served.process.wait(EVENT_TIMEOUT_S) == 1
    said = served.process.stderr.read()
    assert f"Shutdown broker because all log dirs in {tmp_path / 'data'} have failed" in said
    assert "Traceback" not in said
    assert not served.ready_file.exists()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no limit can be set on another process here")
def test_a_broker_with_a_failed_directory_continues_if_configured(serve):
    served = serve(*NO_CHECKPOINT, "--override", "log.dir.failure.exit=false").ready()
    with served.connect() as connection:
        fill_disk(served, connection)
        for _ in range(3):
            assert produce(connection, "ledger", b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert served.process.poll() is None
    assert served.end() == 1


@pytest.mark.slow
def test_second_broker_on_the_directory_is_refused_with_the_holders_pid(serve):
    first = serve().ready()
    second = serve()
    output, errors = second.process.communicate(timeout=EVENT_TIMEOUT_S)
    assert second.process.returncode == 1 and output == ""
    assert str(first.process.pid) in errors and "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_leaves_a_clean_directory_although_a_fetch_is_parked(serve, number):
    served = serve().ready()
    assert served.ready_file.read_text() == served.line
    with served.connect() as connection, served.connect() as parked:
        create(connection, "ledger")
        assert produce(connection, "ledger", b"one").error_code == 0
        parked.post(fetch("ledger", 1, max_wait_ms=2_000 * EVENT_TIMEOUT_S), version=11)
        time.sleep(0.1)
        assert served.end(number) == 0
    assert not served.ready_file.exists()
    assert (served.data_dir / ".kafka_cleanshutdown").exists()
    assert (served.data_dir / "ledger-0" / f"{1:020d}.snapshot").exists() or list(
        (served.data_dir / "ledger-0").glob("*.log")
    )


def read_leader_epoch(connection):
    request = codec.request_class(ApiKey.METADATA)
    reply = connection.send(request(topics=[request.MetadataRequestTopic(name="ledger")]), version=7)
    return reply.topics[0].partitions[0].leader_epoch


@pytest.mark.slow
def test_records_leader_epochs_and_producer_ids_after_a_kill_and_a_stop(serve):
    """Records are kept, a producer id is handed out once, and an unclean start alone is a new leader epoch."""
    values, epochs, ids = [b"first", b"second", b"third"], [], []
    request = codec.request_class(ApiKey.INIT_PRODUCER_ID)
    for offset, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGTERM)):
        served = serve().ready()
        with served.connect() as connection:
            create(connection, "ledger")
            row = produce(connection, "ledger", values[offset])
            assert (row.error_code, row.base_offset) == (ErrorCode.NONE, offset)
            reply = connection.send(fetch("ledger", 0), version=11)
            records = bytes(reply.responses[0].partitions[0].records)
            assert all(value in records for value in values[: offset + 1])
            epochs.append(read_leader_epoch(connection))
            for _ in range(3):
                reply = connection.send(request(transactional_id=None, transaction_timeout_ms=1000), version=4)
                ids.append(reply.producer_id)
        assert served.end(number) == (-number if number == signal.SIGKILL else 0)
    assert epochs == [0, 1, 1]
    assert len(set(ids)) == len(ids) == 9


def read_level(connection):
    request = codec.request_class(ApiKey.API_VERSIONS)
    reply = connection.send(request(client_software_name="ottla", client_software_version="1"), 4)
    assert ("transaction.version", 0, 2) in {
        (feature.name, feature.min_version, feature.max_version) for feature in reply.supported_features
    }
    levels = {feature.name: feature.max_version_level for feature in reply.finalized_features}
    return levels.get("transaction.version", 0), reply.finalized_features_epoch


@pytest.mark.slow
def test_the_level_of_transactions_is_set_first_by_an_option_and_then_by_requests(serve):
    first = serve("--override", "transaction.version=0").ready()
    request = codec.request_class(ApiKey.UPDATE_FEATURES)
    with first.connect() as connection:
        level, epoch = read_level(connection)
        assert level == 0
        update = request.FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=1)
        assert connection.send(request(feature_updates=[update]), 2).error_code == ErrorCode.NONE
        later = read_level(connection)
        assert later[0] == 1 and later[1] > epoch
    assert first.end() == 0
    again = serve("--override", "transaction.version=2").ready()
    with again.connect() as connection:
        assert read_level(connection)[0] == 1
    assert again.end() == 0
    assert "transaction.version is 1 in this directory, not 2" in again.process.stderr.read()
