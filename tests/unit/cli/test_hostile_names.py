"""Hostile names in every command and each format: they move no cursor and forge no line."""

import io
import json
import subprocess
import sys
import unicodedata

import pytest
from click.testing import CliRunner
from kafka import OffsetAndMetadata, TopicPartition

from ottla.audit.checks.finding import Finding
from ottla.cli.main import main
from ottla.demo.screen import Screen
from ottla.printable import html_text, printable, shell_line, shell_word
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import NewRecord
from ottla.protocol.requests import codec
from ottla.testkit.corpus.case import Case, write_case
from ottla.testkit.corpus.producer import V1, Producer
from ottla.testkit.kit.clients import Clients
from ottla.testkit.kit.pool import BrokerPool
from ottla.testkit.kit.wire import KafkaError
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

# ANSI and OSC, a forged line, C1, bidi, zero width, a tag of HTML, markup of rich, quotes of a shell.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\nottla: all is sound\r\x9b31m\u202etxt\u200b\x7f<b onload='x'>[red]'\"`$(reboot)"
HOSTILE += "x" * 300
CASE = "hostile"


def _script(script):
    script.topic()
    producer = Producer(script, HOSTILE, V1)
    producer.send("aborted 1")
    producer.abort()
    producer.send_late("open 1")
    script.send(NewRecord(HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()),)))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    case = Case(CASE, "", "", (), _script, {"transaction_partition_verification_enable": False})
    write_case(case, place)
    data = place / CASE / "data"
    named = data / f"{HOSTILE.replace('/', '').partition('x' * 10)[0]}-0"
    named.mkdir()
    (named / "00000000000000000000.log").write_bytes((data / f"{CASE}-0" / "00000000000000000000.log").read_bytes())
    return data


def is_clean(text):
    return not [one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def assert_harmless(text):
    assert is_clean(text), [one for one in text if not is_clean(one)]
    assert not [line for line in text.splitlines() if line.startswith("ottla: all is sound")]


DIRECTORY_COMMANDS = {
    "audit": [["--all"], ["--format", "json"]],
    "inspect": [["--all"], ["--verify"], ["--format", "json"]],
    "dump": [[], ["--records"], ["--format", "json"], ["--records", "--format", "json"]],
    "repair": [["--dry-run"], ["--dry-run", "--format", "json"]],
}


@pytest.mark.parametrize(
    ("command", "options"), [(command, options) for command, all_of in DIRECTORY_COMMANDS.items() for options in all_of]
)
def test_a_directory(directory, command, options):
    if command == "audit":
        pytest.importorskip("numba", reason="the audit extra is not installed")
    done = CliRunner().invoke(main, [command, str(directory), *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    # A folder that no topic can have is not repaired, and without a finding nothing is named.
    assert "owned" in done.stdout or command == "repair" or (command, options[:1]) == ("audit", ["--format"])
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    if "json" in options and command in ("inspect", "repair"):
        json.loads(done.stdout)
    elif "json" in options:
        assert all(json.loads(line) for line in done.stdout.splitlines())


def test_a_finding_in_json():
    line = Finding("hanging", "error", HOSTILE, 0, 1, 2, HOSTILE, HOSTILE, HOSTILE).line()
    assert_harmless(line)
    assert json.loads(line)["transactional_id"] == HOSTILE


def test_the_report_in_html(directory, tmp_path):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    report = tmp_path / "report.html"
    CliRunner().invoke(main, ["audit", str(directory), "--all", "--report", str(report)])
    text = report.read_text("utf-8")
    assert_harmless(text)
    assert "owned" in text
    assert "<b onload" not in text
    assert "onload='x'" not in text


@pytest.mark.parametrize("command", sorted({"dump", "inspect", "repair", "audit", "export"}))
def test_an_error_names_a_hostile_path_in_one_line(tmp_path, command):
    if command in ("audit", "export"):
        pytest.importorskip("numba", reason="the audit extra is not installed")
    place = tmp_path / "\x1b[31m\nforged"
    place.mkdir()
    done = CliRunner().invoke(main, [command, str(place), *([str(tmp_path / "out")] if command == "export" else [])])
    assert done.exit_code == 2
    assert_harmless(done.stderr)
    assert "\\x1b[31m\\nforged" in done.stderr
    assert len(done.stderr.splitlines()) == 1


SECURED = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SECURED |= {"super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Start a broker with an open transaction, a group, an ACL and a fault, all of hostile names."""
    pool = BrokerPool(tmp_path_factory.mktemp("live"))
    broker = pool(properties=SECURED)
    clients = Clients(broker)
    try:
        broker.create_topic("ledger")
        clients.producer().send("ledger", HOSTILE.encode()).get(EVENT_TIMEOUT_S)
        producer = clients.transactional_producer(HOSTILE, client_id=HOSTILE)
        producer.begin_transaction()
        producer.send("ledger", HOSTILE.encode()).get(EVENT_TIMEOUT_S)
        place = TopicPartition("ledger", 0)
        clients.consumer(group_id=HOSTILE).commit({place: OffsetAndMetadata(0, HOSTILE, -1)})
        add_acl(broker)
        where = ("--where", f"transactional_id={HOSTILE}")
        invoke("ctl", "--admin", broker.process.admin_url, "fault", "add", "drop", "--api", "EndTxn", *where)
        yield broker
    finally:
        broker.faults.clear()
        clients.close()
        pool.close()


def add_acl(broker):
    request = codec.request_class(ApiKey.CREATE_ACLS)
    words = {"resource_type": 2, "resource_name": HOSTILE, "resource_pattern_type": 3}
    words |= {"principal": f"User:{HOSTILE}", "host": "*", "operation": 3, "permission_type": 2}
    with BlockingConnection(broker.host, broker.port, timeout_s=EVENT_TIMEOUT_S) as connection:
        reply = connection.send(request(creations=[request.AclCreation(**words)]), 2)
    assert [row.error_code for row in reply.results] == [0]


def invoke(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    return done


ASKS_A_CLUSTER = {
    "txn why": (["txn", "why", "ledger", 0], True),
    "txn why of a partition that is not there": (["txn", "why", HOSTILE, 0], True),
    "txn orphans": (["txn", "orphans"], False),
    "txn orphans of a topic": (["txn", "orphans", "--topic", HOSTILE], True),
    "top": (["top", "--once"], True),
    "acl why": (["acl", "why", "--principal", f"User:{HOSTILE}", "--operation", "Read", "--resource"], True),
}


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["text", "json"])
@pytest.mark.parametrize("name", ASKS_A_CLUSTER)
def test_commands_that_ask_a_cluster(live, name, format_name):
    words, names_it = ASKS_A_CLUSTER[name]
    if name == "acl why":
        words = [*words, f"Topic:{HOSTILE}"]
    done = invoke(*words, "-b", live.bootstrap, "--format", format_name)
    assert ("owned" in done.output) is names_it
    if format_name == "json" and done.stdout:
        json.loads(done.stdout)


ASKS_AN_ADMIN_PORT = {
    "status": (["status"], True),
    "faults": (["fault", "list"], True),
    "fault that cannot be": (["fault", "add", HOSTILE], True),
    "condition that is none": (["fault", "add", "drop", "--where", f"{HOSTILE}=1"], True),
    "logger that is not there": (["loglevel", "set", HOSTILE, "DEBUG"], True),
    "level that is none": (["loglevel", "set", "ottla.broker", HOSTILE], False),
}


@pytest.mark.parametrize("format_name", ["text", "json"])
@pytest.mark.parametrize("name", ASKS_AN_ADMIN_PORT)
def test_ctl(live, name, format_name):
    words, names_it = ASKS_AN_ADMIN_PORT[name]
    done = invoke("ctl", "--admin", live.process.admin_url, *words, "--format", format_name)
    assert ("owned" in done.output) is names_it


@pytest.mark.parametrize("format_name", ["text", "json"])
def test_trace(live, format_name):
    words = ["trace", "--admin", live.process.admin_url, "--api", "FindCoordinator", "--count", "1"]
    command = [sys.executable, "-m", "ottla.cli.main", *words, "--format", format_name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("listening")
        live.wire.committed(HOSTILE)
        told, more = process.communicate(timeout=EVENT_TIMEOUT_S)
    assert "owned" in told
    assert_harmless(told)
    assert_harmless(more)


def test_the_plan_of_a_proxy(live, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"at": "request", "do": "drop", "where": {"topic": HOSTILE}}))
    command = [sys.executable, "-m", "ottla.cli.main", "proxy", "--upstream", live.bootstrap, "--faults", str(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("ready")
        process.terminate()
        told, more = process.communicate(timeout=EVENT_TIMEOUT_S)
    assert "owned" in more
    assert_harmless(told)
    assert_harmless(more)


def test_failure_reports_of_the_test_kit(live):
    reports = [live.describe()]
    with pytest.raises(AssertionError) as open_ids:
        live.assert_no_open_transactions(wait_s=0)
    with pytest.raises(AssertionError) as missing:
        live.assert_committed("ledger", [])
    with pytest.raises(TimeoutError) as late:
        live.wait_until_lag_zero(HOSTILE, topics=["ledger"], timeout_s=0)
    with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION") as refused:
        live.create_topic(HOSTILE)
    reports += [str(each.value) for each in (open_ids, missing, late, refused)]
    reports.append(repr(live.faults.on("EndTxn", optional=True, group=HOSTILE).drop_connection()))
    for report in reports:
        assert "owned" in report
        assert_harmless(report)


def test_the_demo():
    stream = io.StringIO()
    screen = Screen(stream)
    screen.facts([("name", HOSTILE)])
    screen.step(HOSTILE, HOSTILE)
    screen.table(["name"], [[HOSTILE]])
    screen.quote(HOSTILE)
    screen.claim(True, HOSTILE)
    screen.claim(False, HOSTILE)
    screen.summary()
    assert_harmless(stream.getvalue())


@pytest.mark.parametrize(
    "name", ["plain", "with blank", "'", HOSTILE, "\udcff\udc80", "back\\slash\n", "$HOME `x`", "-\u2028", "\U000e0041"]
)
def test_a_word_for_a_shell_is_the_name_again(name):
    word = shell_word(name)
    assert word.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert said == name.encode("utf-8", "surrogateescape")


def test_a_name_with_a_nul_names_nothing_else():
    assert "\0" not in shell_word("a\0b")
    assert shell_word("a\0b") not in ("a", "'a'", "$'a'")
    assert shell_line(["ottla", "a b"]) == "ottla 'a b'"


def test_a_text_for_html_has_no_control_characters_and_no_markup():
    assert html_text("<\x1b&\u202e\"'") == "&lt;\\x1b&amp;\\u202e&quot;&#x27;"
    assert printable("\ud800\n") == "\\ud800\\n"
