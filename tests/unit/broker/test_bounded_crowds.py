"""Many clients wait for one sync or append and have pipelined another request: handlers resume in turn budgets."""

import collections

import pytest

from ottla.broker.costs import RESUME_US
from ottla.broker.dispatch import Dispatcher
from ottla.broker.turns import SHARE_US, Activity
from ottla.protocol.api_keys import ApiKey as K
from tests.api.callers import batch, coordinating

CLIENTS, EACH = 200, 2
LEAST_STEPS = 20  # the handlers did wait for one thing
MOST_STEPS = 1.5 * SHARE_US / RESUME_US
TOPIC, ID, GROUP = "crowded", "transactional-id", "group"


def init(number):
    fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return K.INIT_PRODUCER_ID, 4, {"transactional_id": f"{ID}-{number}", **fields}


def produce(number):
    rows = [{"index": 0, "records": batch()}]
    topics = [{"name": TOPIC, "partition_data": rows}]
    return K.PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout_ms": 1_000, "topic_data": topics}


def fetch(number):
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]
    topics = [{"topic": TOPIC, "partitions": partitions}]
    limits = {"max_wait_ms": 200, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    return K.FETCH, 4, {"replica_id": -1, **limits, "topics": topics}


def commit(number):
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    fields = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    return K.OFFSET_COMMIT, 2, {"group_id": GROUP, **fields, "topics": [{"name": TOPIC, "partitions": [row]}]}


ASKED = {
    "InitProducerId": init,
    "Produce": produce,
    "Fetch": fetch,
    "OffsetCommit": commit,
}


@pytest.fixture
def steps(monkeypatch):
    """Count the requests started and the handlers resumed in each event of the loop."""
    counts = collections.Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def count_call(self, *arguments):
            counts[self._turns.events] += 1
            return original(self, *arguments)

        monkeypatch.setattr(owner, name, count_call)

    count(Activity, "step")
    monkeypatch.setattr(Dispatcher, "_turns", property(lambda self: self._broker.turns), raising=False)
    count(Dispatcher, "start")
    return counts


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_handlers_that_one_sync_or_append_wakes_resume_in_shares(asked, steps):
    broker = coordinating(sync_ms=50.0, log_flush_interval_messages=1)
    broker.create_topic(TOPIC, 1, flush_messages="1")
    crowd = [broker.client(f"client-{number}") for number in range(CLIENTS)]
    for number, client in enumerate(crowd):  # a connection's first request waits by other rules
        key, version, fields = asked(number)
        client.post(key, version, **fields)
    broker.advance(500.0)
    steps.clear()
    for number, client in enumerate(crowd):
        key, version, fields = asked(number)
        for _ in range(EACH):
            client.post(key, version, **fields)
    broker.advance(20.0)
    key, version, fields = produce(0)  # wakes each Fetch
    broker.client("writer").post(key, version, **fields)
    broker.advance(3_000.0)
    assert [len(client.replies) for client in crowd] == [1 + EACH] * CLIENTS
    assert LEAST_STEPS <= max(steps.values()) <= MOST_STEPS
    assert broker.bugs == []
