"""The same tests of a user on a broker of the kit, on an Ottla in another process, and on Apache Kafka."""

import contextlib
import inspect
import re
import socket

import pytest

from ottla.testkit.kit.admin import Admin
from ottla.testkit.kit.remote import RemoteProblem, connect_remote
from tests.conformance.targets import TARGETS
from tests.wire.broker.served import Served
from tests.wire.testkit import test_recipes_anywhere
from tests.wire.testkit.project import run

pytestmark = pytest.mark.slow  # brokers and sessions of their own
TOKEN = "only-for-this-test"


class Elsewhere(Served):
    """A broker with an admin port, whose address is `admin_url`."""

    def __init__(self, directory, *more, **environment):
        super().__init__(directory / "data", "--admin-listen", "127.0.0.1:0", *more, **environment)
        self.ready()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.admin_url = self.process.stdout.readline().split()[1]


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Return a function that starts brokers, which end with the module."""
    with contextlib.ExitStack() as ending:

        def start(*more, **environment):
            started = Elsewhere(tmp_path_factory.mktemp("elsewhere"), *more, **environment)
            ending.callback(started.end)
            return started

        yield start


@pytest.fixture(scope="module")
def elsewhere(serve, tmp_path_factory):
    token = tmp_path_factory.mktemp("token") / "admin.token"
    token.write_text(TOKEN)
    return serve("--admin-token-file", str(token), OTTLA_TEST_CONTROL="true")


def recipes():
    return inspect.getsource(test_recipes_anywhere) + RESTART


def test_a_broker_elsewhere_runs_the_recipes_and_is_as_before(tmp_path, elsewhere):
    with contextlib.closing(connect_remote(elsewhere.bootstrap, elsewhere.admin_url, TOKEN)) as broker:
        broker.create_topic("there-before")
        broker.apply(properties={"message.max.bytes": 5_000})
        before = broker.settings.read_configs(["message.max.bytes"])
        options = (f"--ottla-bootstrap={elsewhere.bootstrap}", f"--ottla-admin={elsewhere.admin_url}")
        code, output = run(tmp_path, recipes() + FAILING, *options, f"--ottla-admin-token={TOKEN}", "-rs")
        assert code == 1 and "1 failed, 5 passed, 3 skipped, 1 error" in output, output
        assert f"ValueError: {elsewhere.bootstrap} lists no option mesage.max.bytes: `ottla configs` has" in output
        assert "cannot change num.partitions from 1 to 7 while it runs: run this test without --ottla-b" in output
        assert "cannot restart it or read its files: run this test without --ottla-bootstrap\n" in output
        assert "the fault 'fail' ends the broker" in output
        assert broker.topics() == {"there-before": 1}
        assert (broker.transactions(), broker.wire.groups()) == ([], [])
        assert broker.transaction_version == 2
        assert broker.settings.read_configs(["message.max.bytes"]) == before
        admin = Admin(elsewhere.admin_url, TOKEN)
        assert admin.get("/v1/faults") == []
        clock = admin.get("/v1/clock")
        assert not clock["frozen"] and abs(clock["ahead_ms"]) < 1000


RESTART = """

def test_a_restart(ottla_broker):
    ottla_broker.restart()
    assert False
"""

FAILING = """
@pytest.mark.ottla(transaction_version=1, properties={"message.max.bytes": 2000})
def test_that_fails(kafka_topic, ottla_broker, ottla_clock, ottla_faults):
    assert ottla_broker.transaction_version == 1
    assert ottla_broker.producer_by_hand(None).send(kafka_topic, bytes(3000)) == 10
    ottla_clock.advance(days=1)
    ottla_clock.freeze()
    ottla_faults.on("EndTxn").hold()
    assert False

@pytest.mark.ottla(properties={"num.partitions": 7})
def test_with_a_fixed_setting(ottla_broker):
    assert False

@pytest.mark.ottla(properties={"mesage.max.bytes": 7})
def test_with_a_wrong_setting(ottla_broker):
    assert False

def test_with_a_full_disk(ottla_faults):
    ottla_faults.on_append().fail("ENOSPC")
    assert False
"""


@pytest.mark.parametrize("target", [pytest.param("apache", marks=(pytest.mark.maven, pytest.mark.conformance))])
def test_another_kafka_runs_the_recipes_without_control(tmp_path, target):
    apache = TARGETS[target](tmp_path / "apache").start()
    try:
        project = tmp_path / "project"
        project.mkdir()
        code, output = run(project, recipes(), f"--ottla-bootstrap={apache.bootstrap}", "-rs")
    finally:
        apache.stop()
    assert code == 0 and "2 passed, 4 skipped" in output, output
    skipped = re.findall(r"^SKIPPED \[(\d)\] .*: run this test without --ottla-bootstrap(, or|$)", output, re.MULTILINE)
    assert sum(int(count) for count, other in skipped if other) == 3, output
    assert sum(int(count) for count, other in skipped if not other) == 1, output


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_an_unusable_admin_port_is_one_line(serve, elsewhere, tmp_path):
    other = serve()
    closed = closed_port()
    wrong = {
        (elsewhere.admin_url, "wrong"): "the token is missing or wrong: set --ottla-admin-token",
        (elsewhere.admin_url, None): "the token is missing or wrong: set --ottla-admin-token",
        (elsewhere.admin_url, "a\nb"): "--ottla-admin-token must be ASCII characters without blanks",
        (other.admin_url, None): "the broker was started without --test-control",
        (f"http://127.0.0.1:{closed}", None): "no answer: Connection refused: set the address of `ottla serve --adm",
        (f"127.0.0.1:{elsewhere.port}", None): "no answer: Remote end closed connection",
        ("https://broker:9644", None): "must be http://HOST:PORT, such as http://127.0.0.1:9644: the admin",
        ("http://broker", None): "must be http://HOST:PORT",
    }
    for (url, token), reason in wrong.items():
        with pytest.raises(RemoteProblem) as caught:
            connect_remote(elsewhere.bootstrap, url, token)
        assert str(caught.value).startswith(f"--ottla-admin {url}: {reason}"), url
        assert "\n" not in str(caught.value)
    with pytest.raises(RemoteProblem, match=f"--ottla-bootstrap {other.bootstrap} is another broker, of cluster "):
        connect_remote(other.bootstrap, elsewhere.admin_url, TOKEN)
    with pytest.raises(RemoteProblem, match=rf"^--ottla-bootstrap 127\.0\.0\.1:{closed}: .*refused"):
        connect_remote(f"127.0.0.1:{closed}", elsewhere.admin_url, TOKEN)
    with pytest.raises(RemoteProblem, match=r"^--ottla-bootstrap broker: 'broker' is not HOST:PORT$"):
        connect_remote("broker", elsewhere.admin_url, TOKEN)
    options = (f"--ottla-bootstrap={other.bootstrap}", f"--ottla-admin={other.admin_url}")
    code, output = run(tmp_path, "def test_nothing(): ...", *options)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert output.strip() == f"ERROR: --ottla-admin {other.admin_url}: the broker was started without --test-control"
