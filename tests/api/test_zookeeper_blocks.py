"""Blocks of producer ids from a ZooKeeper node, as clients and the node see them."""

import json

import pytest

from lab.in_memory.zookeeper import ModelZooKeeper
from ottla.broker.cluster.zookeeper_blocks import ANSWER_MS, LAST_BACKOFF_MS
from ottla.broker.ports.zookeeper import NO_ANSWER, Answer, Outcome
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.producer_id_node import LAST_ID, Block, encode_block, parse_block
from tests.memory_broker import MemoryBroker

NODE = "/ottla/latest_producer_id_block"
LOADING = E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def model():
    return ModelZooKeeper()


def init(broker, transactional_id=None):
    answer = broker.call(K.INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=1_000)
    return E(answer.error_code) or answer.producer_id


def init_when_ready(broker, transactional_id):
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=transactional_id, key_type=1)
    asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 1_000}
    return broker.call_when_ready(K.INIT_PRODUCER_ID, 4, **asked).producer_id


def answer_always(broker, answer):
    broker.zookeeper._ask = lambda kind, work, on_answer: broker.clock.next_turn(lambda: on_answer(answer))


def last_block(model):
    return parse_block(model.nodes[NODE][0])


def test_a_missing_node_is_created_with_the_bytes_of_kafka(model):
    broker = MemoryBroker(zookeeper=model)
    assert NODE not in model.nodes
    assert init(broker) == 0
    assert model.nodes[NODE] == (b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}', 0)


def test_the_next_block_follows_the_last_one_of_any_broker(model):
    model.put(NODE, encode_block(Block(7, 41_000, 41_999)))
    broker = MemoryBroker(zookeeper=model)
    assert init(broker) == 42_000
    assert last_block(model) == Block(1, 42_000, 42_999)
    assert broker.assembly.broker.cluster.image.next_producer_id == 43_000


def test_an_empty_node_as_kafka_creates_it_begins_at_the_first_id(model):
    model.put(NODE, b"")
    assert init(MemoryBroker(zookeeper=model)) == 0
    assert last_block(model) == Block(1, 0, 999)


def test_brokers_of_one_process_and_of_others_share_the_counter(model):
    several, other = MemoryBroker(brokers=3, zookeeper=model), MemoryBroker(zookeeper=model)
    ids = [init(several.ask_broker(node_id)) for node_id in (3, 1, 2)]
    assert (ids, init(other)) == ([0, 1_000, 2_000], 3_000)
    assert last_block(model).broker == 1
    assert several.assembly.broker.cluster.image.next_producer_id == 3_000


def test_the_next_block_is_taken_before_the_last_one_runs_out(model):
    broker = MemoryBroker(zookeeper=model)
    cluster = broker.assembly.broker.cluster
    assert init(broker) == 0
    given = [cluster.next_producer_id() for _ in range(899)]
    broker.advance()
    assert last_block(model).last == 999
    given.append(cluster.next_producer_id())
    broker.advance()
    assert last_block(model).last == 1_999
    assert given + [cluster.next_producer_id() for _ in range(1_099)] == [*range(1, 2_000)]


def test_without_zookeeper_new_ids_wait_and_known_ones_continue(model):
    broker = MemoryBroker(zookeeper=model)
    assert init_when_ready(broker, "known") == 0
    cluster = broker.assembly.broker.cluster
    model.is_up = False
    while cluster.next_producer_id() is not None:
        broker.advance()
    assert init(broker) == init(broker, "new") == LOADING
    assert init(broker, "known") == 0
    model.is_up = True
    broker.advance(LAST_BACKOFF_MS)
    assert init(broker, "new") == 1_000


def test_a_change_whose_answer_is_lost_leaves_a_gap(model):
    broker = MemoryBroker(zookeeper=model)
    broker.zookeeper._lost = 2.0  # of these, half are lost before they are applied
    broker.zookeeper._random.random = lambda: 1.5
    assert init(broker) == LOADING
    model.put(NODE, encode_block(Block(1, 0, 999)))
    broker.zookeeper._lost = 0.0
    broker.advance(LAST_BACKOFF_MS)
    assert init(broker) == 1_000


def test_an_answer_that_comes_too_late_is_not_used(model, caplog):
    broker = MemoryBroker(zookeeper=model)
    late = []
    broker.zookeeper._after = lambda delay_ms, work: late.append(work)
    client = broker.client()
    client.send(K.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1_000)
    broker.advance(ANSWER_MS + 10)
    assert [reply.error_code for reply in client.replies] == [LOADING]
    while late:
        broker.turns.event(late.pop(0))
    broker.advance(LAST_BACKOFF_MS)
    assert NODE not in model.nodes and broker.assembly.broker.cluster.next_producer_id() is None
    broker.advance(ANSWER_MS)
    answer_always(broker, NO_ANSWER)
    assert init(broker) == LOADING
    assert caplog.text.count(f"{NODE} of zk:2181: no answer: check that ZooKeeper runs there") == 1


def test_a_node_below_the_metadata_log_is_refused_until_it_is_raised(model, caplog):
    broker = MemoryBroker(zookeeper=model)
    cluster = broker.assembly.broker.cluster
    model.put(NODE, encode_block(Block(1, 9_000, 9_999)))
    assert init(broker) == 10_000
    while cluster.next_producer_id() != 10_999:
        broker.advance()
    model.put(NODE, encode_block(Block(1, 0, 999)))
    while cluster.next_producer_id() is not None:
        broker.advance()
    assert init(broker) == LOADING
    known = cluster.image.next_producer_id
    assert f"ends at producer id 999, but the metadata log knows ids up to {known - 1}" in caplog.text
    assert f"ottla ids raise zk:2181/ottla {known}" in caplog.text and caplog.text.count("wiped") == 1
    model.put(NODE, encode_block(Block(-1, known - 1_000, known - 1)))
    broker.advance(LAST_BACKOFF_MS)
    assert init(broker) == known


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "it has no JSON"),
        (b"\xff", "it has no JSON"),
        (b"[" * 999, "it has no JSON"),
        (b"[]", "it has no block of version 1"),
        (b'{"version":2,"broker":1,"block_start":"0","block_end":"999"}', "it has no block of version 1"),
        (b'{"version":1,"broker":"1","block_start":"0","block_end":"999"}', "it has no number for broker"),
        (b'{"version":1,"broker":1,"block_start":0,"block_end":"999"}', "it has no digits for block_start"),
        (b'{"version":1,"broker":1,"block_start":"0","block_end":"-1"}', "it has no digits for block_end"),
        (b'{"version":1,"broker":1,"block_start":"9","block_end":"8"}', "the block 9 to 8 is not within 0"),
        (
            b'{"version":1,"broker":1,"block_start":"0","block_end":"%d"}' % (LAST_ID + 1),
            f"the block 0 to {LAST_ID + 1} is not within 0",
        ),
        (b" " * 1_001, "1001 bytes are no block"),
    ],
)
def test_content_that_is_no_block_is_never_replaced(model, caplog, data, why):
    model.put(NODE, data)
    assert init(MemoryBroker(zookeeper=model)) == LOADING
    assert model.nodes[NODE] == (data, 0)
    assert f"ZooKeeper node {NODE} of zk:2181: {why}" in caplog.text
    assert "ottla ids raise zk:2181/ottla 1" in caplog.text


def test_a_node_without_rights_is_named_once_with_the_remedy(model, caplog):
    broker = MemoryBroker(zookeeper=model)
    answer_always(broker, Answer(Outcome.NO_RIGHT, why="NoAuthError"))
    assert init(broker) == LOADING
    broker.advance(LAST_BACKOFF_MS)
    assert init(broker) == LOADING
    assert caplog.text.count(f"ZooKeeper node {NODE} of zk:2181: refused: let anyone read, write and create it") == 1


def test_ids_never_go_beyond_int64(model, caplog):
    model.put(NODE, encode_block(Block(1, 0, LAST_ID - 999)))
    assert init(MemoryBroker(zookeeper=model)) == LOADING
    assert f"{NODE} of zk:2181: it ends at producer id {LAST_ID - 999}, and int64 has no block after it" in caplog.text


def test_the_log_shows_the_node_after_each_connection(model, caplog):
    caplog.set_level("INFO", "ottla.broker.cluster.zookeeper_blocks")
    broker = MemoryBroker(zookeeper=model)
    model.put("/otla/latest_producer_id_block", b"{}")
    broker.turns.event(broker.zookeeper.on_connected)
    broker.advance()
    assert f"{NODE} of zk:2181 is missing: it is created with the first block. / has otla" in caplog.text
    model.put(NODE, json.dumps({"a": 1}).encode())
    broker.turns.event(broker.zookeeper.on_connected)
    broker.advance()
    assert f'{NODE} of zk:2181 has {{"a": 1}}' in caplog.text


def test_a_start_without_zookeeper_is_logged(model, caplog):
    broker = MemoryBroker(zookeeper=model)
    broker.zookeeper.is_connected = False
    broker.advance(5_000.0)
    assert "ZooKeeper zk:2181/ottla is not reached;" in caplog.text
