"""Stand-in for the admin port of a broker: a test sets the answers that the page gets, and the time."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from ottla.admin.page_files import escape_json, exported_page, page_routes
from ottla.admin.routes import AdminError, AdminRequest, Router

NOW_MS = 1_763_900_000_000
"""When these brokers live, whatever the time is."""


class StandIn:
    """A broker whose answers are what a test puts into `answers`, and whose events it sends."""

    def __init__(self):
        self.now_ms = NOW_MS
        self.started_ms = NOW_MS - 3_600_000
        self.events = []
        self.buckets = []
        self.overview = {}
        self.answers = {
            "transactions": {"transactions": [], "total": 0, "left_out": 0},
            "partitions": {"partitions": [], "total": 0, "left_out": 0},
            "topics": {"topics": [], "total": 0, "left_out": 0},
            "groups": {"groups": [], "total": 0, "left_out": 0},
            "refusals": {"refusals": []},
        }
        self.refusals = {}
        """(status, error) by path, in place of an answer."""
        self.why = {}
        self.token = None
        self.seq = 0
        self.changed = threading.Condition()
        self.sent = []
        """What goes to all who listen to the stream."""
        self.is_over = False
        self.is_down = False
        self.asked = []

    def tell_overview(self, **changes):
        rates = {
            "requests": 12.5, "produced_bytes": 81_920, "fetched_bytes": 40_960, "produced_records": 320,
            "transactions_committed": 4.2, "transactions_aborted": 0.3, "errors": 0,
        }  # fmt: skip
        told = {
            "now_ms": self.now_ms,
            "started_ms": self.started_ms,
            "node_id": 1,
            "cluster_id": "q1Sh-9_8TiO0Wz2gYLh6hA",
            "transaction_version": 2,
            "rates": rates,
            "latency_ms": {name: {"p50": 0.4, "p99": 2.1} for name in ("produce", "fetch", "end_txn")},
            "loop": {"turn_p99_ms": 1.3},
            "disk": {"bytes": 48_234_496, "sync_p99_ms": 4.0, "offline": False},
            "memory_bytes": 58_720_256,
            "connections": 9,
            "open_transactions": 0,
            "oldest_open_ms": None,
            **self.overview,
            **changes,
        }
        return told

    def event(self, kind, transactional_id, at_ms, **more):
        """Add an event to the history and send it to the open streams."""
        self.seq += 1
        told = {"seq": self.seq, "at_ms": at_ms, "kind": kind, "transactional_id": transactional_id}
        told |= {"producer_id": 1000 + sum(transactional_id.encode()) % 1000, "producer_epoch": 0, **more}
        with self.changed:
            self.events.append(told)
            self.sent.append(("txn", self.seq, told))
            self.changed.notify_all()

    def transaction(self, transactional_id, begun_ms, prepared_ms=None, completed_ms=None, commit=True, records=10):
        """The events of one transaction, as far as it has come."""
        self.event("begun", transactional_id, begun_ms)
        self.event("partition", transactional_id, begun_ms, topic="ledger", partition=0)
        if prepared_ms is not None:
            self.event("prepared", transactional_id, prepared_ms, commit=commit)
        if completed_ms is not None:
            more = {"commit": commit, "records": records, "bytes": records * 100}
            self.event("completed", transactional_id, completed_ms, **more)

    def send(self, name, value):
        with self.changed:
            self.sent.append((name, None, value))
            self.changed.notify_all()

    def tick(self, passed_ms=1000, **changes):
        """Advance the time and send it in the stream."""
        self.now_ms += passed_ms
        self.send("overview", self.tell_overview(**changes))

    def stop(self):
        """End the streams and stop answering requests."""
        with self.changed:
            self.is_down = True
            self.changed.notify_all()

    def start_again(self):
        """As another process would come up: its events are counted from the start."""
        with self.changed:
            self.started_ms = self.now_ms
            self.events, self.sent, self.seq, self.is_down = [], [], 0, False

    def answer(self, path, query):
        if path == "/v1/overview":
            return self.tell_overview()
        if path == "/v1/history":
            return self.history(int(query["from_ms"]), int(query["to_ms"]))
        if path.endswith("/why"):
            topic, partition = path.split("/")[3:5]
            return self.why[unquote(topic), int(partition)]
        return self.answers[unquote(path).removeprefix("/v1/")]

    def history(self, from_ms, to_ms):
        events = [event for event in self.events if from_ms <= event["at_ms"] <= to_ms]
        return {"from_ms": from_ms, "to_ms": to_ms, "events": events, "left_out": 0, "buckets": self.buckets}

    def export(self, from_ms, to_ms):
        data = {"exported_ms": self.now_ms, "overview": self.tell_overview(), "history": self.history(from_ms, to_ms)}
        before, behind = exported_page()
        return before + escape_json(json.dumps(data | self.answers).encode()) + behind


def describe_topic(name, **more):
    sums = {"offsets": 1000, "bytes": 4096, "held": 1, "offline": 0, "unopened": 0, "replication_factor": 1}
    return {"topic": name, "internal": name.startswith("__"), "partition_count": 2, **sums, **more}


def describe_partition(index):
    offsets = {"log_start_offset": 0, "last_stable_offset": 2, "high_watermark": 5, "log_end_offset": 5}
    return {"partition": index, "leader": 1, **offsets, "bytes": 4096, "offline": None}


def describe_record(offset, fate, text="text", **more):
    content = {"size": len(text.encode()), "text": text}
    record = {"offset": offset, "timestamp_ms": NOW_MS, "fate": fate, "waiting_for": None, "producer_id": 9}
    more = {"producer_epoch": 0, "transactional_id": text, "headers_left_out": 0, "cut": False, **more}
    return record | {"key": content, "value": content, "headers": [[text, content]]} | more


def answer_topics(broker, name, *records, **more):
    """Let the broker have a topic of this name with these records in partition 0."""
    topics = [describe_topic(name), describe_topic("__consumer_offsets")]
    broker.answers["topics"] = {"topics": topics, "total": 2, "left_out": 0}
    about = {**describe_topic(name), "topic_id": "id", "configs": [{"name": "cleanup.policy", "value": "compact"}]}
    partitions = [describe_partition(0), describe_partition(1)]
    broker.answers[f"topics/{name}"] = about | {"partitions": partitions}
    holder = {"first_offset": 2, "producer_id": 9, "transactional_id": name}
    broker.answers[f"topics/{name}/0/records"] = {
        "records": list(records), "first": 10, "next": 15, "left_out": [], "note": None, "withheld": None,
        "held_by": holder, "log_start_offset": 0, "last_stable_offset": 2, "high_watermark": 99, **more,
    }  # fmt: skip


def handler_of(broker):
    router = Router(page_routes())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query))
            broker.asked.append(self.path)
            if broker.is_down:
                self.close_connection = True
            elif not url.path.startswith("/v1/"):
                self.page()
            elif broker.token is not None and self.headers["Authorization"] != f"Bearer {broker.token}":
                self.reply(401, "application/json", b'{"error": "The token is missing or wrong"}')
            elif url.path == "/v1/events":
                self.stream(int(query["since"]))
            elif url.path == "/v1/export":
                self.reply(200, "text/html", broker.export(int(query["from_ms"]), int(query["to_ms"])))
            elif (refusal := broker.refusals.get(url.path.removeprefix("/v1/"))) is not None:
                self.reply(refusal[0], "application/json", json.dumps({"error": refusal[1]}).encode())
            else:
                self.reply(200, "application/json", json.dumps(broker.answer(url.path, query)).encode())

        def page(self):
            try:
                found = router.match("GET", self.path)
                request = AdminRequest("GET", found.path, found.parameters, found.query, None)
                found.route.handler(request).send(None)
            except StopIteration as done:
                response = done.value
            except AdminError as refused:
                return self.reply(refused.status, "application/json", b"{}")
            self.reply(response.status, response.content_type, response.body, response.headers)

        def reply(self, status, content_type, body, headers=()):
            self.send_response(status)
            for name, value in (("Content-Type", content_type), ("Content-Length", str(len(body))), *headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def stream(self, since):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            said, mine = 0, broker.sent
            while not broker.is_over and not broker.is_down and mine is broker.sent:
                for name, seq, value in mine[said:]:
                    said += 1
                    if seq is None or seq > since:
                        number = "" if seq is None else f"id: {seq}\n"
                        self.wfile.write(f"{number}event: {name}\ndata: {json.dumps(value)}\n\n".encode())
                with broker.changed:
                    if said == len(mine) and not broker.changed.wait(timeout=1):
                        self.wfile.write(b": still here\n\n")
            self.close_connection = True

        def handle(self):
            try:
                super().handle()
            except OSError:
                """The page has gone."""

        def log_message(self, *arguments):
            """Write no access log."""

    return Handler


@contextmanager
def standing_in(broker):
    """The address of a server that answers as this broker."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(broker)) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        with broker.changed:
            broker.is_over = True
            broker.changed.notify_all()
        server.shutdown()
