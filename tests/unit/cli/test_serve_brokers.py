"""`ottla serve --brokers N`: the number of brokers, and the options that do not fit it."""

import pytest
from click.testing import CliRunner

from ottla.cli.main import main

pytestmark = pytest.mark.usefixtures("logging_as_before")
TWO_NAMES = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
VOTERS = "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093"


def serve(tmp_path, monkeypatch, *options, listen="127.0.0.1:0"):
    started = []
    monkeypatch.setattr("ottla.broker.server.run", lambda config, broker_count, **_: started.append(broker_count) or 0)
    arguments = ["serve", "--listen", listen, "--data-dir", str(tmp_path / "new"), *options]
    return CliRunner().invoke(main, arguments), started


@pytest.mark.parametrize(("options", "count"), [([], 1), (["--brokers", "3"], 3), (["--brokers", "1"], 1)])
def test_the_flag_gives_the_number_of_brokers(options, count, tmp_path, monkeypatch):
    result, started = serve(tmp_path, monkeypatch, *options)
    assert (result.exit_code, started) == (0, [count])


def test_the_environment_gives_the_number_of_brokers(tmp_path, monkeypatch):
    monkeypatch.setenv("OTTLA_BROKERS", "3")
    assert serve(tmp_path, monkeypatch)[1] == [3]


@pytest.mark.parametrize(
    ("options", "listen", "said"),
    [
        (["--brokers", "0"], "127.0.0.1:0", "0 is not in the range 1<=x<=9"),
        (["--brokers", "10"], "127.0.0.1:0", "10 is not in the range 1<=x<=9"),
        (["--brokers", "3", "--override", "node.id=2147483646"], "127.0.0.1:0", "node.id=2147483646 leaves no ids"),
        (["--brokers", "3"], "127.0.0.1:65534", "has no 3 ports: use a smaller one"),
        (
            ["--brokers", "3", "--override", "listeners=A://:9092,B://:9094", "--override", TWO_NAMES],
            None,
            "listeners A and B both need port 9094: each listener needs 3 consecutive ports",
        ),
        (["--override", VOTERS], "127.0.0.1:0", "names 3 nodes, and each Ottla is a cluster of its own"),
    ],
    ids=["none", "too many", "ids", "ports", "overlapping ports", "voters"],
)
def test_options_that_do_not_fit_are_refused_before_the_directory_is_made(options, listen, said, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("ottla.broker.server.run", lambda *_, **__: started.append(1))
    given = ["--listen", listen] if listen else []
    result = CliRunner().invoke(main, ["serve", *given, "--data-dir", str(tmp_path / "new"), *options])
    assert result.exit_code != 0 and not started
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / "new").exists()


def test_voters_are_accepted_with_a_number_of_brokers(tmp_path, monkeypatch):
    assert serve(tmp_path, monkeypatch, "--override", VOTERS, "--brokers", "1")[1] == [1]
