"""Requests and replies in the stream of `/v1/trace`, on a broker in memory."""

import json
import sys
from pathlib import Path
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from web import Web, request

from ottla.admin.http import PIECE_BYTES, REQUEST_MS
from ottla.admin.routes import Router
from ottla.admin.trace import listening
from ottla.admin.trace.description import describe_steps
from ottla.admin.trace.listening import MOST_LISTENERS, Trace
from ottla.admin.trace.traced import MOST_ROWS, TracedReply, TracedRequest
from ottla.broker.api.table import TABLE
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.requests import codec
from ottla.protocol.requests.fetch_wire import FetchableTopicResponse, FetchPartitionData, encode_fetch_response
from ottla.protocol.requests.frames import RequestHeader, encode_request_header, parse_request_header, response_prefix
from ottla.testkit.in_memory.wire import message
from tests.api.callers import FEW, batch, produce
from tests.memory_broker import MemoryBroker

LEDGER, TXN = "ledger", "txn"
ID = UUID("112a2381-db54-4cf7-bb8b-b487adf78f58")


class Traced:
    """A broker whose admin port has a trace."""

    def __init__(self, brokers=1):
        self.web = Web()
        self.web.broker = self.broker = MemoryBroker(brokers=brokers, **FEW)
        parts = self.broker.assembly.broker
        self.observer = parts.observer
        self.web.router = Router(Trace(parts, self.broker.clock).routes)
        self.broker.create_topic(LEDGER, 2)
        for key_type in (0, 1):
            self.broker.call_when_ready(K.FIND_COORDINATOR, 1, key="anybody", key_type=key_type)

    def listen(self, query=""):
        visitor = self.web.connect()
        visitor.send(request("GET", f"/v1/trace{query}"))
        assert lines_of(visitor)[0]["kind"] == "listening"
        return visitor

    def init(self, name=TXN):
        asked = {"transactional_id": name, "transaction_timeout_ms": 1_000, "producer_id": -1, "producer_epoch": -1}
        return self.broker.call_when_ready(K.INIT_PRODUCER_ID, 4, **asked)

    def end(self, producer_id, epoch, name=TXN):
        asked = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
        return self.broker.call(K.END_TXN, 3, **asked)


@pytest.fixture
def tracer():
    tracer = Traced()
    yield tracer
    assert tracer.broker.bugs == []


def lines_of(visitor):
    """Return the objects of a chunked stream."""
    _, _, data = bytes(visitor.transport.written).partition(b"\r\n\r\n")
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return [json.loads(line) for line in body.splitlines()]


def read_trace(tracer, visitor):
    tracer.broker.advance(50)
    return lines_of(visitor)[1:]


def test_a_request_and_its_reply_are_traced_with_their_fields(tracer):
    visitor = tracer.listen("?api=endtxn")
    producer = tracer.init()
    tracer.end(producer.producer_id, 7)
    asked, answered = read_trace(tracer, visitor)
    head = {"client_id": "client", "correlation_id": 1, "api": "EndTxn", "version": 3}
    fields = {"transactional_id": TXN, "producer_id": producer.producer_id, "producer_epoch": 7, "committed": True}
    assert {name: asked[name] for name in head} == head
    assert (asked["kind"], asked["fields"]) == ("request", fields)
    assert asked["size_bytes"] == 4 + 10 + len("client") + 1 + (4 + 8 + 2 + 1) + 1
    assert {name: answered[name] for name in head} == head
    assert (answered["kind"], answered["errors"]) == ("reply", ["PRODUCER_FENCED"])
    assert answered["size_bytes"] == 16 and answered["took_ms"] >= 0
    assert answered["time_ms"] >= asked["time_ms"] > 0


def test_a_trace_of_several_brokers_names_the_broker_of_each_request(tracer):
    several = Traced(brokers=3)
    for each in (several, tracer):
        visitor = each.listen("?api=InitProducerId")
        each.init()
        rows = lines_of(visitor)[-2:]
        assert [row["kind"] for row in rows] == ["request", "reply"]
        assert [row.get("broker") for row in rows] == ([1, 1] if each is several else [None, None])


def test_produced_records_are_traced_by_their_batch_header(tracer):
    visitor = tracer.listen("?api=Produce")
    records = batch(3, producer_id=4, producer_epoch=0, base_sequence=0)
    produce(tracer.broker, records, LEDGER, 1)
    asked, answered = read_trace(tracer, visitor)
    assert asked["fields"]["acks"] == -1
    (topic,) = asked["fields"]["topic_data"]
    (row,) = topic["partition_data"]
    sequence = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "transactional": False}
    assert (topic["name"], row["index"]) == (LEDGER, 1)
    assert row["records"] == {"size_bytes": len(records), "records": 3} | sequence
    assert answered["fields"]["responses"][0]["partition_responses"][0]["base_offset"] == 0


def test_the_transactional_id_filter_matches_no_other_id_or_group(tracer):
    visitor = tracer.listen(f"?transactional_id={TXN}")
    other = tracer.init("txn-2")
    own = tracer.init()
    tracer.end(other.producer_id, 0, "txn-2")
    tracer.end(own.producer_id, own.producer_epoch)
    tracer.broker.call(K.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["txn-2", TXN])
    tracer.broker.call(K.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[TXN])  # a group of that name
    produce(tracer.broker, batch(), transactional_id="txn-2")
    produce(tracer.broker, batch(), transactional_id=TXN)
    told = read_trace(tracer, visitor)
    assert [each["api"] for each in told if each["kind"] == "request"] == [
        "InitProducerId",
        "EndTxn",
        "FindCoordinator",
        "Produce",
    ]
    assert len(told) == 8


def test_the_group_filter_matches_no_other_group(tracer):
    visitor = tracer.listen("?group=g")
    for group in ("g", "gg"):
        tracer.broker.call(K.OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False)
        tracer.broker.call(K.OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": None}], require_stable=False)
    told = read_trace(tracer, visitor)
    assert [(each["kind"], each["version"]) for each in told] == [
        *(("request", 7), ("reply", 7)),
        *(("request", 8), ("reply", 8)),
    ]


def test_conditions_hold_together(tracer):
    visitors = [tracer.listen(query) for query in ("?client_id=client&api=EndTxn", "?client_id=else", "?client_id=")]
    tracer.end(0, 0)
    assert [len(read_trace(tracer, visitor)) for visitor in visitors] == [2, 0, 0]


def test_an_api_that_there_is_not_is_refused(tracer):
    reply = tracer.web.ask("GET", "/v1/trace?api=EndTx")
    assert reply.status == 400
    assert reply.value["error"] == "There is no API EndTx: did you mean EndTxn?"


def test_requests_are_observed_only_while_a_trace_is_open(tracer):
    assert tracer.observer.on_request is None
    first, second = tracer.listen(), tracer.listen()
    first.hang_up()
    assert tracer.observer.on_request is not None
    second.hang_up()
    assert tracer.observer.on_request is None


def test_a_reader_that_reads_nothing_is_cut_off_and_unregistered(tracer):
    visitor = tracer.listen()
    visitor.transport.takes = 0
    tracer.end(0, 0)
    tracer.broker.advance(REQUEST_MS + 10)
    assert visitor.transport.aborted and tracer.observer.on_request is None


def test_a_slow_reader_gets_the_number_of_dropped_lines(tracer, monkeypatch):
    monkeypatch.setattr(listening, "MOST_WAITING", 5)
    visitor = tracer.listen("?api=EndTxn")
    visitor.transport.takes = 0
    for _ in range(10):
        tracer.end(0, 0)
    visitor.transport.take(PIECE_BYTES)
    told = read_trace(tracer, visitor)
    kinds = [each["kind"] for each in told]
    assert kinds == ["request", "reply"] * 3 + ["dropped"]
    assert told[-1]["count"] == 20 - 6


def test_only_a_few_may_listen(tracer):
    for _ in range(MOST_LISTENERS):
        tracer.listen()
    reply = tracer.web.ask("GET", "/v1/trace")
    assert reply.status == 409 and "traces are running" in reply.value["error"]


def test_only_a_few_may_listen_when_many_ask_at_once(tracer):
    visitors = [tracer.web.connect() for _ in range(60)]

    def all_ask():
        for visitor in visitors:
            visitor.connection.data_received(request("GET", "/v1/trace"))

    tracer.broker.turns.event(all_ask)
    tracer.broker.advance(500)
    statuses = [bytes(visitor.transport.written)[9:12] for visitor in visitors]
    assert (statuses.count(b"200"), statuses.count(b"409")) == (MOST_LISTENERS, 60 - MOST_LISTENERS)


def test_head_on_a_trace_does_not_count_as_a_listener(tracer):
    for _ in range(MOST_LISTENERS + 1):
        visitor = tracer.web.connect()
        visitor.send(request("HEAD", "/v1/trace"))
        assert bytes(visitor.transport.written).startswith(b"HTTP/1.1 200")
    assert tracer.observer.on_request is None


def test_secrets_are_hidden_in_the_trace_and_the_log(tracer, caplog):
    caplog.set_level("DEBUG", logger="ottla")
    visitor = tracer.listen("?verbose=true")
    rows = [("retention.ms", "60000"), ("ssl.key.password", "hunter2"), ("plugin.thing", "hunter2")]
    configs = [{"name": name, "value": value, "config_operation": 0} for name, value in rows]
    resources = [{"resource_type": 2, "resource_name": LEDGER, "configs": configs}]
    tracer.broker.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    sasl = message(K.SASL_AUTHENTICATE, 2, auth_bytes=b"\0me\0hunter2")
    assert tracer.broker.serve(sasl, 2) is not None
    told = read_trace(tracer, visitor)
    assert "hunter2" not in json.dumps(told) + caplog.text
    (resource,) = told[0]["fields"]["resources"]
    assert [row["value"] for row in resource["configs"]] == ["60000", "[hidden]", "[hidden]"]
    sasl, refused = told[-2:]
    assert (sasl["api"], sasl["fields"]) == ("SaslAuthenticate", {"auth_bytes": "[hidden]"})
    assert refused["kind"] == "reply" and refused["errors"] == ["ILLEGAL_SASL_STATE"]


def test_malformed_requests_close_the_connection_and_not_the_trace(tracer):
    visitor = tracer.listen()
    header = encode_request_header(RequestHeader(K.END_TXN, 3, 9, "client"))
    for frame in (b"", b"\0\1", header + b"\xff\xff", encode_request_header(RequestHeader(99, 1, 9, "x"))):
        client = tracer.broker.client()
        client._link.send(len(frame).to_bytes(4, "big") + frame)
        tracer.broker.advance(5)
        assert client.closed
    told = read_trace(tracer, visitor)
    assert [(each["kind"], each["api"]) for each in told] == [
        *(("request", "EndTxn"), ("closed", "EndTxn")),
        *(("request", "API 99"), ("closed", "API 99")),
    ]
    assert "unreadable" in told[0] and "unreadable" in told[2]


def test_a_trace_is_charged_for_and_shared(tracer):
    for _ in range(MOST_LISTENERS):
        tracer.listen("?verbose=true")
    names = [{"name": f"topic-{number}"} for number in range(1_000)]
    asked = message(K.METADATA, 4, topics=names, allow_auto_topic_creation=False)
    tracer.broker.serve(asked, 4)  # so that readers are made
    weight = tracer.broker.weigh(asked, 4)
    assert weight.us <= 2 * SHARE_US and weight.uncharged_calls <= 2_000


# -- every message


def trace_request(key, version, content):
    frame = encode_request_header(RequestHeader(key, version, 1, "c")) + content
    header, body = parse_request_header(memoryview(frame))
    asked = TracedRequest(header, "peer", len(frame), 1, 1.0)
    asked.keep(body)
    return asked


def describe_at_once(passed, verbose):
    steps = describe_steps(passed, verbose, name_of)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def name_of(topic_id):
    return LEDGER if topic_id == ID else None


@pytest.mark.parametrize("key", TABLE, ids=lambda key: K(key).title)
def test_every_version_of_every_message_can_be_described(key):
    api = TABLE[key]
    for version in range(api.min_version, api.max_version + 1):
        content = codec.request_class(key)(version=version).encode(version=version)
        asked = trace_request(key, version, bytes(content))
        for verbose in (False, True):
            told = describe_at_once(asked, verbose)
            assert told["fields"] is not None and "unreadable" not in told
        reply = codec.response_class(key)(version=version)
        parts = [frame_reply(key, version, bytes(reply.encode(version=version)))]
        told = describe_at_once(TracedReply(asked, 2, 2.5, parts), True)
        assert told["fields"] is not None and "unreadable" not in told and told["took_ms"] == 1.5


def frame_reply(key, version, body):
    return response_prefix(key, version, 1, len(body)) + body


class InFile:
    """Records in a file, which only the socket may read."""

    def __init__(self, size_bytes):
        self.size_bytes = size_bytes

    def __len__(self):
        return self.size_bytes


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_reply_is_traced_without_its_records(version):
    small, large = batch(2, base_offset=5), batch(1, base_offset=9, producer_id=3, producer_epoch=1, base_sequence=0)
    large += bytes(5_000)
    rows = [
        FetchPartitionData(0, 0, 7, 6, 1, [(3, 4), (5, 6)], small),
        FetchPartitionData(1, 0, 10, 10, 0, None, memoryview(large)),
        FetchPartitionData(2, 0, 9_000, 8_000, 0, [], InFile(70_000)),
        FetchPartitionData(3, 1, -1, -1, -1, None, None, diverging_epoch=(1, 2), current_leader=(1, 4)),
    ]
    topics = [FetchableTopicResponse(LEDGER, rows, ID.bytes), FetchableTopicResponse(LEDGER, rows[:1], ID.bytes)]
    parts = encode_fetch_response(topics, version, 1, throttle_time_ms=3)
    asked = trace_request(K.FETCH, version, b"")
    answered = TracedReply(asked, 2, 2.5, parts)
    assert answered.size_bytes == sum(map(len, parts))
    told = describe_at_once(answered, False)
    assert told["errors"] == ["OFFSET_OUT_OF_RANGE"]
    (topic,) = told["fields"]["responses"]
    first, second, third, fourth, again = topic["partitions"]
    assert topic["topic"] == LEDGER and first == again
    assert (first["high_watermark"], first["last_stable_offset"], first["aborted_transactions"]) == (7, 6, 2)
    assert first["records"] == {"size_bytes": len(small), "records": 2, "base_offset": 5}
    assert second["records"] == {"size_bytes": len(large), "base_offset": 9}
    assert third["records"] == {"size_bytes": 70_000}
    assert fourth == {"partition_index": 3, "error_code": "OFFSET_OUT_OF_RANGE"}


def test_only_the_first_rows_of_a_message_are_traced_and_others_counted():
    rows = [{"index": index, "records": None} for index in range(40)]
    asked = {"transactional_id": None, "acks": 1, "timeout_ms": 1}
    made = message(K.PRODUCE, 9, **asked, topic_data=[{"name": LEDGER, "partition_data": rows}])
    told = describe_at_once(trace_request(K.PRODUCE, 9, bytes(made.encode(version=9))), False)
    assert len(told["fields"]["topic_data"][0]["partition_data"]) == 10 and told["rows_left_out"] == 30
    reply = codec.response_class(K.METADATA)
    topics = [reply.MetadataResponseTopic(error_code=3, name=str(at), partitions=[]) for at in range(500)]
    body = reply(brokers=[], cluster_id="x", controller_id=1, topics=topics).encode(version=4)
    answered = TracedReply(trace_request(K.METADATA, 4, b""), 2, 2.5, [frame_reply(K.METADATA, 4, bytes(body))])
    told = describe_at_once(answered, True)
    assert len(told["fields"]["topics"]) == MOST_ROWS and told["rows_left_out"] == 500 - MOST_ROWS
    made = message(K.METADATA, 4, topics=[{"name": str(at)} for at in range(2_000)], allow_auto_topic_creation=False)
    told = describe_at_once(trace_request(K.METADATA, 4, bytes(made.encode(version=4))), True)
    assert len(told["fields"]["topics"]) == MOST_ROWS and told["rows_left_out"] == 2_000 - MOST_ROWS
