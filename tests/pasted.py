"""Pages of the docs, pasted from top to end: their commands into a shell, their Python into one interpreter.

The environment of the tests stands for an installed Ottla. Fixed ports are replaced by free ones, and directories such
as /var/lib/kafka/data by a copy in the directory of the test.
"""

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unittest import mock

import click

from ottla.cli.main import main
from tests.timeout import EVENT_TIMEOUT_S

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"(?<=:)(9092|9093|9094|9096|9644|19092)\b")
LONG = re.compile(r"(?:\w+=\S+ )*ottla (serve|proxy|trace|top|alert)\b(?!.*--once)")
READY = re.compile(r"(?:\w+=\S+ )*ottla (serve|proxy)\b")
PLACES = re.compile(r"(?<![\w./-])/(?:var|data|mnt|disk\d|etc)(?:/[\w.-]+)*|\b(?:broker-\d|copy-of-kafka-logs)\b")
OUTPUTS = re.compile(r'"(ottla-data|committed|checkpoint)"')
# These exit with 1 if they find something in the data.
FINDS = re.compile(r"ottla (ctl fault clear|audit|inspect|dump|repair|alert|acl why|txn (why|orphans))\b")
STOP_TIMEOUT_S = 20

LEFT_OUT = {
    r"(pip|uv|pipx) ": "the environment of the tests stands for the installed one",
    r"make ": "it is the command that runs these tests, or is played by tests/unit/testkit/demo",
    r"docker ": "needs containers",
    r".*\b(s3|hdfs|abfss?)://": "needs an object store",
    r".*spark://HOST": "needs a Spark cluster",
    r"spark-submit ": "starts a JVM of its own; tests/spark/test_audit_on_spark.py runs it",
    r"kafka-[a-z-]+\.sh ": "needs the tools of Apache Kafka; tests/conformance runs them",
    r"jq ": "needs jq",
    r"ottla top (?!.*--once)": "needs a terminal; tests/unit/cli/top draws it",
}
"""Commands that are not pasted, by a pattern for their beginning, with the reason."""
if importlib.util.find_spec("deltalake") is None:
    LEFT_OUT[r".*format delta"] = "deltalake is not installed"

FILES = {"client.properties": "security.protocol=PLAINTEXT\n", "server.properties": ""}
"""Files that a reader has. Pages show more of their options."""


class Block(NamedTuple):
    language: str
    text: str
    line: int

    @property
    def commands(self):
        """Commands of a shell block. Lines without a prompt are output, but in `sh` each line is a command."""
        if self.language == "sh":
            return [self.text] if self.text.strip() else []
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]


class Page(NamedTuple):
    """A page, and the way to paste it. `edits`: replaced texts. `left_out`: what is not pasted, as in `LEFT_OUT`.

    `has_data`: the directory `ottla-data` is that of the demo. `broker`: a broker runs on it from the beginning, as the
    page expects, with these options. `files`: files that the page expects; None is the page's first block of YAML.
    """

    name: str
    has_data: bool = True
    broker: str | None = None
    files: MappingProxyType = MappingProxyType({})
    edits: MappingProxyType = MappingProxyType({})
    left_out: MappingProxyType = MappingProxyType({})

    @property
    def blocks(self):
        text = (ROOT / self.name).read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match[1] in ("console", "python", "sh"):
                yield Block(match[1], match[2], text[: match.start()].count("\n") + 1)

    def first_yaml(self):
        text = (ROOT / self.name).read_text(encoding="utf-8")
        return next(match[2] for match in FENCE.finditer(text) if match[1] == "yaml")

    def reason(self, language, text):
        """Return the reason for which a command or a block of Python is not pasted, or an empty string."""
        for module in imported_modules(text) if language == "python" else ():
            if importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        every = LEFT_OUT | {**self.left_out}
        return next((reason for pattern, reason in every.items() if re.match(pattern, text, re.DOTALL)), "")

    def pieces(self):
        """Yield (line, language, text) of each command and each block of Python, in order."""
        for block in self.blocks:
            for text in [block.text] if block.language == "python" else block.commands:
                yield block.line, block.language, text

    def list_left_out(self):
        """Yield (line, first line of the text, reason) of what is not pasted."""
        for line, language, text in self.pieces():
            if reason := self.reason(language, text):
                yield line, text.strip().splitlines()[0], reason


def imported_modules(text):
    """Yield the packages that a block of Python imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def free_ports():
    """Return a port for each port of the docs. Several brokers and the proxy have consecutive ones.

    They are below those that systems give to clients, so that none takes one before the command does.
    """
    while True:
        first = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + 8):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            offsets = {"9092": 0, "9093": 1, "9094": 2, "9096": 0, "9644": 3, "19092": 4}
            return {name: str(first + offset) for name, offset in offsets.items()}


class Pasting:
    """A shell and an interpreter in one directory. Closing it stops what runs in the background."""

    def __init__(self, directory, data=None):
        self.directory, self._data = directory, data
        self._ports = free_ports()
        self._running = {}
        self.names = {"__name__": "__main__"}
        path = os.pathsep.join([str(Path(sys.executable).parent), str(ROOT), os.environ["PATH"]])
        admin = self._ports["9644"]
        self._environment = os.environ | {
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "OTTLA_ADMIN": f"http://127.0.0.1:{admin}",
        }
        if data is not None:
            self.copy_data("ottla-data")
        for name, text in FILES.items():
            (directory / name).write_text(text, encoding="utf-8")

    def copy_data(self, name):
        """Copy the data of the demo to a place in the directory, once."""
        place = self.directory / name
        if self._data is not None and not place.exists():
            shutil.copytree(self._data, place)
        return place

    def paste(self, page):
        """Run the page. Raises AssertionError with the line and the output of what fails."""
        for name, text in page.files.items():
            shown = page.first_yaml() if text is None else self._here(text.format(directory=self.directory))
            (self.directory / name).write_text(shown, encoding="utf-8")
        if page.broker is not None:
            self.run(f"ottla serve --data-dir ottla-data {page.broker}".strip(), "the broker")
        for line, language, text in page.pieces():
            if page.reason(language, text):
                continue
            for old in page.edits:
                text = text.replace(old, page.edits[old])
            where = f"{page.name}:{line}"
            if language == "python":
                self._execute(self._here(text, absolute=True), where)
            else:
                self.run(text, where)
        self.close()

    def _here(self, text, absolute=False):
        """Return a text with the ports and directories of this test. Spark needs `absolute` paths: it is elsewhere."""
        text = PORT.sub(lambda match: self._ports[match[1]], text)
        text = re.sub(r"\b(b-1:\d+,b-2|b-1|kafka)(?=:\d)", "127.0.0.1", text)
        for name in PLACES.findall(text):
            place = self._place_of(name)
            text = re.sub(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])", str(place) if absolute else place.name, text)
        return OUTPUTS.sub(lambda match: f'"{self.directory / match[1]}"', text) if absolute else text

    def _place_of(self, name):
        """Return the place of this test for a directory of the docs, with the data of the demo if it is one of logs."""
        own = name.strip("/").replace("/", "-")
        return self.directory / own if name.startswith(("/etc", "/var/cache")) else self.copy_data(own)

    def run(self, command, where):
        """Run a command. Raises AssertionError with its output if it fails, or does not start."""
        command = self._here(command)
        self._replace_ports_of_files(command)
        command = self._with_defaults(command)
        if LONG.match(command):
            self._start(command, where)
            return
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EVENT_TIMEOUT_S,
        )
        expected = (0, 1) if FINDS.match(command) else (0,)
        shown = f"{where}: $ {command}\n{done.stdout}{done.stderr}"
        assert done.returncode in expected and "Traceback" not in done.stderr, f"exit code {done.returncode}\n{shown}"

    def _replace_ports_of_files(self, command):
        for name in re.findall(r"[\w./-]+\.properties", command):
            file = self.directory / name
            if file.is_file():
                file.write_text(PORT.sub(lambda match: self._ports[match[1]], file.read_text()))

    def _with_defaults(self, command):
        """Return the command with the free port, if it would use the port 9092 without naming it."""
        words = [word for word in command.split() if not re.match(r"\w+=", word)]
        if words[0] != "ottla":
            return command
        group, rest = main, words[1:]
        context = click.Context(main, info_name="ottla")
        while isinstance(group, click.Group):
            group = group.get_command(context, rest.pop(0))
        if group.name == "serve":
            is_given = "--listen" in rest or any(word.endswith(".properties") for word in rest)
            return command if is_given else f"{command} --listen 127.0.0.1:{self._ports['9092']}"
        has_default = any(each.default == "localhost:9092" for each in group.params)
        is_given = {"-b", "--bootstrap-server"} & set(rest)
        return command if is_given or not has_default else f"{command} -b 127.0.0.1:{self._ports['9092']}"

    def _start(self, command, where):
        """Start a command that runs until it is stopped. It replaces one of its name, and a broker replaces all."""
        name = LONG.match(command)[1]
        for other in reversed(list(self._running)) if name == "serve" else [name]:
            self._stop(other)
        log = (self.directory / f"{name}.log").open("w+")
        process = subprocess.Popen(
            ["bash", "-ec", re.sub(r"(^|\s)ottla\b", r"\1exec ottla", command, count=1)],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if READY.match(command) else log,
            stderr=log,
            text=True,
        )
        self._running[name] = process, log, f"{where}: $ {command}"
        if READY.match(command):
            line = process.stdout.readline()
            assert "ready" in line, f"{where}: $ {command}\n{line}{Path(log.name).read_text()}"
        while name == "alert" and process.poll() is None and "HANGING" not in Path(log.name).read_text():
            time.sleep(0.1)

    def _stop(self, name):
        """End a command. Raises AssertionError if it has failed before."""
        if name not in self._running:
            return
        process, log, what = self._running.pop(name)
        ended = process.poll()
        with log, process:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            finally:
                process.kill()
        shown = Path(log.name).read_text()
        assert ended in (None, 0) and "Traceback" not in shown, f"exit code {ended}\n{what}\n{shown}"

    def _execute(self, text, where):
        """Run a block of Python, with `await` at its top level as in `python -m asyncio`."""
        code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.chdir(self.directory), mock.patch.dict(os.environ, self._environment):
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, self.names))
            else:
                exec(code, self.names)

    def close(self):
        """Close clients of the interpreter, and stop what runs in the background."""
        for name, value in list(self.names.items()):
            if name in ("producer", "consumer") and hasattr(value, "close"):
                value.close()
                del self.names[name]
        if "query" in self.names:
            self.names.pop("query").stop()
        with contextlib.ExitStack() as stack:  # the first that has failed keeps none of the others
            for name in list(self._running):
                stack.callback(self._stop, name)
