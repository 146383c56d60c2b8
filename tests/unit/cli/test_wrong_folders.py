"""A folder that is no log directory: every command that reads one refuses it, and names the log directory below it."""

import json
import shutil

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.testkit.corpus.catalogue import CASES
from ottla.testkit.corpus.write import write_case

PHOTO = b"\xff\xd8\xff\xe0 a photo"
SEGMENT = "00000000000000000000.log"

pytestmark = pytest.mark.usefixtures("logging_as_before")

# Commands that read a log directory, with what else they need. Those that Spark runs are in tests/spark.
COMMANDS = {
    "audit": ["audit"],
    "dump": ["dump"],
    "export": ["export"],
    "graduate": ["graduate", "--node-id", "1", "--config", "server.properties"],
    "inspect": ["inspect"],
    "repair": ["repair"],
    "serve": ["serve", "--listen", "127.0.0.1:0", "--data-dir"],
}


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory):
    """A log directory with one topic, ledger."""
    case = next(case for case in CASES if case.name == "one-committed-transaction")
    target = tmp_path_factory.mktemp("corpus")
    write_case(case, target)
    return next(target.rglob("meta.properties")).parent


def parent(place, log):
    shutil.copytree(log, place / "kafka-logs")
    return place, "kafka-logs"


def strimzi(place, log):
    shutil.copytree(log, place / "kafka" / "data-0" / "kafka-log0")
    return place / "kafka", "data-0/kafka-log0"


def several_brokers(place, log):
    for number in (1, 2):
        shutil.copytree(log, place / f"broker-{number}")
    return place, "broker-1, "


def empty(place, _log):
    return place, None


def photos(place, _log):
    for number in range(3):
        (place / f"IMG-{number}.jpg").write_bytes(PHOTO)
    (place / "holiday-2").mkdir()
    (place / "holiday-2" / "IMG-4.jpg").write_bytes(PHOTO)
    return place, None


def file(place, _log):
    (place / "photo.jpg").write_bytes(PHOTO)
    return place / "photo.jpg", None


def typo(place, _log):
    return place / "kafka-lgos", None


FOLDERS = [parent, strimzi, several_brokers, empty, photos, file, typo]


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("make", FOLDERS, ids=lambda make: make.__name__)
def test_it_is_refused_in_one_line_that_names_what_is_below(command, make, log_directory, tmp_path, monkeypatch):
    if command == "serve" and make in (empty, typo):
        pytest.skip("a new cluster begins there")
    if command == "dump" and make is file:
        pytest.skip("dump says what is wrong with the file")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.properties").write_text("process.roles=broker,controller\n")
    place = tmp_path / "place"
    place.mkdir()
    folder, below = make(place, log_directory)
    words = COMMANDS[command]
    arguments = [*words, folder, "out"] if command == "export" else [*words, folder]
    if command == "graduate":
        arguments = ["graduate", folder, *words[1:]]
    before = sorted(tmp_path.rglob("*"))
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(folder) in result.stderr
    if below is not None:
        assert f"{folder}/{below}" in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1 or lines[0].startswith("Usage:"), lines
    assert sorted(tmp_path.rglob("*")) == before


def test_a_new_cluster_begins_among_other_files_if_it_is_asked_for(tmp_path, monkeypatch):
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
def test_one_of_several_globs_that_matches_no_topic_is_named(command, log_directory, tmp_path):
    after = [tmp_path / "out"] if command == "export" else []
    result = invoke(command, log_directory, *after, "--topics", "one-*,leger-*")
    assert result.exit_code == 0
    assert "no topic matches leger-*" in result.stderr


def test_a_log_directory_without_meta_properties_is_read(log_directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(log_directory, copy)
    (copy / "meta.properties").unlink()
    assert invoke("audit", copy, "--format", "json").exit_code == 0


def test_an_empty_log_directory_is_read(tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    result = invoke("audit", tmp_path, "--format", "json")
    assert (result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]) == (0, [])
