"""`ottla dump` and `ottla inspect` of the address of a broker, against its directory."""

import json
import re

import pytest

pytest.importorskip("numba", reason="the audit extra is not installed")

from click.testing import CliRunner

from ottla.cli.main import main
from tests.conformance.open_transactions import Client
from tests.thread_broker import ThreadBroker

TOPIC = "ledger"


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)])


def run_json(*words):
    """Return the exit code, and the lines of a command that prints one object a line."""
    done = run(*words, "--format", "json")
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def address(directory):
    with ThreadBroker(directory) as broker:
        client = Client(broker.bootstrap)
        client.create_topic(TOPIC, 2)
        client.create_topic("other", 1)
        client.produce(TOPIC, 0, count=3)
        client.end("done", *client.begin("done", [(TOPIC, 0)]), True)
        held = client.begin("held", [(TOPIC, 1)])
        client.produce(TOPIC, 1, "held", *held, sequence=1)
        yield f"kafka://{broker.bootstrap}"
        client.close()


def without_position(rows):
    return [{name: value for name, value in row.items() if name != "position"} for row in rows]


@pytest.mark.parametrize("options", [(), ("--records",)])
def test_a_dump_of_a_cluster_has_the_lines_of_the_directory(address, directory, options):
    code, of_files = run_json("dump", directory / f"{TOPIC}-0" / f"{0:020d}.log", *options)
    wire_code, of_cluster = run_json("dump", address, "--topics", TOPIC, "--partitions", 0, *options)
    assert (code, wire_code) == (0, 0)
    assert of_cluster[0] == {"kind": "partition", "path": f"{address}/{TOPIC}-0", "log_start": 0, "log_end": 5}
    assert of_cluster[1:] == without_position(of_files[1:])
    assert {"batch", "verdict"} <= {row["kind"] for row in of_cluster}


def test_a_dump_in_text_has_no_positions(address, directory):
    of_files = run("dump", directory / f"{TOPIC}-1" / f"{0:020d}.log", "--records").stdout.splitlines()
    of_cluster = run("dump", address, "--topics", "led*", "--partitions", 1, "--records").stdout.splitlines()
    assert of_cluster[0] == f"Dumping {address}/{TOPIC}-1"
    assert of_cluster[1:] == [re.sub(r" position: \d+", "", line) for line in of_files[1:]]


def test_a_dump_shows_the_batches_with_the_chosen_offsets(address):
    _, rows = run_json("dump", address, "--topics", TOPIC, "--first-offset", 1, "--end-offset", 3)
    assert [row["path"].rpartition("/")[2] for row in rows if row["kind"] == "partition"] == ["ledger-0", "ledger-1"]
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [0, 1]
    _, rows = run_json("dump", address, "--topics", TOPIC, "--first-offset", 3, "--end-offset", 4)
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [3]


def test_a_dump_decodes_internal_topics(address):
    _, rows = run_json("dump", address, "--topics", "__transaction_state", "--records")
    keys = {row["decoded_key"]["data"]["transactionalId"] for row in rows if row["kind"] == "record"}
    assert keys == {"done", "held"}


def test_an_inspection_of_a_cluster_shows_what_its_brokers_know(address):
    done = run("inspect", address, "--format", "json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    partitions = {row["partition"]: row for row in found["partitions"]}
    assert {name for name in partitions if not name.startswith("__")} == {"ledger-0", "ledger-1", "other-0"}
    one = partitions["ledger-1"]
    assert (one["log_start"], one["log_end"], one["last_stable"], one["open_transactions"]) == (0, 2, 0, 1)
    assert one["state"] == "readable" and one["leader"] is not None
    (opened,) = found["open transactions, by partition"]
    assert (opened["partition"], opened["first_offset"]) == ("ledger-1", 0)
    (held,) = found["open transactions, by coordinator"]
    assert (held["transactional_id"], held["state"], held["partitions"]) == ("held", "Ongoing", "ledger-1")


def test_internal_topics_are_one_line(address):
    shown = run("inspect", address).stdout
    assert "of internal topics; --all shows each" in shown and "__transaction_state-0 " not in shown
    assert "__transaction_state-0 " in run("inspect", address, "--all").stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["dump", "kafka://127.0.0.1:1"], "127.0.0.1:1: nothing listens there"),
        (["dump", "kafka://nohost.invalid:9092"], "nohost.invalid:9092: no such host"),
        (["dump", "kafka://127.0.0.1"], "127.0.0.1 is not HOST:PORT"),
        (["dump", "kafka://user:secret@127.0.0.1:9092"], "an address has no user, secret or option"),
        (["dump", "kafka://127.0.0.1:1", "--partitions", "one"], "--partitions: 'one' is not a number"),
        (["dump", "kafka://127.0.0.1:1", "--decoder", "metadata"], "brokers do not send the metadata log"),
        (["dump", "DIR", "--topics", "a"], "--topics is for clusters"),
        (["dump", "DIR", "--first-offset", "0"], "--first-offset is for clusters"),
        (["dump", "DIR", "--command-config", "FILE"], "--command-config is for clusters"),
        (["inspect", "kafka://127.0.0.1:1"], "127.0.0.1:1: nothing listens there"),
        (["inspect", "kafka://user:secret@127.0.0.1:9092"], "an address has no user, secret or option"),
        (["inspect", "kafka://127.0.0.1:1", "--verify"], "--verify reads files: ottla audit"),
        (["inspect", "DIR", "--command-config", "FILE"], "--command-config is for clusters"),
        (["dump", "ADDRESS", "--topics", "nope"], "no topic matches nope, or this user lacks DESCRIBE on it"),
        (["dump", "ADDRESS", "--topics", TOPIC, "--partitions", "9"], "no partition 9 of these topics"),
        (["dump", "ADDRESS", "--command-config", "FILE"], "security.protocol must be PLAINTEXT, SSL"),
        (["inspect", "ADDRESS", "--command-config", "FILE"], "security.protocol must be PLAINTEXT, SSL"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words, reason, address, directory, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=NONE\n")
    places = {"ADDRESS": address, "DIR": directory, "FILE": config}
    done = run(*(places.get(word, word) for word in words))
    assert done.exit_code == 2
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1
    assert "secret@" not in done.stderr and done.stdout == ""


def test_a_cluster_without_a_topic_is_refused(tmp_path):
    with ThreadBroker(tmp_path) as broker:
        for command in ("dump", "inspect", "audit"):
            done = run(command, f"kafka://{broker.bootstrap}")
            assert (done.exit_code, done.stdout) == (2, "")
            assert done.stderr.endswith(f": kafka://{broker.bootstrap}: this user sees no topic\n")
            assert len(done.stderr.splitlines()) == 1
