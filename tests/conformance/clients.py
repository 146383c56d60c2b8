"""The small driver interface of the scenario: a client library in a process of its own, spoken to in JSON lines.

The scenario is written against these classes once; `drivers/` holds one program per client library (see `jsonl.py`
for the lines). A process each keeps a library's threads, event loops and crashes out of the test process.
"""

import atexit
import base64
import functools
import importlib.util
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import ClassVar, NamedTuple

from cache_folder import fill_once
from node_drivers import PROGRAMS, lacks_packages, node_command

HERE = Path(__file__).parent
PYTHON_DRIVERS = {
    "kafka-python": "kafka_python_driver.py",
    "aiokafka": "aiokafka_driver.py",
    "confluent-kafka": "confluent_driver.py",
}
GO_LIBRARIES = ("franz-go", "sarama", "kafka-go")
JAVA_NEXT = "java-4.4.0"
JAVA_RELEASES = {"java": "4.3.1", JAVA_NEXT: "4.4.0"}
# The second compiler takes more than it gives a program of seconds.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
FENCED_CODES = {47, 90, -144}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, librdkafka's own _FENCED


class DriverError(Exception):
    """An exception of the client library: its type, Kafka's error code (or None), its message."""

    def __init__(self, kind, code, message):
        super().__init__(f"{kind} (code {code}): {message}")
        self.kind, self.code, self.message = kind, code, message

    @property
    def is_fenced(self):
        return self.code in FENCED_CODES or "Fenced" in self.kind or "ProducerEpoch" in self.kind


class MissingError(Exception):
    """A feature that the client library does not offer, with the reason."""


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: tuple  # (0 for CreateTime or 1 for LogAppendTime, ms)
    key: bytes | None
    value: bytes | None
    headers: list


def _bytes(text):
    return None if text is None else base64.b64decode(text)


def _text(data):
    if data is None:
        return None
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def _record(raw):
    headers = [(name, _bytes(data)) for name, data in raw["headers"]]
    key, value = _bytes(raw["key"]), _bytes(raw["value"])
    return Record(raw["topic"], raw["partition"], raw["offset"], tuple(raw["timestamp"]), key, value, headers)


class Client:
    """A client library connected to one broker."""

    def __init__(self, name, command, bootstrap, log_file, security=None):
        self.name, self.bootstrap, self.log_file = name, bootstrap, log_file
        self._ids = itertools.count()
        self._start([*command, bootstrap, *([json.dumps(security)] if security else [])])
        self._greet()

    def _start(self, command):
        self._log = self.log_file.open("ab")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        self._answers = queue.SimpleQueue()
        threading.Thread(target=self._read_answers, daemon=True).start()

    def _greet(self):
        hello = self.call("hello")
        self.version, self.missing = hello["version"], hello["missing"]

    def require(self, feature):
        """Raise MissingError if the library does not have the feature."""
        if feature in self.missing:
            raise MissingError(self.missing[feature])

    def _read_answers(self):
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def call(self, op, timeout_s=200, **args):
        """The driver's answer; raises DriverError with what the library raised, or AssertionError when it is stuck."""
        self._process.stdin.write((json.dumps({"op": op, "args": args}) + "\n").encode())
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self._process.kill()
            raise AssertionError(f"{self.name} did not answer {op} within {timeout_s} s, see {self.log_file}") from None
        if line is None:
            raise AssertionError(f"the driver of {self.name} ended during {op}:\n{self._tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(answer["error"]["type"], answer["error"]["code"], answer["error"]["message"])
        return answer["ok"]

    def _tail(self):
        return self.log_file.read_text(errors="replace")[-2000:]

    @property
    def is_alive(self):
        return self._process.poll() is None

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def kill(self):
        """Ends the process in the middle of whatever it does; a call under way fails."""
        self._process.kill()
        self._process.wait()
        self.close()

    def create_topics(self, names, partitions=1, **configs):
        rows = [{"name": name, "partitions": partitions, "configs": configs} for name in names]
        self.call("create_topics", topics=rows)
        eventually(lambda: set(names) <= set(self.topics()), f"topics {names} are listed")

    def delete_topics(self, names):
        self.call("delete_topics", names=names)

    def topics(self):
        return self.call("list_topics")

    def producer(self, transactional_id=None, **options):
        if transactional_id:
            self.require("transactions")
        return ProducerHandle(self, f"p{next(self._ids)}", transactional_id, **options)

    def member(self, group, topics, isolation="read_committed", protocol=None):
        return MemberHandle(self, f"m{next(self._ids)}", group, topics, isolation, protocol)

    def read(self, topics, isolation="read_committed"):
        """Every record from the beginning to the end that this isolation level sees now, as a fresh consumer."""
        return [_record(raw) for raw in self.call("read", topics=topics, isolation=isolation)]

    def values(self, topics, isolation="read_committed"):
        """The sorted values of `read`, as text."""
        return sorted(record.value.decode() for record in self.read(topics, isolation))

    def fetch_offsets(self, group, topic, partitions=(0,), isolation="read_uncommitted"):
        """The group's positions, None where there is none."""
        return self.call("committed", group=group, partitions=[[topic, p] for p in partitions], isolation=isolation)


class JavaClient(Client):
    """Java's clients. Their JVM serves the next one after a close: its start takes as long as most of the tests."""

    _idle: ClassVar = {name: [] for name in JAVA_RELEASES}

    def __init__(self, name, bootstrap, log_file, options):
        self.name, self.bootstrap, self.log_file = name, bootstrap, log_file
        self._ids = itertools.count()
        if self._idle[name]:
            self._take(self._idle[name].pop())
        else:
            self._start(java_command("JavaDriver", jars=kafka_jars(JAVA_RELEASES[name])))
        self.call("connect", bootstrap=bootstrap, options=options)
        self._greet()

    def _take(self, other):
        self.log_file, self._log = other.log_file, other._log
        self._process, self._answers = other._process, other._answers

    def close(self):
        if self.is_alive and self.call("release"):
            self._idle[self.name].append(self)
        else:
            super().close()


class ProducerHandle:
    def __init__(
        self,
        client,
        id,
        transactional_id,
        acks="all",
        compression="none",
        idempotent=True,
        transaction_timeout_ms=30_000,
        bootstrap=None,
        request_timeout_ms=None,
    ):
        self._client, self._id = client, id
        client.call(
            "producer_open",
            id=id,
            transactional_id=transactional_id,
            acks=str(acks),
            compression=compression,
            idempotent=idempotent,
            transaction_timeout_ms=transaction_timeout_ms,
            bootstrap=bootstrap,
            **({} if request_timeout_ms is None else {"request_timeout_ms": request_timeout_ms}),
        )
        if transactional_id:
            self.init()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self._client.is_alive:
            try:
                self.close()
            except DriverError as closing:
                # Some libraries try to abort while they close, which a fenced producer may not.
                if error is None and not closing.is_fenced:
                    raise

    def init(self):
        self._client.call("init", id=self._id)

    def begin(self):
        self._client.call("begin", id=self._id)

    def send(self, topic, *values, partition=0, key=None, headers=()):
        """Sends the values to one partition and waits for all acknowledgements; their offsets."""
        return self.send_records([(topic, partition, key, value, headers) for value in values])

    def send_off(self, topic, *values, partition=0):
        """Sends the values to one partition and does not wait."""
        self.send_records([(topic, partition, None, value, ()) for value in values], awaited=False)

    def send_records(self, records, awaited=True):
        """The same for rows of (topic, partition, key, value, headers)."""
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "key": _text(key),
                "value": _text(value),
                "headers": [[name, _text(data)] for name, data in headers],
            }
            for topic, partition, key, value, headers in records
        ]
        return self._client.call("send", id=self._id, records=rows, **({} if awaited else {"awaited": False}))

    def send_offsets(self, group, topic, positions, member=None):
        """Adds the group's positions, `{partition: next offset}`, to the transaction."""
        rows = [[topic, partition, offset] for partition, offset in positions.items()]
        member_id = member._id if member else None
        self._client.call("send_offsets", id=self._id, group=group, offsets=rows, member=member_id)

    def commit(self):
        self._client.call("commit", id=self._id)

    def abort(self):
        self._client.call("abort", id=self._id)

    def close(self):
        self._client.call("producer_close", id=self._id)


class MemberHandle:
    """A member of a group that polls and commits by itself until it is closed."""

    def __init__(self, client, id, group, topics, isolation, protocol):
        self._client, self._id = client, id
        more = {} if protocol is None else {"protocol": protocol}
        client.call("member_open", id=id, group=group, topics=topics, isolation=isolation, **more)

    def assignment(self):
        return {(topic, partition) for topic, partition in self._state()["assignment"]}

    def records(self):
        return [_record(raw) for raw in self._state()["records"]]

    def _state(self):
        return self._client.call("member_state", id=self._id)

    def close(self):
        self._client.call("member_close", id=self._id)


def eventually(check, what, timeout_s=30, pause_s=0.05):
    """Waits until `check()` is true; its value. Answers of a coordinator come before their effects (markers)."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}; last seen {value!r}")
        time.sleep(pause_s)


def eventually_equal(read, expected, timeout_s=30, pause_s=0.1):
    """Waits until `read()` equals `expected`, and shows the difference when it never does."""
    deadline = time.monotonic() + timeout_s
    while (value := read()) != expected and time.monotonic() < deadline:
        time.sleep(pause_s)
    assert value == expected


def kafka_jars(release="4.3.1"):
    """The folder of the jars of an Apache Kafka, fetched with Maven on first use."""
    command = ["bash", str(HERE / "apache-kafka" / "kafka.sh"), "libs"]
    env = os.environ | {"APACHE_KAFKA_VERSION": release}
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900, env=env).stdout.strip()


def fetch_jars(pom, name):
    """Return the folder of this name, next to Kafka's jars, with what a pom depends on, fetched on first use."""

    def fetch(folder):
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, capture_output=True, timeout=900)

    return fill_once(name, fetch)


def clients_jar(version):
    """Return the jar of another version of Kafka's Java client, fetched with Maven on first use."""
    folder = Path(kafka_jars()).parent / f"kafka-clients-{version}"
    jar = folder / f"kafka-clients-{version}.jar"
    if not jar.exists():
        artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{version}"
        command = ["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, capture_output=True, timeout=900)
    return str(jar)


def lacks(name):
    """Why the driver of a client library cannot be started here, or an empty string."""
    if name in PROGRAMS:
        return lacks_packages(name)
    needed = {**dict.fromkeys(JAVA_RELEASES, "mvn"), **dict.fromkeys(GO_LIBRARIES, "go")}.get(name)
    if needed is None:
        module = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka"}.get(name, name)
        return "" if importlib.util.find_spec(module) else f"{name} is not installed"
    return "" if shutil.which(needed) else f"no {needed} on the path"


def java_options(security):
    """Return the options of Java's clients for the SECURITY that the other drivers take (see jsonl.py)."""
    mechanism, ca = security.get("mechanism"), security.get("ca")
    options = {"security.protocol": f"{'SASL_' if mechanism else ''}{'SSL' if ca else 'PLAINTEXT'}"}
    if ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    if mechanism:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        login = f"username={json.dumps(security['username'])} password={json.dumps(security['password'])}"
        module = f"org.apache.kafka.common.security.{kind}LoginModule"
        options |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {login};"}
    return options


def start_client(name, bootstrap, directory, options=None, security=None):
    """Starts the driver of a client library; files go to `directory`.

    All its clients log in by `security` (see jsonl.py). Java's clients may all have more `options`.
    """
    log_file = directory / f"{name}.log"
    if name in JAVA_RELEASES:
        options = (java_options(security) if security else {}) | (options or {})
        return JavaClient(name, bootstrap, log_file, {key: str(value) for key, value in options.items()})
    if name in GO_LIBRARIES:
        command = [_built(directory), name]
    elif name in PROGRAMS:
        command = node_command(name)
    else:
        command = [sys.executable, str(HERE / "drivers" / PYTHON_DRIVERS[name])]
    return Client(name, command, bootstrap, log_file, security)


def _built(directory):
    """The program of the Go drivers."""
    program = directory / "go-driver"
    if not program.exists():
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "drivers" / "go", check=True, timeout=600)
    return str(program)


@functools.cache
def compile_program(name, jars=None):
    """Return the folder with the classes of a program in `drivers`. They are compiled once, and removed at the exit.
    `jars` is the folder of its jars, if they are not Kafka's."""
    folder = tempfile.mkdtemp(prefix="ottla-drivers-")
    atexit.register(shutil.rmtree, folder)
    source = str(HERE / "drivers" / name)
    javac = ["javac", *(f"-J{option}" for option in QUICK_JVM), "-nowarn", "-proc:none", "-d", folder]
    subprocess.run([*javac, "-cp", f"{jars or kafka_jars()}/*", source], check=True, timeout=120)
    return folder


def java_command(program, *arguments, jars=None):
    """Return the command that runs a program in `drivers`."""
    classpath = os.pathsep.join([compile_program(f"{program}.java", jars), f"{jars or kafka_jars()}/*"])
    options = ["-Xmx512m", *QUICK_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return ["java", *options, "-cp", classpath, program, *map(str, arguments)]
