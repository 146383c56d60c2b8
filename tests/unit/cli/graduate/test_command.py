"""`ottla graduate`: the files that it writes, its refusals, and the state after a kill in the middle."""

import asyncio
import shutil

import pytest
from click.testing import CliRunner

from lab.metadata import change_security, create_internal_topic, create_topic, next_producer_id
from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import read_metadata
from ottla.broker.cluster.kraft_bootstrap import security_records
from ottla.broker.config import Config, Listener
from ottla.broker.ports.disk import RealDisk
from ottla.broker.server import Server
from ottla.cli.graduate.command import graduate
from ottla.cli.graduate.config import Endpoint, config_problems, config_warnings, controller_endpoint
from ottla.cli.graduate.steps import Graduation, read_state
from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.internal_topics.kraft_records import SnapshotId, snapshot_name
from ottla.protocol.internal_topics.metadata_records import parse_uuid
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.records import iter_records

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "transaction.state.log.num.partitions": "3",
}
QUORUM = snapshot_name(SnapshotId(0, 0))


def serve(directory, between=lambda broker: None, **options):
    """Start a broker, do something, stop it. Return (topics, ids, configs, producer ids, features, epochs)."""

    async def live():
        listener = Listener("PLAINTEXT", "127.0.0.1", 0)
        server = Server(Config(log_dirs=str(directory), listeners=(listener,), **options))
        await server.start()
        between(server.broker)
        image = server.broker.cluster.image
        topics = {name: (topic.topic_id, topic.partition_count, topic.configs) for name, topic in image.topics.items()}
        await server.stop()
        return topics, image.next_producer_id, image.features, server.broker.cluster.node_id

    return asyncio.run(live())


def fill(broker):
    cluster = broker.cluster
    create_topic(cluster, "ledger", 2, {"cleanup.policy": "compact"})
    create_topic(cluster, "audit", 1)
    create_internal_topic(cluster, "__transaction_state")
    next_producer_id(cluster)
    for topic in cluster.topics.values():
        for index in range(topic.partition_count):
            cluster.partition(topic.name, index)


@pytest.fixture
def directory(tmp_path):
    serve(tmp_path / "data", fill, transaction_state_log_num_partitions=3)
    return tmp_path / "data"


@pytest.fixture
def properties(directory, tmp_path):
    def write(**changed):
        path = tmp_path / "server.properties"
        entries = PROPERTIES | {"log.dirs": str(directory)} | {key.replace("_", "."): v for key, v in changed.items()}
        path.write_text("".join(f"{key}={value}\n" for key, value in entries.items() if value is not None))
        return str(path)

    return write


def run(directory, config, *options, node_id=1):
    return CliRunner().invoke(graduate, [str(directory), "--node-id", str(node_id), "--config", config, *options])


def files(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.slow
def test_the_bootstrap_file_has_the_state_of_the_metadata_log(directory, properties):
    before = serve(directory)
    assert run(directory, properties()).exit_code == 0
    image = MetadataImage()
    read_metadata({QUORUM: (directory / "bootstrap.checkpoint").read_bytes()}, image)
    directory_id = parse_uuid((directory / "meta.properties").read_text().split("directory.id=")[1].strip())
    topics = {name: (topic.topic_id, topic.partition_count, topic.configs) for name, topic in image.topics.items()}
    assert (topics, image.next_producer_id, image.features) == before[:3]
    for topic in image.topics.values():
        assert set(topic.leader_epochs) == {1}
        assert {(place.leader, place.replicas, place.directories) for place in topic.registrations} == {
            (1, (1,), (directory_id,))
        }


@pytest.mark.slow
def test_acls_users_and_quotas_go_along(directory, properties):
    given = [
        AccessControlEntryRecord(b"E" * 16, 2, "ledger", 3, "User:alice", "*", 3, 3),
        UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        ClientQuotaRecord((("client-id", None), ("user", "alice")), "producer_byte_rate", 1024.0, False),
        ClientQuotaRecord((("client-id", None), ("user", "alice")), "request_percentage", 50.0, False),
    ]
    serve(directory, lambda broker: change_security(broker.cluster, given))
    assert run(directory, properties()).exit_code == 0
    image = MetadataImage()
    read_metadata({QUORUM: (directory / "bootstrap.checkpoint").read_bytes()}, image)
    assert [*security_records(image)] == given


def test_quorum_of_one_is_made_unless_the_properties_name_the_voters(directory, properties, tmp_path):
    static = shutil.copytree(directory, tmp_path / "static")
    assert run(directory, properties()).exit_code == 0
    made = (directory / "__cluster_metadata-0" / QUORUM).read_bytes()
    controls = [record for at, header in iter_batches(made) for record in iter_records(made, header, at)]
    assert [int.from_bytes(record.key[2:], "big") for record in controls] == [3, 5, 6, 4]
    assert b"CONTROLLER" in controls[2].value and b"127.0.0.1" in controls[2].value
    changed = {"log_dirs": str(static), "controller_quorum_voters": "1@127.0.0.1:9093"}
    assert run(static, properties(**changed)).exit_code == 0
    assert not (static / "__cluster_metadata-0").exists()
    assert read_marker(made, next(iter_batches(made))[1]).control_type == 3


def test_dry_run_changes_nothing(directory, properties):
    before = files(directory)
    done = run(directory, properties(), "--dry-run")
    assert done.exit_code == 0
    assert "Nothing was changed" in done.output
    assert files(directory) == before


@pytest.mark.slow
def test_undo_as_printed_brings_everything_back(directory, properties, monkeypatch):
    (directory / "bootstrap.checkpoint").write_bytes(b"another")
    before = files(directory)
    done = run(directory, properties(node_id="4"), node_id=4)
    assert done.exit_code == 0, done.output
    commands = done.output.partition("in that directory:\n")[2].partition("Note:")[0].partition("Next")[0].splitlines()
    assert len(commands) == 4
    for command in commands:
        name, *arguments = command.split()
        if name == "mv":
            (directory / arguments[0]).replace(directory / arguments[1])
        else:
            assert name == "rm"
            path = directory / arguments[-1]
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    after = files(directory)
    checkpoints = [path for path in before if path.name.endswith("offset-checkpoint")]
    assert {path: data for path, data in after.items() if path not in checkpoints} == {
        path: data for path, data in before.items() if path not in checkpoints
    }
    assert serve(directory)[0].keys() == {"ledger", "audit", "__transaction_state"}


@pytest.mark.slow
def test_another_node_id_becomes_the_directory_s(directory, properties):
    before = serve(directory)
    assert run(directory, properties(node_id="4"), node_id=4).exit_code == 0
    assert serve(directory) == (*before[:3], 4)


@pytest.mark.slow
def test_lower_release_lowers_the_metadata_version(directory, properties):
    assert run(directory, properties(), "--release", "4.0").exit_code == 0
    assert serve(directory)[2]["metadata.version"] == 25


def test_directory_of_a_running_broker_is_refused(directory, properties):
    lock = RealDisk().lock(str(directory / ".lock"))
    done = run(directory, properties())
    lock.release()
    assert (done.exit_code, "locked by process" in done.output) == (1, True)


def test_directory_that_was_not_stopped_cleanly_is_refused(directory, properties):
    (directory / ".kafka_cleanshutdown").unlink()
    before = files(directory)
    done = run(directory, properties())
    assert (done.exit_code, "was not stopped cleanly" in done.output) == (1, True)
    assert files(directory) == before


def test_damaged_metadata_is_refused(directory, properties):
    log = directory / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    done = run(directory, properties())
    assert (done.exit_code, "cannot be read" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"node_id": "2"}, "set node.id=1"),
        ({"process_roles": "broker"}, "must be broker,controller"),
        ({"log_dirs": "/elsewhere"}, "must be this directory"),
        ({"metadata_log_dir": "/elsewhere"}, "must be this directory"),
        ({"controller_listener_names": None}, "controller.listener.names is not set"),
        ({"controller_quorum_bootstrap_servers": None}, "bootstrap.servers is not set"),
        ({"transaction_state_log_num_partitions": None}, "set transaction.state.log.num.partitions=3"),
    ],
)
def test_properties_that_kafka_would_not_start_with_are_refused(directory, properties, changed, problem):
    done = run(directory, properties(**changed))
    assert (done.exit_code, problem in done.output) == (1, True), done.output


def test_counts_of_internal_topics_that_are_not_there_do_not_matter():
    assert config_problems(PROPERTIES, 1, True, {"ledger": 2}) == []
    assert len(config_warnings(PROPERTIES, {"ledger": 2})) == 3
    assert config_warnings(PROPERTIES, {"__transaction_state": 3, "__consumer_offsets": 50}) == []


@pytest.mark.parametrize(
    ("changed", "endpoint"),
    [
        ({}, Endpoint("CONTROLLER", "127.0.0.1", 9093)),
        ({"listeners": "CONTROLLER://:9093"}, Endpoint("CONTROLLER", "127.0.0.1", 9093)),
        ({"advertised.listeners": "CONTROLLER://kafka-1:29093"}, Endpoint("CONTROLLER", "kafka-1", 29093)),
        ({"controller.quorum.voters": "1@127.0.0.1:9093"}, None),
    ],
)
def test_endpoint_of_the_voter(changed, endpoint):
    assert controller_endpoint(PROPERTIES | changed) == endpoint


class Killed(BaseException):
    """The end of the process by kill -9. No `except Exception` catches it."""


class DyingDisk(RealDisk):
    """A disk that dies before its change number `left`."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def _step(self):
        if self.left == 0:
            raise Killed
        self.left -= 1

    def write_atomically(self, path, data, sync=True):
        self._step()
        super().write_atomically(path, data, sync)

    def rename(self, old, new):
        self._step()
        super().rename(old, new)

    def make_dir(self, path):
        self._step()
        super().make_dir(path)


def die_after(steps, directory):
    """Return whether the graduation died. It makes `steps` changes before."""
    disk = DyingDisk(steps)
    try:
        Graduation(disk, str(directory), read_state(disk, str(directory)), 4, 30).run(
            Endpoint("C", "localhost", 9093), 7
        )
    except Killed:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("again", ["served", "graduated"])
def test_killed_graduation_leaves_everything_to_ottla_and_can_be_run_again(directory, properties, tmp_path, again):
    (directory / "bootstrap.checkpoint").write_bytes(b"another")
    before = serve(directory)
    steps = 0
    while True:
        copy = shutil.copytree(directory, tmp_path / f"killed-{steps}")
        died = die_after(steps, copy)
        if again == "graduated" and died:
            assert not die_after(1000, copy)
        assert serve(copy)[:3] == before[:3], steps
        if not died:
            break
        steps += 1
    assert steps >= 6
