"""`ottla ctl` against a broker that allows control by tests, and one that does not."""

import http.client
import json
import socket
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from served import Served

from ottla.cli.main import main
from tests.timeout import EVENT_TIMEOUT_S
from tests.unit.cli.test_terminal import check_document

TOKEN = "correct-horse-battery-staple"


class Steered:
    """A broker, and `ctl` on its port."""

    def __init__(self, folder, *more):
        self.served = Served(folder / "data", "--admin-listen", "127.0.0.1:0", *more).ready()
        self.url = self.served.process.stdout.readline().removeprefix("admin ").strip()

    def ctl(self, *arguments, **environment):
        environment = {"OTTLA_ADMIN": self.url} | environment
        return CliRunner().invoke(main, ["ctl", *arguments], env=environment, catch_exceptions=False)

    def read(self, *arguments):
        """Return the JSON that a command prints."""
        done = self.ctl(*arguments, "--format", "json")
        assert (done.exit_code, done.stderr) == (0, "")
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def brokers():
    brokers = []
    yield brokers
    for one in brokers:
        one.served.end()
        one.served.process.communicate()


@pytest.fixture(scope="module")
def steered_once(tmp_path_factory, brokers):
    brokers.append(Steered(tmp_path_factory.mktemp("steered"), "--test-control"))
    return brokers[-1]


@pytest.fixture
def broker(steered_once):
    yield steered_once
    steered_once.ctl("fault", "clear")
    steered_once.ctl("clock", "reset")


@pytest.fixture(scope="module")
def plain(tmp_path_factory, brokers):
    folder = tmp_path_factory.mktemp("plain")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    brokers.append(Steered(folder, "--admin-token-file", str(folder / "token")))
    brokers[-1].token_file = str(folder / "token")
    return brokers[-1]


@pytest.mark.slow
def test_status_describes_the_broker_and_its_faults(broker):
    text = broker.ctl("status").stdout
    assert f", serves PLAINTEXT://127.0.0.1:{broker.served.port}." in text.splitlines()[0]
    assert "  transaction.version      2" in text
    assert "faults: none" in text
    document = broker.read("status")
    check_document("ottla ctl status", document)
    assert document["broker"][0]["data_dir"] == str(broker.served.data_dir)
    assert document["broker"][0]["test_control"] is True


def test_status_prints_the_start_time_of_the_broker(broker):
    started = datetime.fromtimestamp(broker.read("status")["broker"][0]["started_ms"] / 1000, UTC)
    assert f"It was started at {started:%Y-%m-%d %H:%M:%S} UTC." in broker.ctl("status").stdout


def test_the_port_may_be_named_in_front_of_the_command_too(broker, plain, tmp_path):
    wrong = "http://127.0.0.1:1"
    for arguments in (
        ["--admin", broker.url, "status"],
        ["status", "--admin", broker.url],
        ["--admin", wrong, "status", "--admin", broker.url],
        ["--admin", broker.url, "clock", "show"],
    ):
        done = broker.ctl(*arguments, OTTLA_ADMIN=wrong)
        assert done.exit_code == 0, (arguments, done.stderr)
    named = ["--admin", plain.url, "--admin-token-file", plain.token_file]
    assert broker.ctl(*named, "status").exit_code == 0
    (tmp_path / "token").write_text(TOKEN.upper())
    (tmp_path / "token").chmod(0o600)
    assert broker.ctl(*named, "status", "--admin-token-file", str(tmp_path / "token")).exit_code == 1


def test_time_is_moved_stopped_and_given_back(broker):
    moved = broker.read("clock", "advance", "7d")
    check_document("ottla ctl clock", moved)
    (clock,) = moved["clock"]
    assert 604_700_000 < clock["ahead_ms"] <= 604_800_000 and not clock["frozen"]
    assert moved["answer"].endswith(" UTC for the broker: 7 d ahead of the machine.")
    (stopped,) = broker.read("clock", "freeze")["clock"]
    (later,) = broker.read("clock", "advance", "1m")["clock"]
    assert stopped["frozen"] and later["now_ms"] == stopped["now_ms"] + 60_000
    assert ", and stopped." in broker.ctl("clock", "show").stdout
    assert not broker.read("clock", "resume")["clock"][0]["frozen"]
    assert broker.read("clock", "reset")["answer"].endswith(": the time of the machine.")


def test_an_admin_connection_survives_an_advance_of_the_clock(broker):
    connection = http.client.HTTPConnection(broker.url.removeprefix("http://"), timeout=EVENT_TIMEOUT_S)
    connection.request("GET", "/v1/clock")
    before = connection.getresponse()
    before.read()
    socket_before = connection.sock
    broker.read("clock", "advance", "7d")
    connection.request("GET", "/v1/clock")
    assert connection.getresponse().status == 200
    assert connection.sock is socket_before  # else http.client would have connected again
    connection.close()


def test_the_level_of_one_logger_is_set_listed_and_reset(broker):
    heard = broker.read("loglevel", "set", "ottla.broker.group", "debug", "--for", "1h")
    check_document("ottla ctl loglevel", heard)
    (row,) = heard["levels"]
    assert (row["logger"], row["level"], row["then"]) == ("ottla.broker.group", "DEBUG", None)
    assert row in broker.read("loglevel", "show")["levels"]
    assert broker.read("loglevel", "reset", "ottla.broker.group")["levels"][0]["level"] == "INFO"
    refused = broker.ctl("loglevel", "set", "ottla.broker.gruop", "debug")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "ottla: There is no logger ottla.broker.gruop; did you mean ottla.broker.group?\n"


def test_a_fault_is_added_listed_and_removed(broker):
    condition = ("--where", "transactional_id=tx-1", "--where", "partition=3")
    added = broker.read(
        "fault",
        "add",
        "reply",
        "--api",
        "EndTxn",
        "--error",
        "NOT_COORDINATOR",
        "--nth",
        "2",
        "--times",
        "always",
        *condition,
    )
    check_document("ottla ctl fault", added)
    (fault,) = added["faults"]
    assert (fault["do"], fault["at"], fault["api"], fault["error"]) == ("reply", "request", "EndTxn", "NOT_COORDINATOR")
    assert (fault["nth"], fault["times"], fault["hits"]) == (2, None, 0)
    assert fault["where"] == "transactional_id=tx-1, partition=3"
    assert broker.read("fault", "list")["faults"] == [fault]
    assert broker.read("fault", "remove", str(fault["id"]))["faults"] == [fault]
    assert broker.read("fault", "list")["faults"] == []


def test_a_plan_is_loaded_as_a_whole(broker, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: marker, do: hold}\n- {at: sync, do: delay, ms: 5}\n")
    held, slow = broker.read("fault", "load", str(plan))["faults"]
    assert (held["do"], slow["ms"]) == ("hold", 5)
    assert broker.read("fault", "release", str(held["id"]))["faults"][0]["held"] == 0
    refused = broker.ctl("fault", "release", str(slow["id"]))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == f"ottla: Fault {slow['id']} holds nothing: it does 'delay'\n"
    plan.write_text("- {at: marker, do: hold}\n- {at: marker, do: held}\n")
    refused = broker.ctl("fault", "load", str(plan))
    assert refused.exit_code == 2
    assert refused.stderr.startswith(
        f"ottla: {plan}: fault 2: 'held' is an unknown action at 'marker': did you mean hold?"
    )
    assert len(broker.read("fault", "list")["faults"]) == 2


def test_faults_that_never_struck_can_fail_a_job(broker):
    (fault,) = broker.read("fault", "add", "drop", "--api", "EndTxn")["faults"]
    cleared = broker.ctl("fault", "clear", "--expect-hits")
    assert (cleared.exit_code, cleared.stderr) == (1, f"ottla: never fired: fault {fault['id']}\n")
    assert broker.ctl("fault", "clear", "--expect-hits").exit_code == 0


def test_a_refusal_by_the_broker_is_printed_in_one_line(broker):
    refused = broker.ctl("fault", "add", "replly", "--error", "NOT_COORDINATOR")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "ottla: 'replly' is an unknown action at 'request': did you mean reply?\n"
    missing = broker.ctl("fault", "remove", "4711")
    assert (missing.exit_code, missing.stderr.splitlines()) == (1, [missing.stderr.strip()])
    assert "There is no fault 4711" in missing.stderr


@pytest.mark.slow
def test_a_stop_does_not_wait_for_who_waits_on_the_port(tmp_path):
    own = Steered(tmp_path, "--test-control")
    (fault,) = own.read("fault", "add", "drop")["faults"]
    waiting = http.client.HTTPConnection(own.url.removeprefix("http://"), timeout=EVENT_TIMEOUT_S)
    waiting.request("GET", f"/v1/faults/{fault['id']}?hits=1&wait_ms=60000")
    own.ctl("status")  # so that it has been read
    assert own.served.end() == 0
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        waiting.getresponse()
    waiting.close()
    assert "Traceback" not in own.served.process.communicate()[1]


def test_ctl_reports_a_broker_without_test_control(plain):
    token = {"OTTLA_ADMIN_TOKEN_FILE": plain.token_file}
    refused = plain.ctl("clock", "advance", "7d", **token)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == f"ottla: {plain.url} cannot do that: the broker was started without --test-control\n"
    document = json.loads(plain.ctl("status", "--format", "json", **token).stdout)
    check_document("ottla ctl status", document)
    assert document["broker"][0]["test_control"] is False


def test_a_missing_token_is_an_error_and_a_given_one_is_not_printed(plain):
    refused = plain.ctl("status")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "ottla: The token is missing or wrong: send Authorization: Bearer TOKEN\n"
    let_in = plain.ctl("status", "--admin-token-file", plain.token_file)
    assert let_in.exit_code == 0 and TOKEN not in let_in.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("clock", "advance", "7"),
        ("clock", "advance"),
        ("fault", "add"),
        ("loglevel", "set", "root"),
        ("loglevel", "set", "root", "DEBUG", "--for", "5"),
        ("fault", "add", "drop", "--where", "topic"),
        ("fault", "add", "drop", "--times", "often"),
        ("fault", "remove", "one"),
        ("fault", "load", "nowhere.yaml"),
        ("status", "--admin", "localhost"),
        ("status", "--admin", "https://localhost:9644"),
        ("status", "--admin", "http://localhost:port"),
        ("status", "--admin-token-file", "nowhere"),
    ],
)
def test_invalid_arguments_of_ctl_exit_with_2(broker, arguments):
    assert broker.ctl(*arguments).exit_code == 2


def test_an_unreachable_admin_port_is_one_line_of_error(broker):
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        done = broker.ctl("status", "--admin", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"ottla: no answer from {url}: Connection refused. Name the port of `ottla serve --admin-listen` with --admin\n"
    )


def test_the_port_for_kafka_clients_is_no_admin_port(broker):
    done = broker.ctl("status", "--admin", f"127.0.0.1:{broker.served.port}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ottla: no answer from http://127.0.0.1:{broker.served.port}: ")


@pytest.mark.slow
def test_a_frozen_broker_thaws_once(tmp_path, brokers):
    frozen = Steered(tmp_path, "--as-pulled")
    brokers.append(frozen)
    done = frozen.ctl("thaw")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("The broker has thawed")
    again = frozen.ctl("thaw")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "this broker is not frozen" in again.stderr
