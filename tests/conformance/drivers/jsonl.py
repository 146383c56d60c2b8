"""The client side of the conformance scenario: one JSON object a line on stdin, one answer a line on stdout.

A request is `{"op": name, "args": {...}}`, an answer `{"ok": result}` or `{"error": {"type", "code", "message"}}`.
Bytes travel as base64, null as null. What the client library prints goes to stderr, so that it cannot break a line.

The arguments of a driver are the bootstrap address and, if all its clients log in or use TLS, SECURITY: a JSON object
`{"mechanism": "PLAIN" or "SCRAM-SHA-256" or "SCRAM-SHA-512" or null, "username", "password", "ca": a PEM or null}`.
"""

import base64
import json
import os
import sys
import threading
import time
from collections import Counter

EVENT_TIMEOUT_S = 180  # for reading everything, on a machine that does other things too


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(data):
    return None if data is None else base64.b64encode(bytes(data)).decode()


def record(topic, partition, offset, timestamp, key, value, headers):
    """`timestamp` is (type, ms): 0 is CreateTime, 1 LogAppendTime."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": list(timestamp),
        "key": to_text(key),
        "value": to_text(value),
        "headers": [[name, to_text(data)] for name, data in headers or []],
    }


def security_protocol(security):
    """Return the `security.protocol` of clients for SECURITY."""
    return ("SASL_" if security.get("mechanism") else "") + ("SSL" if security.get("ca") else "PLAINTEXT")


class Member(threading.Thread):
    """A member of a group that polls and commits in its own thread, because most consumers belong to one thread.

    A subclass opens its consumer in `open`, returns records from `poll_once`, and says what it is assigned.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.records, self.errors, self.assigned, self.failure = [], [], [], None

    def run(self):
        try:
            self.open()
            while not self.stopping.is_set():
                records = self.poll_once()
                self.assigned = self.assignment_now()
                self.records.extend(records)
                if records:
                    self.commit_quietly()
            self.shut()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        self.assigned = []

    def commit_quietly(self):
        """Commit and keep an error: during a rebalance it is refused, and the next owner gets the records again."""
        try:
            self.commit_now()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    def state(self):
        if self.failure:
            raise RuntimeError(self.failure)
        return {"assignment": sorted(self.assigned), "records": list(self.records), "errors": list(self.errors)}

    def finish(self):
        self.stopping.set()
        self.join(30)
        if self.is_alive():
            raise TimeoutError("the member did not close within 30 s")
        if self.failure:
            raise RuntimeError(self.failure)


COPIER_OPTIONS = {
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
}
"""Options of a copier's consumer, by the names that kafka-python and aiokafka share."""


class Copier(threading.Thread):
    """Copies records to the same partitions of another topic, in transactions with its offsets, until it is closed.

    After an error it aborts, and continues at the committed offsets. If that fails too, another producer with the same
    transactional id and another consumer continue. A subclass has the steps.
    """

    def __init__(self, driver, group, protocol, source, sink, transactional_id):
        super().__init__(daemon=True)
        self.driver, self.bootstrap = driver, driver.bootstrap
        self.group, self.protocol, self.source, self.sink = group, protocol, source, sink
        self.transactional_id = transactional_id
        self.stopping = threading.Event()
        self.copied, self.instances, self.errors, self.step = 0, 0, Counter(), "open"

    def run(self):
        while not self.stopping.is_set():
            self.instances += 1
            if self.attempt("open"):
                while not self.stopping.is_set() and self.copy_some():
                    pass
            else:
                time.sleep(1)
            self.attempt("shut")

    def copy_some(self):
        """Copy what one poll returns in a transaction. Return whether this instance can continue."""
        records = self.call("poll")
        if records is None:
            return self.attempt("rewind")
        if not records:
            return True
        if not self.attempt("begin"):
            return False
        positions = {partition: offset + 1 for partition, offset, _, _ in records}
        steps = (("send", records), ("send_offsets", positions), ("commit",))
        if all(self.attempt(*step) for step in steps):
            self.copied += len(records)
            return True
        return self.attempt("abort") and self.attempt("rewind")

    def attempt(self, step, *arguments):
        """Return whether a step succeeds."""
        return self.call(step, *arguments) is not None

    def call(self, step, *arguments):
        """Return the result of a step (True if it has none), or None after an error."""
        self.step = step
        try:
            result = getattr(self, step)(*arguments)
        except Exception as error:
            self.errors[f"{step}: {self.driver.describe(error)['type']}"] += 1
            print(f"{self.transactional_id} {time.time():.3f} {step}: {error!r}", file=sys.stderr, flush=True)
            return None
        return True if result is None else result

    def state(self):
        return {"copied": self.copied, "instances": self.instances, "errors": dict(self.errors), "step": self.step}

    def finish(self):
        self.stopping.set()
        self.join(50)
        if self.is_alive():
            raise TimeoutError(f"the copier did not close within 50 s: {self.step}")


class Driver:
    """Base of the drivers: the tables of open producers, members and copiers."""

    def __init__(self, bootstrap, security):
        self.bootstrap, self.login = bootstrap, self.login_options(security)
        self.producers, self.members, self.copiers = {}, {}, {}

    def op_copier_open(self, id, **options):
        self.copiers[id] = self.new_copier(self, **options)
        self.copiers[id].start()

    def op_copier_state(self, id):
        return self.copiers[id].state()

    def op_copier_close(self, id):
        self.copiers.pop(id).finish()

    def op_member_open(self, id, protocol="classic", **options):
        if protocol != "classic":
            if refusal := self.op_hello()["missing"].get("consumer-protocol"):
                raise ValueError(refusal)
            options["protocol"] = protocol
        self.members[id] = self.new_member(**options)
        self.members[id].start()

    def op_member_state(self, id):
        return self.members[id].state()

    def op_member_close(self, id):
        self.members.pop(id).finish()

    @staticmethod
    def login_options(security):
        """Return the options of all clients for SECURITY, by the names that kafka-python and aiokafka share."""
        options = {"security_protocol": security_protocol(security)}
        if security.get("mechanism"):
            options |= {
                "sasl_mechanism": security["mechanism"],
                "sasl_plain_username": security["username"],
                "sasl_plain_password": security["password"],
            }
        return options

    def describe(self, error):
        """`{"type", "code", "message"}`; the code is Kafka's, or null."""
        return {"type": type(error).__name__, "code": getattr(error, "errno", None), "message": str(error)}


def serve(driver_class):
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    driver = driver_class(sys.argv[1], json.loads(sys.argv[2]) if sys.argv[2:] else {})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(driver, "op_" + request["op"])(**request["args"])}
        except Exception as error:
            answer = {"error": driver.describe(error)}
        answers.write(json.dumps(answer) + "\n")
    # The process ends without waiting for clients that the scenario left open on purpose (zombies).
    os._exit(0)
