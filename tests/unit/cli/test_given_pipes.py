"""Pipes on the command line, such as `<(command)` in bash, are read like files."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla import files
from ottla.cli.admin import token_or_exit
from ottla.cli.main import main
from ottla.cli.plan_file import read_plan
from ottla.testkit.corpus.case import write_case
from ottla.testkit.corpus.catalogue import CASES
from ottla.wire.client_properties import client_options
from tests.irregular_files import KINDS, WORDS

TOKEN = "0123456789abcdef" * 2
FAULT = {"at": "reply", "api": "EndTxn", "do": "lose"}
JAAS = 'KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b"; };'


@pytest.fixture
def pipe():
    """Return the path of a pipe with a content, whose writer has ended."""
    opened = []

    def make(content):
        reader, writer = os.pipe()
        opened.append(reader)
        os.write(writer, content.encode())
        os.close(writer)
        return f"/dev/fd/{reader}"

    yield make
    for reader in opened:
        os.close(reader)


@pytest.fixture
def file(tmp_path):
    """Return the path of a file with a content."""

    def make(content):
        path = tmp_path / "given"
        path.write_text(content)
        return str(path)

    return make


def run(*arguments, **environment):
    done = CliRunner().invoke(main, [str(each) for each in arguments], env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_server_properties(pipe):
    code, told, _ = run("configs", pipe("log.retention.ms=4321\n"))
    assert code == 0 and "4321" in told


def test_a_file_of_jaas_entries(pipe, file):
    options = (
        "configs",
        "--override",
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "--override",
        "sasl.enabled.mechanisms=PLAIN",
    )
    without = run(*options)
    pipes, plain = (
        run(*options, KAFKA_OPTS=f"-Djava.security.auth.login.config={make(JAAS)}") for make in (pipe, file)
    )
    assert pipes == plain != without


def test_the_properties_of_a_client(pipe):
    assert client_options(pipe("security.protocol=SSL\n")) == {"security_protocol": "SSL"}


def test_a_plan_of_faults(pipe):
    assert read_plan(Path(pipe(json.dumps([FAULT])))) == [FAULT]


def test_a_token(pipe):
    assert token_or_exit("--admin-token-file", pipe(TOKEN + "\n")) == TOKEN


@pytest.mark.parametrize("command", ["graduate", "check-history"])
def test_graduate_and_check_history_read_a_pipe_like_a_file(tmp_path, pipe, file, command):
    (case,) = (each for each in CASES if each.name == "one-committed-transaction")
    write_case(case, tmp_path)
    data = tmp_path / case.name / "data"
    words = {
        "graduate": lambda make: ("graduate", data, "--node-id", 1, "--dry-run", "--config", make("node.id=1\n")),
        "check-history": lambda make: ("check-history", make("\n"), data),
    }[command]
    pipes, plain = run(*words(pipe)), run(*words(file))
    assert pipes == plain
    assert "FIFO" not in plain[2]


def test_bash_makes_one(tmp_path):
    line = f"{sys.executable} -m ottla.cli.main configs <(echo log.retention.ms=4321)"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "4321" in done.stdout


def test_a_pipe_is_read_to_the_end_of_its_writer(tmp_path):
    path, content = tmp_path / "pipe", os.urandom(1 << 20)
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    assert files.read_argument(str(path)) == content
    writer.join()


def test_a_pipe_has_a_limit(pipe):
    assert files.read_argument(pipe("x" * 10), 10) == b"x" * 10
    with pytest.raises(OSError, match="has 11 bytes, and such a file has at most 10"):
        files.read_argument(pipe("x" * 11), 10)


def test_devices():
    assert files.read_argument("/dev/null") == b""
    with pytest.raises(OSError, match="at most 1000:"):
        files.read_argument("/dev/zero", 1000)


@pytest.mark.parametrize("kind", ["socket", "directory", "dangling", "circular", "sparse"])
def test_anything_else_is_refused_as_in_a_log_directory(tmp_path, kind):
    KINDS[kind](tmp_path / "given")
    with pytest.raises(OSError, match=WORDS[kind]):
        files.read_argument(str(tmp_path / "given"))
