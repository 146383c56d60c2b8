"""The client side of the conformance scenario: one JSON object a line on stdin, one answer a line on stdout.

A request is `{"op": name, "args": {...}}`, an answer `{"ok": result}` or `{"error": {"type", "code", "message"}}`.
Bytes travel as base64, null as null. What the client library prints goes to stderr, so that it cannot break a line.
"""

import base64
import json
import os
import sys
import threading

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


class Driver:
    """Base of the drivers: the tables of open producers and members."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.producers, self.members = {}, {}

    def op_member_open(self, id, **options):
        self.members[id] = self.new_member(**options)
        self.members[id].start()

    def op_member_state(self, id):
        return self.members[id].state()

    def op_member_close(self, id):
        self.members.pop(id).finish()

    def describe(self, error):
        """`{"type", "code", "message"}`; the code is Kafka's, or null."""
        return {"type": type(error).__name__, "code": getattr(error, "errno", None), "message": str(error)}


def serve(driver_class):
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    driver = driver_class(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(driver, "op_" + request["op"])(**request["args"])}
        except Exception as error:
            answer = {"error": driver.describe(error)}
        answers.write(json.dumps(answer) + "\n")
    # The process ends without waiting for clients that the scenario left open on purpose (zombies).
    os._exit(0)
