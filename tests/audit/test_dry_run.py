"""`--dry-run` of an audit of a cluster: what would be read, and the rights that are missing."""

import json

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from click.testing import CliRunner

from ottla.audit.dry_run import ASSUMED_RATE, DryRun, MissingRight, principal_of
from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.requests import codec
from ottla.spark_jobs.command_lines import audit as audit_command
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from ottla.wire.address import KafkaAddress
from ottla.wire.connection import BlockingConnection
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker

CASE = "hanging-transaction"
COORDINATORS = "__transaction_state"
HERE = {case.name: case for case in CASES}
TOPIC, TRANSACTIONAL_ID, CLUSTER = 2, 5, 4
READ, DESCRIBE, DESCRIBE_CONFIGS = 3, 8, 10


@pytest.fixture(scope="module")
def case_folder(tmp_path_factory):
    return write_files(files_of(HERE[CASE]), tmp_path_factory.mktemp("case")) / "data"


@pytest.fixture(scope="module")
def hanging(case_folder):
    with ThreadBroker(case_folder, now_ms=BEGIN_MS, **KEEPING) as broker:
        yield broker


def run(*arguments):
    return CliRunner().invoke(audit_command, [*map(str, arguments), "--dry-run", "--run-on", "here"])


def rows_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_partitions_and_their_sizes_are_listed(hanging):
    result = run(f"kafka://{hanging.bootstrap}", "--format", "json")
    *partitions, totals = rows_of(result)
    assert result.exit_code == 0
    assert {one["topic"] for one in partitions} == {CASE, COORDINATORS}
    assert all(one["bytes"] for one in partitions if one["end"] > one["start"])
    assert totals["bytes"] == sum(one["bytes"] or 0 for one in partitions)
    assert (totals["partitions"], totals["unread"], totals["may_read_all"]) == (len(partitions), 0, True)
    assert (totals["bytes_per_second"], totals["rate"]) == (100_000_000, "assumed")


def test_the_text_names_the_rate_of_the_estimate(hanging):
    address = f"kafka://{hanging.bootstrap}"
    assumed = run(address).stdout
    assert "100,000,000 bytes per second, an assumption" in assumed
    assert f"{CASE}-0" in assumed and "No record was read." in assumed
    limited = run(address, "--max-bytes-per-second", "1K").stdout
    assert "1,000 bytes per second, the limit of --max-bytes-per-second" in limited
    assert "no record is read, because" in run(address, "--checks", "hanging").stdout


def test_a_directory_has_no_dry_run(case_folder):
    result = run(case_folder)
    assert result.exit_code == 2
    assert result.stderr == "ottla audit: --dry-run is for clusters: name one, such as kafka://HOST:PORT\n"


def test_a_topic_that_does_not_exist_is_one_line(hanging):
    result = run(f"kafka://{hanging.bootstrap}", "--topics", "nope")
    assert result.exit_code == 2
    assert "no topic matches nope" in result.stderr and len(result.stderr.splitlines()) == 1


def create(bootstrap, *rights):
    """Create ACLs that allow every user to do (resource type, name, operation)."""
    host, _, port = bootstrap.rpartition(":")
    request = codec.request_class(K.CREATE_ACLS)
    rows = [
        request.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:*",
            host="*",
            operation=operation,
            permission_type=3,
        )
        for kind, name, operation in rights
    ]
    with BlockingConnection(host, int(port)) as connection:
        assert all(row.error_code == 0 for row in connection.send(request(creations=rows)).results)


TOPIC_RIGHTS = [(TOPIC, CASE, READ), (TOPIC, CASE, DESCRIBE_CONFIGS)]
COORDINATOR_RIGHTS = [(TOPIC, COORDINATORS, READ)]
OTHER_RIGHTS = [(TRANSACTIONAL_ID, "*", DESCRIBE), (CLUSTER, "kafka-cluster", DESCRIBE)]


@pytest.fixture
def with_rights(tmp_path):
    """Return a function that audits with some rights, and returns the result."""

    def run_with(rights, *arguments):
        root = write_files(files_of(HERE[CASE]), tmp_path) / "data"
        guarded = KEEPING | {"authorizer_class_name": STANDARD_AUTHORIZER}
        with ThreadBroker(root, now_ms=BEGIN_MS, super_users="User:ANONYMOUS", **guarded) as broker:
            create(broker.bootstrap, *rights)
        with ThreadBroker(root, now_ms=BEGIN_MS, **guarded) as broker:
            return run(f"kafka://{broker.bootstrap}", *arguments), broker.bootstrap

    return run_with


def commands_of(result):
    return [
        row["command"].partition(" --add --allow-principal User:NAME ")[2]
        for row in rows_of(result)
        if "missing" in row
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rights", "missing", "code"),
    [
        ([*TOPIC_RIGHTS, *COORDINATOR_RIGHTS, *OTHER_RIGHTS], [], 0),
        (
            [*COORDINATOR_RIGHTS, *OTHER_RIGHTS],
            [f"--operation Read --topic {CASE}", f"--operation DescribeConfigs --topic {CASE}"],
            2,
        ),
        ([*TOPIC_RIGHTS, *OTHER_RIGHTS], [f"--operation Read --topic {COORDINATORS}"], 2),
        (
            [(TOPIC, CASE, DESCRIBE), *COORDINATOR_RIGHTS, *OTHER_RIGHTS],
            [f"--operation Read --topic {CASE}", f"--operation DescribeConfigs --topic {CASE}"],
            2,
        ),
        ([*TOPIC_RIGHTS, *COORDINATOR_RIGHTS, OTHER_RIGHTS[1]], ["--operation Describe --transactional-id '*'"], 0),
        ([*TOPIC_RIGHTS, *COORDINATOR_RIGHTS, OTHER_RIGHTS[0]], ["--operation Describe --cluster"], 0),
    ],
    ids=["all", "hidden", "no coordinators", "no read", "hidden ids", "no cluster"],
)
def test_each_missing_right_is_a_command(with_rights, rights, missing, code):
    result, bootstrap = with_rights(rights, "--topics", CASE, "--format", "json")
    assert commands_of(result) == missing
    assert result.exit_code == code
    assert all(f"--bootstrap-server {bootstrap} " in row["command"] for row in rows_of(result) if "missing" in row)
    sizes = [row["bytes"] for row in rows_of(result) if row.get("topic") == CASE and "unread" not in row]
    assert all((size is None) == ("--operation Describe --cluster" in missing) for size in sizes)


@pytest.mark.slow
def test_the_text_has_the_commands_with_their_purpose(with_rights):
    result, bootstrap = with_rights([], "--topics", CASE)
    assert result.exit_code == 2
    command = f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal User:NAME --operation Read"
    assert f"{command} --topic {CASE}   # to read its records\n" in result.stdout
    assert "(the brokers give no size" not in result.stdout


@pytest.mark.slow
def test_a_readable_topic_without_a_right_that_checks_need_is_listed(with_rights):
    result, _ = with_rights([TOPIC_RIGHTS[0], *COORDINATOR_RIGHTS], "--topics", CASE)
    assert f"{CASE}-0" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "resource"),
    [
        (["--topics", f"{CASE},audit-*"], "--topic audit- --resource-pattern-type prefixed"),
        (["--topics", f"{CASE},*-audit"], "--topic '*'"),
        ([], "--topic '*'"),
    ],
)
def test_a_user_that_sees_no_topic_gets_the_rights_of_its_globs(with_rights, arguments, resource):
    result, _ = with_rights([], *arguments, "--format", "json")
    assert (result.exit_code, result.stderr) == (2, "")
    assert f"--operation Read {resource}" in commands_of(result)


def test_a_command_names_the_user_of_the_properties(tmp_path):
    path = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={module} username=alice password=hunter2;\n"
    )
    address = KafkaAddress((("b", 1),), str(path))
    right = MissingRight(AclOperation.READ, ResourceType.TOPIC, "a b", "to read its records", True)
    found = DryRun(str(address), [], [right], principal_of(address), ASSUMED_RATE, True)
    expected = "kafka-acls.sh --bootstrap-server b:1 --add --allow-principal User:alice --operation Read --topic 'a b'"
    assert found.command(right) == expected
    assert not found.may_read_all
