"""Output of every command for users and programs: help by purpose, closed pipes, options that fit, documented JSON."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import GROUPS, PIPE_CLOSED, main
from ottla.wire import brokers
from tests.unit.cli.kafka_directory import unpack
from tests.unit.cli.txn.world import LEDGER, Partition, World, now_ms

DOCUMENTED = Path(__file__).parents[3] / "docs" / "json.md"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return unpack("unclean", tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def cli(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, columns=80):
        return CliRunner().invoke(main, [*map(str, arguments)], env={"COLUMNS": str(columns)}, catch_exceptions=False)

    return run


def test_help_groups_commands_and_ends_with_the_tools_of_our_own_tests(cli):
    heads = [line.rstrip(":") for line in cli("--help").stdout.splitlines() if line.endswith(":")]
    assert heads == ["Options", *GROUPS]
    assert heads[-1] == "For tests of Ottla itself"


# -- closed pipes

COMMANDS = (
    ("--help",),
    ("configs",),
    ("inspect", "DIR"),
    ("inspect", "DIR", "--format", "json"),
    ("dump", "DIR"),
    ("dump", "DIR", "--records", "--format", "json"),
    ("repair", "DIR", "--dry-run"),
    ("graduate", "--help"),
    ("txn", "why", "--help"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_pipe_that_is_closed_is_no_damage(arguments, directory):
    words = [str(directory) if word == "DIR" else word for word in arguments]
    running = subprocess.Popen(
        [sys.executable, "-m", "ottla", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    running.stdout.close()  # before the first byte, which comes after the imports
    told = running.stderr.read()
    running.stderr.close()
    assert (running.wait(), told) == (PIPE_CLOSED, "")


# -- ottla configs


def test_configs_fit_the_terminal(cli):
    for columns in (60, 120):
        lines = cli("configs", columns=columns).stdout.splitlines()
        told = [line for line in lines if line.startswith(" " * 6)]
        assert len(told) > 80
        assert max(map(len, told)) <= columns
    assert "  num.partitions  1  (default)" in lines


def test_configs_that_match_a_pattern(cli):
    document = json.loads(cli("configs", "log.retention.*", "--format", "json").stdout)
    names = [row["option"] for row in document["options"]]
    assert "log.retention.bytes" in names and all(name.startswith("log.retention.") for name in names)
    assert document["topic configs"] == []
    (row,) = json.loads(cli("configs", "retention.ms", "--format", "json").stdout)["topic configs"]
    assert (row["config"], row["from"]) == ("retention.ms", "log.retention.ms")


def test_configs_that_are_changed(cli, tmp_path):
    (tmp_path / "server.properties").write_text("num.partitions=4\n")
    arguments = ("configs", "server.properties", "--changed", "--override", "log.retention.ms=5", "--format", "json")
    document = json.loads(cli(*arguments).stdout)
    assert [(row["option"], row["value"]) for row in document["options"]] == [
        ("num.partitions", "4"),
        ("log.retention.ms", "5"),
    ]
    assert [row["config"] for row in document["topic configs"]] == ["retention.ms"]
    assert cli("configs", "--changed").stdout == "options: none\n\ntopic configs: none\n"


def test_configs_of_a_single_listener(cli, tmp_path):
    (tmp_path / "server.properties").write_text(
        "listeners=IN://h:1,OUT://h:2\nlistener.security.protocol.map=IN:SSL,OUT:SASL_SSL\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512\nssl.keystore.location=/all\n"
        "listener.name.out.ssl.keystore.location=/own\nlistener.name.in.ssl.key.password=hush\n"
        "listener.name.out.connections.max.reauth.ms=5\n"
        "listener.name.out.scram-sha-512.connections.max.reauth.ms=7\n"
    )

    def list_options(*arguments):
        result = cli("configs", "server.properties", *arguments, "--format", "json")
        rows = json.loads(result.stdout)["options"]
        return {row["option"]: (row["value"], row["default"], row["origin"]) for row in rows}

    place = "file server.properties:"
    found = {name: row for name, row in list_options().items() if name.startswith("listener.name.")}
    assert found.items() <= list_options("--changed").items()
    assert found == {
        "listener.name.in.ssl.key.password": ("[hidden]", "", f"{place}6"),
        "listener.name.out.ssl.keystore.location": ("/own", "/all", f"{place}5"),
        "listener.name.out.connections.max.reauth.ms": ("5", "0", f"{place}7"),
        "listener.name.out.scram-sha-512.connections.max.reauth.ms": ("7", "5", f"{place}8"),
    }
    of_listener = list_options("listener.name.out.*")
    assert of_listener["listener.name.out.oauthbearer.connections.max.reauth.ms"] == ("5", "5", f"{place}7")
    assert list_options("listener.name.in.*")["listener.name.in.ssl.keystore.location"] == ("/all", "/all", f"{place}4")
    assert of_listener["listener.name.out.ssl.client.auth"] == ("none", "none", "default")


@pytest.mark.parametrize(
    ("asked_for", "told"),
    [
        (
            "num.partition",
            "ottla: no option is named num.partition, and there is no such file; did you mean num.partitions?",
        ),
        ("retention", "and there is no such file; "),
        ("nothing.*", "ottla: no option is named nothing.*, and there is no such file\n"),
    ],
)
def test_a_pattern_that_names_nothing_is_refused(cli, asked_for, told):
    result = cli("configs", asked_for)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_two_patterns_are_refused(cli):
    assert cli("configs", "a.*", "b.*").exit_code == 2


# -- ottla inspect


@pytest.mark.slow
def test_inspect_shows_user_topics_and_one_line_for_the_internal_ones(cli, directory):
    text = cli("inspect", directory).stdout
    assert not re.findall(r"^  __\S+-\d+ +sound", text, re.MULTILINE)
    hidden = re.search(
        r"^  and (\d+) of internal topics, \d+ bytes, a start reads \d+ of them; --all shows each$", text, re.M
    )
    everything = cli("inspect", directory, "--all").stdout
    partitions = json.loads(cli("inspect", directory, "--format", "json").stdout)["partitions"]
    names = [row["partition"] for row in partitions]
    table = everything.partition("partitions:\n")[2].partition("\n\n")[0].partition("  ---")[2]
    rows = [line.split()[0] for line in table.splitlines()[1:]]
    assert rows == names and "of internal topics" not in everything
    assert int(hidden[1]) + len(re.findall(r"^  \S+-\d+ +(sound|recovers|torn) +\d", text, re.M)) == len(names)


def test_inspect_orders_partitions_by_number(cli, tmp_path):
    for number in (10, 9, 1):
        (tmp_path / "data" / f"ledger-{number}").mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    document = json.loads(cli("inspect", tmp_path / "data", "--format", "json").stdout)
    assert [row["partition"] for row in document["partitions"]] == ["ledger-1", "ledger-9", "ledger-10"]


def test_inspect_reports_whether_headers_or_whole_batches_were_checked(cli, directory):
    assert "Only headers were read: --verify checks every batch." in cli("inspect", directory).stdout
    assert "Every batch was checked." in cli("inspect", directory, "--verify").stdout


# -- ottla dump


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", "hello"),
        ("app.log", "2026-11-23 12:00:00 INFO a log of something else"),
        ("server.log", "short"),
    ],
)
def test_dump_refuses_a_foreign_file_instead_of_calling_it_damaged(cli, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    result = cli("dump", tmp_path / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"ottla: {tmp_path / name}: not a file that this command reads\n"


def test_a_directory_without_files_of_kafka_is_not_called_sound(cli, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    result = cli("dump", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"ottla: {tmp_path}: not a log directory: it has no meta.properties and no <topic>-<partition> with a segment\n"
    )


def test_a_segment_of_text_is_damaged(cli, tmp_path):
    (tmp_path / "00000000000000000000.log").write_text("2026-11-23 12:00:00 INFO a log of something else")
    assert cli("dump", tmp_path / "00000000000000000000.log").exit_code == 1


# -- JSON as it is documented


def read_fields():
    """Return the fields of each documented table by the words of the command (none: a sentence)."""
    found = {}
    for section in DOCUMENTED.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = re.findall(r"^\| `([^`]+)` \| ?(.*) ?\|$", body, re.MULTILINE)
        if rows:
            found[title.strip("`")] = {name: re.findall(r"`([^`]+)`", fields) for name, fields in rows}
    return found


def check_document(command, document):
    fields = read_fields()[command]
    assert list(document) == [name for name in fields if name in document], command
    assert next(iter(fields)) in document
    for name, value in document.items():
        if fields[name]:
            assert all(list(row) == fields[name] for row in value), (command, name)
        else:
            assert isinstance(value, str)


def test_the_json_of_configs_inspect_and_repair_is_as_documented(cli, directory, tmp_path):
    check_document("ottla configs", json.loads(cli("configs", "--format", "json").stdout))
    inspected = json.loads(cli("inspect", directory, "--format", "json").stdout)
    check_document("ottla inspect", inspected)
    assert {"open transactions, by partition", "open transactions, by coordinator", "groups"} <= set(inspected)
    broken = unpack("clean", tmp_path)
    segment = next((broken / "ledger-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    segment.write_bytes(content)
    (broken / "ledger-1" / "00000000000000000000.index").unlink()
    repaired = json.loads(cli("repair", broken, "--dry-run", "--format", "json").stdout)
    check_document("ottla repair", repaired)
    assert {"changes", "damage", "a cut gives up", "choices"} <= set(repaired)
    check_document("ottla inspect", json.loads(cli("inspect", broken, "--format", "json").stdout))


def test_the_json_of_txn_is_as_documented(cli, monkeypatch):
    world = World()
    monkeypatch.setattr(brokers, "BlockingConnection", world.connect)
    producers = [(0, 0, -1, 5, now_ms() - 3_600_000)]
    world.partitions[LEDGER] = Partition(stable=5, end=100, producers=producers)
    why = cli("txn", "why", LEDGER[0], LEDGER[1], "-b", "one:9092", "--format", "json")
    check_document("ottla txn why", json.loads(why.stdout))
    orphans = cli("txn", "orphans", "-b", "one:9092", "--format", "json")
    check_document("ottla txn orphans", json.loads(orphans.stdout))


def test_the_json_of_corpus_is_as_documented(cli, tmp_path):
    check_document("ottla corpus list", json.loads(cli("corpus", "list", "--format", "json").stdout))
    written = cli("corpus", "write", tmp_path, "--only", "one-*", "--format", "json")
    check_document("ottla corpus write", json.loads(written.stdout))


@pytest.mark.slow
def test_the_json_of_dump_is_as_documented(cli, directory):
    fields = read_fields()["ottla dump"]
    kinds = set()
    for line in cli("dump", directory, "--records", "--format", "json").stdout.splitlines():
        found = json.loads(line)
        kinds.add(found["kind"])
        if found["kind"] == "record":
            assert set(found) <= set(fields["record"])
        elif found["kind"] != "entry":
            assert list(found) == fields[found["kind"]]
    assert kinds == {"file", "batch", "record", "entry", "verdict"}
