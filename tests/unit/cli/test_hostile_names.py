"""A hostile name through the commands that read a directory, in each format: it moves no cursor, forges no line."""

import json
import subprocess
import unicodedata

import pytest
from click.testing import CliRunner

from ottla.audit.checks.finding import Finding
from ottla.cli.main import main
from ottla.printable import html_text, printable, shell_line, shell_word
from ottla.protocol.batch import NewRecord
from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.producer import V1, Producer
from ottla.testkit.corpus.write import write_case

# ANSI and OSC, a forged line, C1, bidi, zero width, a tag of HTML, markup of rich, quotes of a shell.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\nottla: all is sound\r\x9b31m\u202etxt\u200b\x7f<b onload='x'>[red]'\"`$(reboot)"
HOSTILE += "x" * 300
CASE = "hostile"


def _script(stage):
    stage.topic()
    producer = Producer(stage, HOSTILE, V1)
    producer.send("aborted 1")
    producer.abort()
    producer.send_late("open 1")
    stage.send(NewRecord(HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()),)))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    case = Case(CASE, "", "", (), _script, {"transaction_partition_verification_enable": False})
    write_case(case, place)
    data = place / CASE / "data"
    named = data / f"{HOSTILE.replace('/', '').partition('x' * 10)[0]}-0"
    named.mkdir()
    (named / "00000000000000000000.log").write_bytes((data / f"{CASE}-0" / "00000000000000000000.log").read_bytes())
    return data


def is_clean(text):
    return not [one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def assert_harmless(text):
    assert is_clean(text), [one for one in text if not is_clean(one)]
    assert not [line for line in text.splitlines() if line.startswith("ottla: all is sound")]


DIRECTORY_COMMANDS = {
    "audit": [["--all"], ["--format", "json"]],
    "inspect": [["--all"], ["--verify"], ["--format", "json"]],
    "dump": [[], ["--records"], ["--format", "json"], ["--records", "--format", "json"]],
    "repair": [["--dry-run"], ["--dry-run", "--format", "json"]],
}


@pytest.mark.parametrize(
    ("command", "options"), [(command, options) for command, all_of in DIRECTORY_COMMANDS.items() for options in all_of]
)
def test_a_directory(directory, command, options):
    if command == "audit":
        pytest.importorskip("numba", reason="the audit extra is not installed")
    done = CliRunner().invoke(main, [command, str(directory), *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    # A folder that no topic can have is not repaired, and without a finding nothing is named.
    assert "owned" in done.stdout or command == "repair" or (command, options[:1]) == ("audit", ["--format"])
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    if "json" in options and command in ("inspect", "repair"):
        json.loads(done.stdout)
    elif "json" in options:
        assert all(json.loads(line) for line in done.stdout.splitlines())


def test_a_finding_in_json():
    line = Finding("hanging", "error", HOSTILE, 0, 1, 2, HOSTILE, HOSTILE, HOSTILE).line()
    assert_harmless(line)
    assert json.loads(line)["transactional_id"] == HOSTILE


def test_the_report_in_html(directory, tmp_path):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    report = tmp_path / "report.html"
    CliRunner().invoke(main, ["audit", str(directory), "--all", "--report", str(report)])
    text = report.read_text("utf-8")
    assert_harmless(text)
    assert "owned" in text
    assert "<b onload" not in text
    assert "onload='x'" not in text


@pytest.mark.parametrize("command", sorted({"dump", "inspect", "repair", "audit", "export"}))
def test_an_error_names_a_hostile_path_in_one_line(tmp_path, command):
    if command in ("audit", "export"):
        pytest.importorskip("numba", reason="the audit extra is not installed")
    place = tmp_path / "\x1b[31m\nforged"
    place.mkdir()
    done = CliRunner().invoke(main, [command, str(place), *([str(tmp_path / "out")] if command == "export" else [])])
    assert done.exit_code == 2
    assert_harmless(done.stderr)
    assert "\\x1b[31m\\nforged" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["plain", "with blank", "'", HOSTILE, "\udcff\udc80", "back\\slash\n", "$HOME `x`", "-\u2028", "\U000e0041"]
)
def test_a_word_for_a_shell_is_the_name_again(name):
    word = shell_word(name)
    assert word.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert said == name.encode("utf-8", "surrogateescape")


def test_a_name_with_a_nul_names_nothing_else():
    assert "\0" not in shell_word("a\0b")
    assert shell_word("a\0b") not in ("a", "'a'", "$'a'")
    assert shell_line(["ottla", "a b"]) == "ottla 'a b'"


def test_a_text_for_html_has_no_control_characters_and_no_markup():
    assert html_text("<\x1b&\u202e\"'") == "&lt;\\x1b&amp;\\u202e&quot;&#x27;"
    assert printable("\ud800\n") == "\\ud800\\n"
