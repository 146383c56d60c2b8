"""The plugin in the project of a user: the modules it loads, its output, its failures."""

import re
import socket
from pathlib import Path

import pytest

from tests.wire.testkit.project import run

pytestmark = pytest.mark.slow  # each is a session of its own


def test_the_examples_of_the_pages_pass(tmp_path):
    docs = Path(__file__).parents[3] / "docs"
    page = "".join((docs / name).read_text() for name in ("test-kit.md", "several-brokers.md"))
    examples = [one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "\ndef test_" in "\n" + one]
    names = re.findall(r"^def (test_\w+)", "".join(examples), re.MULTILINE)
    assert {"test_while_the_broker_is_gone", "test_a_commit_finds_the_next_coordinator"} <= {*names}
    code, told = run(tmp_path, "import pytest\n\n" + "\n\n".join(examples))
    assert code == 0, told
    assert f"{len({*names})} passed" in told


def test_the_plugin_imports_only_itself_until_a_fixture_is_used(tmp_path):
    source = """
import sys
def test_nothing():
    ours = {name for name in sys.modules if name.startswith("ottla")}
    assert ours == {"ottla", "ottla.testkit", "ottla.testkit.pytest_plugin", "ottla.testkit.pytest_alias"}
    assert not {"kafka", "uvloop", "click", "numpy"} & set(sys.modules)
"""
    code, told = run(tmp_path, source)
    assert code == 0, told


def test_a_fault_that_never_strikes_fails_its_test(tmp_path):
    source = """
def test_hollow(ottla_faults):
    ottla_faults.on("EndTxn", client_id="nobody").hold()
def test_optional(ottla_faults):
    ottla_faults.on("EndTxn", optional=True).hold()
"""
    code, told = run(tmp_path, source)
    assert code == 1, told
    assert "2 passed, 1 error" in told
    assert "planned faults never fired, so this test has not tested them:" in told
    assert "{'at': 'request', 'api': 'EndTxn', 'where': {'client_id': 'nobody'}, 'do': 'hold'}" in told


def test_a_change_that_no_client_meets_fails_its_test(tmp_path):
    source = """
import pytest
pytestmark = pytest.mark.ottla(brokers=3)
def test_hollow(ottla_broker, kafka_topic):
    ottla_broker.move_leader(kafka_topic, 0, to=2)
    ottla_broker.pause_broker(3)
def test_optional(ottla_broker, kafka_topic):
    assert {row["state"] for row in ottla_broker.brokers()} == {"running"}
    ottla_broker.move_leader(kafka_topic, 0, to=2, optional=True)
"""
    code, told = run(tmp_path, source)
    assert code == 1 and "2 passed, 1 error" in told, told
    assert "no client met these changes to the brokers, so this test has not tested them:" in told
    assert re.search(r"\n  move_leader topic=topic-\w+ partition=0 to=2\n  pause_broker broker=3\n", told), told


def test_a_wrong_mark_names_the_keywords_that_exist(tmp_path):
    wrong = {
        "partitions=3, topics=1": "has no keyword partitions, topics",
        "{'num.partitions': 3}": "takes keywords only, not {'num.partitions': 3}",
        "properties='num.partitions=3'": "takes properties as a dict, not 'num.partitions=3'",
        "brokers=10": "takes brokers from 1 to 9, not 10",
    }
    source = "import pytest\n"
    for number, given in enumerate(wrong):
        source += f"""
@pytest.mark.ottla({given})
def test_with_a_broker_{number}(ottla_broker): ...
@pytest.mark.ottla({given})
def test_without_one_{number}(): ...
"""
    code, told = run(tmp_path, source)
    assert code == 1, told
    assert "8 errors" in told
    for reason in wrong.values():
        line = f"\n@pytest.mark.ottla {reason}; its keywords are transaction_version, properties, as_version, brokers: "
        assert told.count(line) == 2, told


def test_a_broker_that_does_not_start_shows_its_own_log(tmp_path):
    source = """
import pytest
@pytest.mark.ottla(transaction_version=7)
def test_first(ottla_broker): ...
@pytest.mark.ottla(properties={"no.such": 1})
def test_second(ottla_broker): ...
"""
    code, told = run(tmp_path, source)
    assert code == 1, told
    second = told.partition("ERROR at setup of test_second")[2].partition("short test summary info")[0]
    assert "--override no.such=1: there is no such option" in second, told
    assert "transaction.version=7" not in second, told


def test_a_failed_test_prints_the_log_and_transactions_of_the_broker(tmp_path):
    source = """
def test_failing(kafka_txn_producer, kafka_topic, ottla_broker):
    producer = kafka_txn_producer("tx-shown")
    producer.begin_transaction()
    producer.send(kafka_topic, b"open").get(10)
    assert False
"""
    code, told = run(tmp_path, source)
    assert code == 1, told
    assert "Initialized transactionalId tx-shown" in told
    assert "tx-shown: Ongoing" in told
    (kept,) = (tmp_path / "base").glob("ottla0/broker-0/kept-*")
    assert f"its data directory is kept in {kept}" in told
    assert list(kept.glob("topic-*-0/*.log"))


def test_errors_of_fixtures_point_at_the_line_of_the_test(tmp_path):
    source = """
def test_error(ottla_faults):
    ottla_faults.on("EndTx").drop_connection()
def test_time(ottla_clock):
    ottla_clock.advance(day=7)
def test_records(kafka_topic, ottla_broker):
    ottla_broker.assert_committed(kafka_topic, ["paid"])
"""
    code, told = run(tmp_path, source)
    assert code == 1, told
    assert "'EndTx' is an unknown API: did you mean EndTxn?" in told
    assert "advance() takes what timedelta takes, such as days=7 or seconds=1.5:" in told
    assert "the broker has logged nothing" in told
    shown = [line for line in told.splitlines() if line.startswith((">", "E  "))]
    assert [line.removeprefix(">").strip() for line in shown if line.startswith(">")] == [
        'ottla_faults.on("EndTx").drop_connection()',
        "ottla_clock.advance(day=7)",
        'ottla_broker.assert_committed(kafka_topic, ["paid"])',
    ]


def test_a_test_that_moves_the_clock_of_an_external_broker_is_skipped(tmp_path, ottla_broker):
    source = """
def test_asked(kafka_producer, kafka_topic, ottla_broker):
    kafka_producer().send(kafka_topic, b"there").get(10)
    ottla_broker.assert_committed(kafka_topic, ["there"])
def test_steered(ottla_clock):
    assert False
"""
    ottla_broker.create_topic("of-others")
    code, told = run(tmp_path, source, f"--ottla-bootstrap={ottla_broker.bootstrap}", "-rs")
    assert code == 0, told
    assert ottla_broker.topics() == {"of-others": 1}
    assert "1 passed, 1 skipped" in told
    assert "run this test without --ottla-bootstrap" in told


@pytest.mark.parametrize("arguments", [("-n", "2")])
def test_each_worker_has_a_broker_of_its_own(tmp_path, arguments):
    pytest.importorskip("xdist")
    source = """
import pytest
@pytest.mark.parametrize("number", range(6))
def test_alone(number, kafka_topic_factory, ottla_broker):
    kafka_topic_factory("the-same-name")
    assert ottla_broker.topics() == {"the-same-name": 1}
"""
    code, told = run(tmp_path, source, *arguments)
    assert code == 0, told
    assert "6 passed" in told


def test_a_project_may_override_the_shared_broker(tmp_path):
    (tmp_path / "conftest.py").write_text("""
import pytest

@pytest.fixture(scope="session")
def ottla_proc(make_ottla):
    return make_ottla(properties={"node.id": 0})
""")
    source = """
from kafka.admin import KafkaAdminClient

def test_node(kafka_bootstrap_servers, ottla_proc):
    assert kafka_bootstrap_servers == ottla_proc.bootstrap
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap_servers)
    (broker,) = admin.describe_cluster()["brokers"]
    admin.close()
    assert broker["broker_id"] == 0
"""
    code, told = run(tmp_path, source)
    assert code == 0, told


def test_the_shared_broker_listens_on_the_given_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    source = f"""
import pytest
def test_there(kafka_bootstrap_servers):
    assert kafka_bootstrap_servers == "127.0.0.1:{port}"
@pytest.mark.ottla(properties={{"num.partitions": 2}})
def test_elsewhere(kafka_bootstrap_servers):
    assert kafka_bootstrap_servers != "127.0.0.1:{port}"
"""
    code, told = run(tmp_path, source, f"--ottla-port={port}")
    assert code == 0, told
