"""Requests of many rows: they are served over several turns, and the response is the same as that of few rows."""

from uuid import UUID

import pytest

from lab.furnish import furnish
from ottla.broker.api import add_partitions_to_txn, reply
from ottla.broker.api.indexed_rows import index_last_rows
from ottla.broker.api.leave_group import MEMBERS_AT_ONCE
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker
from tests.unit.broker.test_bounded import SIZE

MANY = 5_000
MOST_US = 2 * SHARE_US
MOST_UNCHARGED_CALLS = 1_000
"""Less than one for each row."""
OF_PRODUCER = {"transactional_id": "txn", "producer_id": 0, "producer_epoch": 0}
IN_GROUP = {"group_id": "g", "generation_id": -1, "member_id": ""}


def offsets(count, **fields):
    rows = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in range(count)]
    return {"topics": [{"name": "none", "partitions": rows}, {"name": "nor-this", "partitions": rows[:1]}], **fields}


def partitions(count):
    return [{"name": "none", "partitions": [*range(count)]}, {"name": "nor-this", "partitions": [0]}]


def requests(count):
    """Yield (API, version, fields)."""
    rows = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in range(count)]
    wanted = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0}
    yield K.FETCH, 12, {**wanted, "topics": [{"topic": "none", "partitions": rows}]}
    by_id = {**wanted, "topics": [{"topic_id": UUID(int=7), "partitions": rows}]}
    yield K.FETCH, 17, {**by_id, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
    yield K.OFFSET_COMMIT, 8, offsets(count, group_id="g", generation_id_or_member_epoch=-1, member_id="")
    yield K.TXN_OFFSET_COMMIT, 2, offsets(count, group_id="g", **OF_PRODUCER)
    yield K.TXN_OFFSET_COMMIT, 5, offsets(count, **IN_GROUP, **OF_PRODUCER)
    of_clients = {f"v3_and_below_{name}": value for name, value in OF_PRODUCER.items()}
    yield K.ADD_PARTITIONS_TO_TXN, 3, {**of_clients, "v3_and_below_topics": partitions(count)}
    transactions = [{**OF_PRODUCER, "verify_only": verify, "topics": partitions(count)} for verify in (True, False)]
    yield K.ADD_PARTITIONS_TO_TXN, 5, {"transactions": transactions}
    marker = {"producer_id": 0, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    topics = [{"name": "none", "partition_indexes": [*range(count)]}]
    yield K.WRITE_TXN_MARKERS, 1, {"markers": [{**marker, "topics": topics}]}
    members = [{"member_id": f"m-{number}"} for number in range(count)]
    yield K.LEAVE_GROUP, 5, {"group_id": "group-00000", "members": members}
    given = [{"member_id": f"m-{number}", "assignment": b"a"} for number in range(count)]
    yield K.SYNC_GROUP, 4, {**IN_GROUP, "group_instance_id": None, "assignments": given}
    (row,) = offsets(1)["topics"][1]["partitions"]
    by_id = [{"topic_id": UUID(int=number), "partitions": [row]} for number in range(1, count // 2 + 2)]
    yield K.TXN_OFFSET_COMMIT, 6, {**IN_GROUP, **OF_PRODUCER, "topics": by_id}


SMALL = SIZE._replace(topics=2, partitions=2, groups=1, ids=1, offsets=1, logs=1, records=1)
CASES = range(len([*requests(1)]))
IDS = [f"{api.title} {version}" for api, version, _ in requests(1)]


@pytest.fixture(scope="module")
def broker():
    broker = MemoryBroker()
    furnish(broker.ask, broker.advance, SMALL)
    for key, version, fields in requests(1):  # the first use of a version costs more
        broker.serve(message(key, version, **fields), version)
    return broker


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_many_rows_are_answered_in_shares(broker, case):
    key, version, fields = [*requests(MANY)][case]
    weight = broker.weigh(message(key, version, **fields), version)
    assert weight.us < MOST_US and weight.uncharged_calls < MOST_UNCHARGED_CALLS
    assert broker.bugs == []


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_reply_encoded_in_shares_equals_one_encoded_at_once(broker, case, monkeypatch):
    key, version, fields = [*requests(reply.FEW_ROWS + 1)][case]
    in_shares = broker.serve(message(key, version, **fields), version)
    for module in (reply, add_partitions_to_txn):
        monkeypatch.setattr(module, "FEW_ROWS", MANY)
    assert broker.serve(message(key, version, **fields), version) == in_shares
    codec.decode_response(key, version, in_shares[4:])


def test_names_are_indexed_over_turns_and_the_last_mention_counts():
    broker, found = MemoryBroker(), []
    rows = [("twice", 1), *((f"name-{number}", 0) for number in range(MANY)), ("twice", 2)]
    looking = index_last_rows(broker.turns, rows, lambda row: row[0])
    broker.turns.event(lambda: broker.turns.start(looking, found.append, broker.bugs.append))
    assert found == []  # it rests
    broker.advance(100.0)
    (last,) = found
    assert [*last] == [name for name, _ in rows[:-1]] and last["twice"] == ("twice", 2)


def test_members_far_apart_in_one_request_leave():
    broker = MemoryBroker(group_initial_rebalance_delay_ms=0)
    furnish(broker.ask, broker.advance, SMALL)
    for name in ("first", "last"):
        asked = {"group_id": "g", "group_instance_id": name, "member_id": "", "protocol_type": "consumer"}
        asked |= {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 500}
        protocols = [{"name": "range", "metadata": b""}]
        joined = broker.ask(K.JOIN_GROUP, 5, message(K.JOIN_GROUP, 5, **asked, protocols=protocols))
        assert joined.error_code == 0
    nobody = [{"member_id": f"nobody-{number}"} for number in range(2 * MEMBERS_AT_ONCE)]
    who = [{"member_id": "", "group_instance_id": name} for name in ("first", "last")]
    left = broker.ask(K.LEAVE_GROUP, 4, message(K.LEAVE_GROUP, 4, group_id="g", members=[who[0], *nobody, who[1]]))
    errors = [member.error_code for member in left.members]
    assert left.error_code == 0 and errors == [0, *[E.UNKNOWN_MEMBER_ID] * len(nobody), 0]
    described = broker.ask(K.DESCRIBE_GROUPS, 4, message(K.DESCRIBE_GROUPS, 4, groups=["g"]))
    assert described.groups[0].group_state == "Empty"
