"""The live picture of a broker: its JSON and its event stream during real transactions."""

import http.client
import json

import pytest
from served import Served, create

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.testkit.in_memory.wire import message
from tests.timeout import EVENT_TIMEOUT_S


class Watched(Served):
    """A broker with an admin port, and a client of each."""

    def ready(self):
        super().ready()
        self.admin_port = int(self.process.stdout.readline().rpartition(":")[2])
        return self

    def open(self, target):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=EVENT_TIMEOUT_S)
        connection.request("GET", target)
        return connection.getresponse()

    def get(self, target):
        reply = self.open(target)
        body = json.loads(reply.read())
        assert reply.status == 200, body
        return body


class Producer:
    """A transactional producer of Kafka 4: partitions join a transaction with the batch."""

    name = "order-processor-01"

    def __init__(self, connection):
        self.connection = connection
        while (asked := self._ask(ApiKey.FIND_COORDINATOR, 1, key=self.name, key_type=1)).error_code:
            pass
        while (asked := self._ask(ApiKey.INIT_PRODUCER_ID, 4, transaction_timeout_ms=900_000)).error_code:
            pass
        self.producer_id, self.epoch = asked.producer_id, asked.producer_epoch

    def _ask(self, key_of_api, version, **fields):
        named = {} if "key" in fields else {"transactional_id": self.name}
        return self.connection.send(message(key_of_api, version, **named | fields), version=version)

    def produce(self, topic, *values):
        records = build_batch(
            [(None, value) for value in values],
            timestamp_ms=1,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(records)}]}]
        reply = self._ask(ApiKey.PRODUCE, 12, acks=-1, timeout_ms=1_000, topic_data=data)
        assert reply.responses[0].partition_responses[0].error_code == 0

    def commit(self):
        owner = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        reply = self._ask(ApiKey.END_TXN, 5, **owner, committed=True)
        return reply.error_code


@pytest.fixture
def broker_and_client(tmp_path):
    served = Watched(tmp_path / "data", "--admin-listen", "127.0.0.1:0").ready()
    with served.connect() as connection:
        create(connection, "ledger")
        yield served, connection
    code = served.end()
    _, log = served.process.communicate()
    assert (code, "Traceback" in log) == (0, False)


def blocks_of(stream):
    """Yield (event, data) of each block of a stream as it arrives."""
    fields = {}
    while line := stream.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        fields[name] = value
    if "data" in fields:
        yield fields["event"], json.loads(fields["data"])


def next_of(stream, kinds):
    """Read until these kinds of transaction events have arrived in this order."""
    wanted, seen = list(kinds), []
    while wanted:
        for event, data in blocks_of(stream):
            if event == "txn" and data["kind"] == wanted[0]:
                wanted.pop(0)
                seen.append(data)
    return seen


@pytest.mark.slow
def test_an_open_transaction_is_in_the_event_stream_and_the_json(broker_and_client):
    broker, connection = broker_and_client
    producer = Producer(connection)
    stream = broker.open("/v1/events")
    assert stream.headers["Content-Type"] == "text/event-stream"
    producer.produce("ledger", b"one", b"two")
    begun, joined = next_of(stream, ("begun", "partition"))
    assert (begun["transactional_id"], joined["topic"]) == ("order-processor-01", "ledger")
    (row,) = broker.get("/v1/transactions")["transactions"]
    assert (row["state"], row["records"], row["producer_id"]) == ("Ongoing", 2, producer.producer_id)
    assert row["partitions"] == [{"topic": "ledger", "partition": 0, "first_offset": 0}]
    overview = broker.get("/v1/overview")
    assert overview["open_transactions"] == 1 and 0 <= overview["oldest_open_ms"] <= 600_000
    (held, *_) = broker.get("/v1/partitions?prefix=ledger")["partitions"]
    assert (held["last_stable_offset"], held["high_watermark"], len(held["open"])) == (0, 2, 1)
    why = broker.get("/v1/partitions/ledger/0/why")
    assert "'order-processor-01' (in time" in why["text"]
    assert any(f"--bootstrap-server 127.0.0.1:{broker.port}" in command for command in why["commands"])
    assert producer.commit() == 0
    prepared, marker, completed = next_of(stream, ("prepared", "marker", "completed"))
    assert prepared["commit"] and marker["commit"] and completed["records"] == 2
    stream.close()
    history = broker.get("/v1/history")
    assert history["events"][-1] == completed
    assert sum(bucket["committed"] for bucket in history["buckets"]) == 1
    overview = broker.get("/v1/overview")
    assert overview["latency_ms"]["end_txn"]["p99"] > 0 and overview["loop"]["turn_p99_ms"] > 0
    assert overview["rates"]["transactions_committed"] > 0
