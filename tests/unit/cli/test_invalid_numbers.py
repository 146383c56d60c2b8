"""Numbers and names that Kafka never writes: every command reads them correctly or refuses them in one line."""

import shutil
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from tests.invalid_numbers import COMMANDS, ODD, write_directory


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_directory(tmp_path_factory.mktemp("sound"))


def logs_of(data):
    """Return the bytes of all segments, by their paths."""
    return {path: path.read_bytes() for path in data.rglob("*.log")}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_each_command_answers(sound, tmp_path, odd):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    for command, words in COMMANDS.items():
        if command == "alert" and find_spec("pyspark") is None:
            continue
        data = tmp_path / command / "data"
        shutil.copytree(sound, data)
        odd.change(data)
        before = logs_of(data)
        places = {"DIR": str(data), "OUT": str(tmp_path / command / "out")}
        done = CliRunner().invoke(main, [places.get(word, word) for word in words])
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        assert done.exit_code == odd.codes.get(command, 0), (command, done.output)
        assert logs_of(data) == before, command
        if done.exit_code == 2:
            assert odd.file in done.stderr and len(done.stderr.splitlines()) == 1, (command, done.stderr)
