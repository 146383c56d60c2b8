"""Folders that are no log directory: every command that reads one refuses them and names the one below."""

import json
import shutil

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from tests.wrong_folders import FOLDERS, empty, file, make_wrong_folder, photos, typo, write_log_directory

pytestmark = pytest.mark.usefixtures("logging_as_before")

# Commands that read a log directory, with their arguments. tests/spark/test_wrong_folders.py has those that Spark runs.
COMMANDS = {
    "alert": ["alert", "DIR"],
    "audit": ["audit", "DIR"],
    "dump": ["dump", "DIR"],
    "export": ["export", "DIR", "out"],
    "graduate": ["graduate", "DIR", "--node-id", "1", "--config", "server.properties"],
    "inspect": ["inspect", "DIR"],
    "repair": ["repair", "DIR"],
    "serve": ["serve", "--listen", "127.0.0.1:0", "--data-dir", "DIR"],
}
CHECKED_BY_CLICK = ("dump", "graduate", "inspect", "repair")
IN_OTHER_WORDS = (
    {("serve", make): "it has no meta.properties, and holds other files" for make in FOLDERS}
    | {(command, file): "is a file" for command in (*CHECKED_BY_CLICK, "serve")}
    | {(command, typo): "does not exist" for command in CHECKED_BY_CLICK}
    | {("dump", file): "not a file that this command reads"}
)
NEW_CLUSTERS = [("serve", empty), ("serve", typo)]
REFUSED = [(command, make) for make in FOLDERS for command in COMMANDS if (command, make) not in NEW_CLUSTERS]


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory):
    return write_log_directory(tmp_path_factory.mktemp("corpus"))


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize(("command", "make"), REFUSED, ids=[f"{make.__name__}-{command}" for command, make in REFUSED])
def test_commands_refuse_a_wrong_folder_with_the_reason_and_create_nothing(
    command, make, log_directory, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.properties").write_text("process.roles=broker,controller\n")
    wrong = make_wrong_folder(make, tmp_path / "place", log_directory)
    before = sorted(tmp_path.rglob("*"))
    result = invoke(*(wrong.path if argument == "DIR" else argument for argument in COMMANDS[command]))
    assert (result.exit_code, result.stdout) == (2, "")
    assert IN_OTHER_WORDS.get((command, make), wrong.why) in result.stderr
    assert str(wrong.path) in result.stderr and wrong.below in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1 or lines[0].startswith("Usage:"), lines
    assert sorted(tmp_path.rglob("*")) == before


def test_format_data_dir_starts_a_cluster_next_to_other_files(tmp_path, monkeypatch):
    photos(tmp_path, None)
    started = []
    monkeypatch.setattr("ottla.broker.server.run", lambda config, **_: started.append(config.log_dirs) or 0)
    result = invoke("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path, "--format-data-dir")
    assert (result.exit_code, started) == (0, [str(tmp_path)])


@pytest.mark.parametrize("left", [[], ["lost+found"], [".lock"]])
def test_a_new_cluster_begins_in_a_folder_as_a_new_file_system_leaves_it(left, tmp_path, monkeypatch):
    for name in left:
        (tmp_path / name).mkdir()
    monkeypatch.setattr("ottla.broker.server.run", lambda config, **_: 0)
    assert invoke("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path).exit_code == 0


@pytest.mark.parametrize("command", ["audit", "export"])
def test_globs_that_match_no_topic_are_named_with_the_topics_there_are(command, log_directory, tmp_path):
    after = [tmp_path / "out"] if command == "export" else []
    result = invoke(command, log_directory, *after, "--topics", "leger-*")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no topic matches leger-*; there are one-committed-transaction" in result.stderr


@pytest.mark.parametrize("command", ["audit", "export"])
def test_one_of_several_globs_that_matches_no_topic_is_named_once(command, log_directory, tmp_path, caplog):
    after = [tmp_path / "out"] if command == "export" else []
    result = invoke(command, log_directory, *after, "--topics", "one-*,leger-*")
    assert result.exit_code == 0
    assert (result.stderr + caplog.text).count("no topic matches leger-*") == 1


def test_a_log_directory_without_meta_properties_is_read(log_directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(log_directory, copy)
    (copy / "meta.properties").unlink()
    assert invoke("audit", copy, "--format", "json").exit_code == 0


def test_an_empty_log_directory_is_read(tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    result = invoke("audit", tmp_path, "--format", "json")
    assert (result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]) == (0, [])
