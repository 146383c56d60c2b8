"""`ottla ctl broker`: the requests that its commands send, and the table that they print."""

import json

import pytest
from click.testing import CliRunner

from ottla.cli.ctl.asking import Port
from ottla.cli.main import main

ROWS = [
    {"broker": 1, "state": "running", "metadata": "current", "disconnected_from": [2, 3], "leads": 7},
    {"broker": 2, "state": "stopped", "metadata": "current", "disconnected_from": [], "leads": 0},
]
COMMANDS = {
    "list": None,
    "move-leader orders 0 --to 2": ("2/lead", {"topic": "orders", "partition": 0}),
    "move-coordinator tx-1 --to 3": ("3/coordinate", {"transactional_id": "tx-1"}),
    "move-coordinator --group copy --to 1": ("1/coordinate", {"group": "copy"}),
    "stop 2": ("2/stop", None),
    "start 2": ("2/start", None),
    "pause 2": ("2/pause", None),
    "resume 2": ("2/resume", None),
    "disconnect 1 2": ("1/disconnect", {"from": 2}),
    "reconnect": ("reconnect", None),
    "freeze-metadata 2": ("2/freeze-metadata", None),
    "unfreeze-metadata 2": ("2/unfreeze-metadata", None),
    "reset": ("reset", None),
}


@pytest.fixture
def ctl(monkeypatch):
    """Run a command, and return its result and the changes that it asks for."""

    def run(*words):
        asked = []

        def answer(port, method, path, body=None):
            if method == "GET":
                assert path == "/v1/brokers"
                return ROWS
            asked.append((path.removeprefix("/v1/brokers/"), body))
            return {}

        monkeypatch.setattr(Port, "request", answer)
        return CliRunner().invoke(main, ["ctl", "broker", *words], catch_exceptions=False), asked

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_sends_its_request_and_prints_all_brokers(ctl, command):
    done, asked = ctl(*command.split(), "--format", "json")
    assert done.exit_code == 0 and asked == ([COMMANDS[command]] if COMMANDS[command] else [])
    brokers = json.loads(done.stdout)["brokers"]
    assert brokers == [ROWS[0] | {"disconnected_from": "2, 3"}, ROWS[1] | {"disconnected_from": None}]


def test_the_table_has_a_line_for_each_broker(ctl):
    done, _ = ctl("list")
    assert [line.split() for line in done.stdout.splitlines() if line.strip()][-2:] == [
        ["1", "running", "current", "2,", "3", "7"],
        ["2", "stopped", "current", "-", "0"],
    ]


@pytest.mark.parametrize(
    "words", ["move-coordinator --to 1", "move-coordinator tx --group g --to 1", "stop two", "move-leader orders 0"]
)
def test_wrong_usage_exits_with_2_and_asks_for_nothing(ctl, words):
    done, asked = ctl(*words.split())
    assert done.exit_code == 2 and asked == []
