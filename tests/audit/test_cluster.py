"""An audit of a cluster over the wire finds what an audit of its files finds."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from click.testing import CliRunner
from kafka import KafkaAdminClient

from ottla.audit import pipeline, tasks
from ottla.audit.pipeline import audit
from ottla.audit.report.open_now import open_rows
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.scan.listing import UnreadableDirectory
from ottla.spark_jobs.command_lines import audit as audit_command
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from ottla.wire.address import KafkaAddress, parse_kafka_address
from tests.conformance.open_transactions import FOREIGN_PRODUCER_ID, Client
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker

# Before the timeout of open transactions.
SOON_MS = 600_000
HERE = {case.name: case for case in CASES}
# Files have faults that a broker does not show: it repairs them, or does not start on them.
OF_FILES = {"index"}
# Files still have what is below the start of the log, and snapshots know of it; a broker sends neither.
BELOW_THE_START = {"log-starts-in-an-aborted-transaction", "everything-deleted"}
# The coordinator of this case writes the missing marker when it starts.
SERVED = [case for case in CASES if case.name != "torn-transaction"]


def audit_of(directories, address=None, checks=None, **given):
    chosen = {} if checks is None else {"checks": checks}
    return audit(ThreadRunner(1), Request(directories, (), BEGIN_MS + SOON_MS, address=address, **chosen, **given))


def over_the_wire(broker, checks=None, **given):
    address = parse_kafka_address(f"kafka://{broker.bootstrap}")
    return audit_of((str(address),), address, checks, **given)


def facts_of(found, *, is_whole=True):
    """Return what both ways to read must agree on; `is_whole`: no transaction reaches below the start of a log."""
    return {
        "findings": sorted(
            (one.check, one.severity, one.place)
            for one in found.findings
            if one.check not in OF_FILES and (one.check, one.severity) != ("gaps", "info")
            if is_whole or one.severity != "info"
        ),
        "open": sorted(
            (row.open.topic, row.open.first_offset, row.open.verdict.value, row.since) for row in open_rows(found)
        ),
        "partitions": {
            one.name: (
                *(one.log_start, one.log_end, one.last_stable_offset, one.committed, one.opened),
                one.aborted if is_whole else one.aborted.records,
            )
            for one in found.partitions
        },
    }


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_the_findings_over_the_wire_are_those_of_the_files(case, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        wire = over_the_wire(broker)
    is_whole = case.name not in BELOW_THE_START
    assert facts_of(wire, is_whole=is_whole) == facts_of(audit_of((str(root),)), is_whole=is_whole)


def test_a_transaction_that_began_below_the_start_of_the_log_is_found(tmp_path):
    """Both partitions begin within it. The second has no other record of it."""
    with ThreadBroker(tmp_path, transaction_partition_verification_enable=False) as broker:
        client = Client(broker.bootstrap)
        topic = client.create_topic("ledger", 3)
        for partition in (0, 1):
            client.orphan(topic, partition)
            client.produce(topic, partition, count=3)
        client.produce(topic, 0, "unknown-to-all", FOREIGN_PRODUCER_ID, 0, sequence=1)
        held = client.begin("held", [(topic, 2)])
        client.produce(topic, 2, "held", *held, sequence=1)
        for partition in (0, 1, 2):
            client.delete_records(topic, partition, 1)
        found = over_the_wire(broker)
        client.close()
    told = {one.partition: (str(one.verdict), one.first_offset, one.records) for one in found.open_transactions}
    assert told == {0: ("forgotten", 0, 1), 1: ("forgotten", 0, 0), 2: ("in time", 0, 1)}
    assert [one.last_stable_offset for one in found.partitions if one.log.topic == topic] == [1, 1, 1]
    # These transactions began after the audit, by its own time.
    assert [one.message for one in found.findings if one.severity == "warning"] == []


def test_only_a_partition_whose_records_were_deleted_is_read_again(tmp_path, monkeypatch):
    scanned = Counter()

    def scan(work):
        place = work.part.topic, work.part.number
        scanned[place] += 1
        if place == ("ledger", 1) and scanned[place] < 5:
            client.delete_records(*place, client.produce(*place) + 1)
            client.produce(*place)
        if place == ("deleted", 0):
            admin.delete_topics(["deleted"])
        return tasks.scan(work)

    with ThreadBroker(tmp_path) as broker:
        client, admin = Client(broker.bootstrap), KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        for name, count in (("ledger", 2), ("deleted", 1)):
            client.create_topic(name, count)
            for number in range(count):
                client.produce(name, number, count=3)
        monkeypatch.setattr(pipeline, "tasks", SimpleNamespace(**{**vars(tasks), "scan": scan}))
        found = over_the_wire(broker)
        admin.close()
        client.close()
    assert scanned == {("ledger", 0): 1, ("ledger", 1): 5, ("deleted", 0): 1}
    assert [(one.name, one.log_start, one.log_end) for one in found.partitions] == [
        ("ledger-0", 0, 3),
        ("ledger-1", 10, 11),
    ]
    assert found.source.unread == ["deleted-0: it was deleted while it was read"]


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    root = write_files(files_of(HERE["hanging-transaction"]), tmp_path_factory.mktemp("case")) / "data"
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        yield broker


def test_open_transactions_are_judged_without_reading_a_record(hanging):
    found = over_the_wire(hanging, checks=("hanging",))
    assert not found.source.has_records
    assert sum(one.batches for one in found.partitions) == 0
    (one,) = found.at_least("error")
    assert (one.check, one.place) == ("hanging", "hanging-transaction-0@2")
    assert one.action.startswith(f"kafka-transactions.sh --bootstrap-server {hanging.bootstrap} abort")


def test_the_report_of_a_cluster_lists_its_limits(hanging):
    found = over_the_wire(hanging)
    assert [one.check for one in found.source.not_checked] == ["index"]
    assert {one.check for one in found.source.reduced} == {"gaps", "replicas"}
    assert found.source.read_until_ms == BEGIN_MS + SOON_MS
    assert over_the_wire(hanging, checks=("damage",)).source.not_checked == ()


def run(*arguments):
    return CliRunner().invoke(audit_command, [*map(str, arguments)])


def test_the_command_names_the_source_and_its_limits(hanging):
    result = run(f"kafka://{hanging.bootstrap}", "--format", "json", "--run-on", "here")
    assert result.exit_code == 1
    *_, last = result.stdout.splitlines()
    source = json.loads(last)
    assert source["source"] == f"kafka://{hanging.bootstrap}"
    assert source["read_until"]["hanging-transaction-0"] > 2
    assert {one["check"] for one in source["not_checked"]} == {"index"}


@pytest.mark.parametrize(("required", "code"), [("hanging,damage", 1), ("index", 2), ("gaps", 2)])
def test_a_required_check_that_was_not_made_completely_is_exit_2(hanging, required, code):
    result = run(f"kafka://{hanging.bootstrap}", "--require", required, "--run-on", "here")
    assert result.exit_code == code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["kafka://127.0.0.1:1"], "127.0.0.1:1: nothing listens there"),
        (["kafka://nohost.invalid:9092"], "nohost.invalid:9092: no such host"),
        (["kafka://127.0.0.1"], "127.0.0.1 is not HOST:PORT"),
        (["kafka://user:secret@127.0.0.1:9092"], "an address has no user, secret or option"),
        (["kafka://127.0.0.1:1", "/tmp"], "name one kafka:// address alone"),
        (["kafka://127.0.0.1:1", "kafka://127.0.0.1:2"], "name one kafka:// address alone"),
        (["kafka://127.0.0.1:1", "--since", "2020-01-01"], "--since needs the producer snapshots"),
        (["kafka://127.0.0.1:1", "--max-bytes-per-second", "fast"], "not a number of bytes such as"),
        (["kafka://127.0.0.1:1", "--command-config", "/no/such/file"], "/no/such/file"),
        (["kafka://127.0.0.1:1", "--require", "everything"], "--require: no check everything"),
    ],
)
def test_a_cluster_that_cannot_be_audited_is_one_line_and_exit_2(arguments, told):
    result = run(*arguments, "--run-on", "here")
    assert result.exit_code == 2
    assert told in result.stderr
    assert "secret@" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_topic_that_is_not_visible_is_one_line_and_exit_2(hanging):
    result = run(f"kafka://{hanging.bootstrap}", "--topics", "nope", "--run-on", "here")
    assert result.exit_code == 2
    assert (
        "no topic matches nope, or this user lacks DESCRIBE on it; it sees __transaction_state, hanging-transaction"
        in result.stderr
    )


def test_a_peer_that_is_not_a_broker_is_refused(tmp_path):
    with pytest.raises(UnreadableDirectory, match="nothing listens there"):
        audit_of(("kafka://127.0.0.1:1",), KafkaAddress((("127.0.0.1", 1),)))
