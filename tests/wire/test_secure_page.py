"""Every command of docs/secure.md, in its order, on a broker of its own: the outputs are those that the page shows."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.timeout import EVENT_TIMEOUT_S

pytest.importorskip("cryptography", reason="certificates are made by a library")

PAGE = Path(__file__).parents[2] / "docs" / "secure.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = "9093"
END = "--- ended with "
# The page's commands in this checkout; a reader has them from pip.
PREPARED = f"""\
pip() {{ :; }}
python() {{ '{sys.executable}' "$@"; }}
ottla() {{ python -m ottla.cli.main "$@"; }}
"""


class Reader:
    """A reader who follows the page in a directory: one terminal for commands, one for the broker."""

    def __init__(self, directory):
        self.directory = directory
        self.port = PORT
        self.broker = None
        self._environment = {key: text for key, text in os.environ.items() if not key.startswith("KAFKA_")}
        with (directory / "stderr").open("w") as stderr:
            self._shell = self._begun(["bash"], stdin=subprocess.PIPE, stderr=stderr)
        assert self.run(PREPARED) == ("", 0)

    def _begun(self, command, **more):
        return subprocess.Popen(
            command, cwd=self.directory, env=self._environment, stdout=subprocess.PIPE, text=True, **more
        )

    def write(self, name, text):
        """Write a file, with the broker's port in place of the page's; port 0 before the broker has one."""
        text = text.replace(PORT, "0" if self.broker is None else self.port)
        (self.directory / name).write_text(text, encoding="utf-8")

    def run(self, commands):
        """Run the commands. Return their output and the exit code of the last one."""
        commands = commands.replace(PORT, self.port)
        self._shell.stdin.write(f"{{\n{commands}\n}} < /dev/null\nprintf '\\n{END}%d\\n' $?\n")
        self._shell.stdin.flush()
        printed = []
        for line in self._shell.stdout:
            if line.startswith(END):
                return "".join(printed).strip(), int(line.removeprefix(END))
            printed.append(line)
        raise AssertionError(f"the shell has ended:\n{(self.directory / 'stderr').read_text()}")

    def serve(self, command):
        """Start the broker and return its line when it is ready."""
        with (self.directory / "log").open("w") as log:
            words = [sys.executable, "-m", "ottla.cli.main", *command.split()[1:]]
            self.broker = self._begun(words, stderr=log)
        line = self.broker.stdout.readline().strip()
        assert line, (self.directory / "log").read_text()
        self.port = line.rpartition(":")[2]
        return line.replace(self.port, PORT), 0

    def describe_failure(self, commands, printed):
        """Return the commands, their output and the ends of the error and log files, for a failure message."""
        files = [self.directory / name for name in ("stderr", "log")]
        return "\n".join([commands, printed, *(file.read_text()[-3000:] for file in files if file.exists())])

    def leave(self):
        self._shell.communicate(timeout=EVENT_TIMEOUT_S)
        if self.broker is not None:
            self.broker.send_signal(signal.SIGTERM)
            self.broker.communicate(timeout=EVENT_TIMEOUT_S)
            assert self.broker.returncode == 0


@pytest.mark.slow
def test_commands_of_the_secure_page_give_its_outputs(tmp_path):
    reader = Reader(tmp_path)
    shown = [(match[1], match[2]) for match in FENCE.finditer(PAGE.read_text(encoding="utf-8"))]
    ran = 0
    try:
        for (language, text), (following, expected) in zip(shown, [*shown[1:], ("", "")], strict=True):
            if language == "properties":
                reader.write("secure.properties", text)
            elif language == "python":
                reader.write(text.splitlines()[0].removeprefix("# "), text)
            elif language == "sh":
                is_broker = text.startswith("ottla serve ")
                printed, code = reader.serve(text) if is_broker else reader.run(text)
                if following == "text":
                    assert printed == expected.strip(), reader.describe_failure(text, printed)
                else:
                    assert code == 0 and "Error" not in printed, reader.describe_failure(text, printed)
                ran += 1
    finally:
        reader.leave()
    assert ran == sum(language == "sh" for language, _ in shown)
    told = re.findall("`(Principal = [^`]+)`", PAGE.read_text(encoding="utf-8"))
    log = (tmp_path / "log").read_text()
    assert told and [line for line in told if line not in log] == []
    assert "-secret" not in log
