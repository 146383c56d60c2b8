"""A broker with every kind of listener, and its measurements: memory, event loop time, sockets, log lines."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from ottla.broker.config.listeners import PROTOCOLS
from tests.certificates import Certificates
from tests.fuzz_surface import frames
from tests.fuzz_surface.visits import EVENT_TIMEOUT_S, Door
from tests.logins import Keys

LOGINS = f"""\
sasl.enabled.mechanisms={",".join(frames.MECHANISMS)}
connection.failed.authentication.delay.ms=20
sasl.oauthbearer.expected.audience=ottla
sasl.oauthbearer.expected.issuer=nobody
"""
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Watched:
    """A broker in a directory, with its measurements."""

    def __init__(self, directory):
        self.log = directory / "log"
        self._certificates = Certificates(directory / "certificates")
        properties = directory / "server.properties"
        properties.write_text(self._properties(directory))
        command = [sys.executable, "-m", "ottla.cli.main", "serve", str(properties), "--until-input-ends"]
        command += ["--data-dir", str(directory / "data")]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.doors = [self._door() for _ in PROTOCOLS]
        self._loop_time = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat")

    def _properties(self, directory):
        lines = [f"listeners={','.join(f'{name}://127.0.0.1:0' for name in sorted(PROTOCOLS))}"]
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self._certificates.broker}"]
        keys = directory / "jwks.json"
        keys.write_text(Keys().jwks())
        lines += [LOGINS, f"sasl.oauthbearer.jwks.endpoint.url=file://{keys}"]
        for name in ("sasl_ssl", "sasl_plaintext"):
            user = f'user_{frames.USER}="{frames.PASSWORD}"'
            lines.append(f"listener.name.{name}.plain.sasl.jaas.config={PLAIN_MODULE} required {user};")
        return "\n".join(lines) + "\n"

    def _door(self):
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise AssertionError(f"the broker did not start:\n{self.log.read_text()}")
        name, _, address = line.split()[1].partition("://")
        return Door(name, int(address.rpartition(":")[2]))

    def door(self, name):
        return next(door for door in self.doors if door.name == name)

    def resident_mb(self):
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except OSError:
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def loop_ms(self):
        """Return the processor time of the event loop's thread so far, in ms; 0 if the system does not provide it."""
        try:
            return int(self._loop_time.read_text().split()[0]) / 1e6
        except OSError:
            return 0.0

    def sockets(self):
        """Return the number of open sockets; 0 if the system does not provide it."""
        found = 0
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found += path.readlink().name.startswith("socket:")
        return found

    def rested_sockets(self, most):
        """Return the number of open sockets after those of disconnected clients are closed."""
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while (found := self.sockets()) > most and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def stop(self):
        """Stop the broker and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(EVENT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        with contextlib.suppress(OSError):
            self.process.communicate()
        return self.process.returncode

    def count_log_lines(self):
        """Count the log lines of each kind, without numbers and addresses."""
        lines = self.log.read_text(errors="replace").splitlines()
        return Counter(re.sub(r"127\.0\.0\.\d+|\d+", "N", line.partition(" ")[2])[:160] for line in lines)

    def unsound(self):
        """Return the lines that must not be in its log."""
        wrong = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b|A queued step failed|" + re.escape(frames.PASSWORD))
        return [line for line in self.log.read_text(errors="replace").splitlines() if wrong.search(line)]
