"""Transactional writes to partitions and the transaction coordinator: requests go through the handlers, on real logs.

The tables are JOIN and TELL.
"""

import pytest

from lab.metadata import create_internal_topic, update_features
from ottla.broker.cluster.features import FeatureUpdate
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from tests.engine import require_plain
from tests.fetching import fetch
from tests.tables.rows import BUSY, EPOCH, FENCED, LOADING, MAPPING, STATE, row, rows
from tests.unit.broker.txn.test_txn_v2_writes import Client, decode_produce

ABORTABLE, REPLICAS = E.TRANSACTION_ABORTABLE, E.NOT_ENOUGH_REPLICAS
LEDGER = [("ledger", index) for index in range(4)]
OFFSETS = ("__consumer_offsets", 1)  # where group "g" has its offsets
EMPTY = (0, 0)


@pytest.fixture
def client(parts):
    create_internal_topic(parts.cluster, "__consumer_offsets")
    parts.clock.settle()
    assert parts.groups.offsets.partition_for("g") == OFFSETS[1]
    return Client(parts)


def in_transaction(client, *places):
    """Add the partitions as a V1 client does."""
    coordinator = client.parts.coordinator
    assert client.parts.ask(coordinator.add_partitions("t", *client.producer, places)) is E.NONE


def fetch_offset(client, stable=False):
    _, ((_, ((_, offset),)),) = fetch(client.parts.groups.offsets, "g", [("ledger", [0])], stable)
    return offset


def sent(client, body, version=11):
    return decode_produce(client.parts.begin(0, version, body), version)


@pytest.mark.parametrize("version", [3, 11, 12])
@row("JOIN-1 two ids", "JOIN-1 two epochs")
def test_one_request_has_one_producer(row, client, parts, version):
    in_transaction(client, *LEDGER[:2])
    one = client.body(LEDGER[0], version=version)
    other = {"producer_id": 77} if "ids" in row else {"epoch": client.producer[1] + 1}
    two = client.body(LEDGER[1], version=version, **other)
    both = one._replace(topics=[("ledger", one.topics[0][1] + two.topics[0][1])])
    assert sent(client, both, version) is MAPPING
    assert [parts.offsets(place) for place in LEDGER[:2]] == [EMPTY, EMPTY]


@pytest.mark.parametrize("version", [3, 11, 12])
@row("JOIN-2")
def test_transactional_batches_need_a_transactional_id(row, client, parts, version):
    in_transaction(client, LEDGER[0])
    body = client.body(LEDGER[0], version=version)._replace(transactional_id=None)
    assert sent(client, body, version) is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert parts.offsets(LEDGER[0]) == EMPTY


@rows(
    [
        *[(f"JOIN-3 version {v}", v, STATE) for v in (3, 10)],
        ("JOIN-4 version 11", 11, ABORTABLE),
        *[(f"JOIN-5 version {v}", v, E.NONE) for v in (12, 13)],
    ]
)
def test_produce_to_a_partition_that_was_not_added(case, client, parts):
    _, version, error = case
    assert client.produce(LEDGER[0], version=version) is error
    if error:
        assert (client.state.status, parts.offsets(LEDGER[0])) == (S.EMPTY, EMPTY)
        in_transaction(client, LEDGER[1])
        assert client.produce(LEDGER[0], version=version) is error
        assert client.produce(LEDGER[1], version=version) is E.NONE
        assert list(client.state.partitions) == [LEDGER[1]]
    else:
        assert (client.state.status, list(client.state.partitions)) == (S.ONGOING, LEDGER[:1])
        assert client.state.client_version == 2
        assert parts.offsets(LEDGER[0]) == (0, 1)


@rows(
    [
        *[(f"JOIN-6 version {v}", v, STATE) for v in (0, 3)],
        ("JOIN-7 version 4", 4, ABORTABLE),
        ("JOIN-8 version 5", 5, E.NONE),
    ]
)
def test_offsets_of_a_group_that_was_not_added(case, client, parts):
    _, version, error = case
    assert client.commit_offset(version) is error
    if error:
        assert (client.state.status, parts.offsets(OFFSETS)) == (S.EMPTY, EMPTY)
        in_transaction(client, OFFSETS)
        assert client.commit_offset(version) is E.NONE
    assert (list(client.state.partitions), parts.offsets(OFFSETS)) == ([OFFSETS], (0, 1))
    assert client.state.client_version == (0 if error else 2)


def forbid_requests(parts):
    """Fail the test if the coordinator is asked."""
    require_plain()
    parts.coordinator.verify = lambda *given: pytest.fail("verified")
    parts.coordinator.add_partitions = lambda *given, **more: pytest.fail("added")


@pytest.mark.parametrize("version", [3, 11, 12])
@row("JOIN-9 idempotent", "JOIN-9 plain")
def test_non_transactional_batches_are_written_without_verification(row, client, parts, version):
    forbid_requests(parts)
    producer = {"producer_id": client.producer[0], "producer_epoch": 0, "base_sequence": 4}
    batch = build_batch([(b"k", b"v")], timestamp_ms=parts.clock.now_ms(), **(producer if "idem" in row else {}))
    body = client.body(LEDGER[0], version=version)._replace(topics=[("ledger", [(0, memoryview(batch))])])
    assert sent(client, body, version) is E.NONE
    assert (client.state.status, parts.offsets(LEDGER[0])) == (S.EMPTY, (1, 1))


@rows(
    [
        *[(f"JOIN-10 Produce {v}", v, False) for v in (3, 11)],
        *[(f"JOIN-10 TxnOffsetCommit {v}", v, True) for v in (0, 4)],
    ]
)
def test_without_verification_what_was_not_added_is_written(case, client, parts):
    _, version, offsets = case
    parts.context.config = type(parts.config)(transaction_partition_verification_enable=False)
    forbid_requests(parts)
    assert (client.commit_offset(version) if offsets else client.produce(LEDGER[0], version=version)) is E.NONE
    assert parts.offsets(OFFSETS if offsets else LEDGER[0]) == (0, 1)
    assert client.state.status is S.EMPTY


@row("JOIN-11 Produce 12", "JOIN-11 Produce 13", "JOIN-11 TxnOffsetCommit 5")
def test_without_verification_v2_adds_as_always(row, client, parts):
    parts.context.config = type(parts.config)(transaction_partition_verification_enable=False)
    version = int(row.split()[-1])
    if "Offset" in row:
        assert client.commit_offset(version) is E.NONE
    else:
        assert client.produce(LEDGER[0], version=version) is E.NONE
    assert list(client.state.partitions) == [OFFSETS if "Offset" in row else LEDGER[0]]


@pytest.mark.parametrize("version", [3, 12])
@row("JOIN-13", "JOIN-14", "CODE-10 from the log")
def test_produce_known_to_the_log_sends_no_verification_request(row, client, parts, version):
    stale = row != "JOIN-14"
    assert client.produce(LEDGER[0]) is E.NONE
    if stale:
        assert client.end() is E.NONE
        client.producer = (client.producer[0], 0)
    end = parts.offsets(LEDGER[0])[1]
    forbid_requests(parts)
    if stale:
        assert client.produce(LEDGER[0], version=version, sequence=1) is EPOCH
        assert parts.offsets(LEDGER[0]) == (end, end)
    else:
        assert client.produce(LEDGER[0], version=version, sequence=1) is E.NONE
        assert parts.offsets(LEDGER[0]) == (0, end + 1)


@pytest.mark.parametrize("version", [4, 5])
@row("JOIN-13 offsets", "JOIN-14 offsets", "CODE-11 from the log")
def test_offset_commits_known_to_the_log_send_no_verification_request(row, client, parts, version):
    stale = "14" not in row
    assert client.commit_offset() is E.NONE
    if stale:
        assert client.end() is E.NONE
        client.producer = (client.producer[0], 0)
    end = parts.offsets(OFFSETS)[1]
    forbid_requests(parts)
    assert client.commit_offset(version) is (EPOCH if stale else E.NONE)
    assert parts.offsets(OFFSETS) == ((end, end) if stale else (0, end + 1))


class Said:
    """A coordinator that gives the same answer to every question and counts the questions."""

    def __init__(self, parts, error):
        require_plain()
        self.asked = []
        self.error = error

        def verify(name, producer_id, epoch, places):
            self.asked.append((name, producer_id, epoch, list(places)))
            return [self.error] * len(places)

        async def add_partitions(name, producer_id, epoch, places, client_version=0, **more):
            assert client_version == 2
            self.asked.append((name, producer_id, epoch, list(places)))
            return self.error

        parts.coordinator.verify = verify
        parts.coordinator.add_partitions = add_partitions


@row("JOIN-15 version 11", "JOIN-15 version 12")
def test_only_partitions_new_to_the_transaction_are_verified(row, client, parts):
    version = int(row.split()[-1])
    assert client.produce(LEDGER[0]) is E.NONE
    said = Said(parts, E.NONE)
    body = client.body(*LEDGER[:3], version=version)
    known = client.body(LEDGER[0], version=version, sequence=1).topics[0][1]
    body = body._replace(topics=[("ledger", known + body.topics[0][1][1:])])
    assert sent(client, body, version) is E.NONE
    owner = ("t", *client.producer)
    alone = [(*owner, [place]) for place in LEDGER[1:3]]
    # V2 adds all of them in one step, and each is verified in the step of its append.
    assert said.asked == (alone if version == 11 else [(*owner, LEDGER[1:3]), *alone])


LATER = (LOADING, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
PRODUCES = [
    ("TELL-1", (3, 11, 12), E.NONE, E.NONE),
    ("TELL-3", (3, 10, 11, 12, 13), FENCED, EPOCH),
    ("TELL-5", range(3, 11), ABORTABLE, STATE),
    ("TELL-7", (11,), ABORTABLE, ABORTABLE),
    ("TELL-9", (3, 11, 12, 13), MAPPING, MAPPING),
    ("TELL-11", range(3, 12), BUSY, REPLICAS),
    *[(f"TELL-15 {error.name}", (3, 11, 12, 13), error, REPLICAS) for error in LATER],
    ("CODE-10 from the coordinator", range(3, 14), FENCED, EPOCH),
]


@rows(PRODUCES)
def test_produce_maps_the_answer_of_the_verification(case, client, parts):
    _, versions, answer, told = case
    for number, version in enumerate(versions):
        place = LEDGER[0] if told else LEDGER[number]
        said = Said(parts, answer)
        assert client.produce(place, version=version) is told, version
        assert said.asked[0] == ("t", *client.producer, [place])
        assert parts.offsets(place) == (EMPTY if told else (0, 1))


COMMITS = [
    *[(f"TELL-2 version {v}", (v,), E.NONE, E.NONE) for v in (0, 4, 5)],
    ("TELL-4", range(6), FENCED, EPOCH),
    ("TELL-6", range(4), ABORTABLE, STATE),
    ("TELL-8", (4,), ABORTABLE, ABORTABLE),
    ("TELL-10", range(6), MAPPING, MAPPING),
    ("TELL-12", range(5), BUSY, BUSY),
    ("TELL-14", (5,), BUSY, BUSY),
    *[(f"TELL-16 {error.name}", range(2, 6), error, error) for error in LATER],
    ("OFFSET-21 verified", range(2), LOADING, E.COORDINATOR_NOT_AVAILABLE),
    ("OFFSET-22 verified", range(2, 6), LOADING, LOADING),
    ("CODE-11 from the coordinator", range(6), FENCED, EPOCH),
]


@rows(COMMITS)
def test_txn_offset_commit_maps_the_answer_of_the_verification(case, client, parts):
    _, versions, answer, told = case
    for version in versions:
        said = Said(parts, answer)
        assert client.commit_offset(version) is told, version
        asked = ("t", *client.producer, [OFFSETS])
        # The added partition is verified again in the step of the append.
        assert said.asked == [asked] * (2 if version == 5 and not answer else 1)
    assert parts.offsets(OFFSETS) == (EMPTY if told else (0, 1))
    assert fetch_offset(client, stable=True).error is (E.NONE if told else E.UNSTABLE_OFFSET_COMMIT)


@row("TELL-13 version 12", "TELL-13 version 13")
def test_produce_of_v2_retries_a_busy_coordinator_for_100_ms(row, client, parts):
    version = int(row.split()[-1])
    said = Said(parts, BUSY)
    replies = client.begin_produce(LEDGER[0], version=version)
    parts.clock.advance(99)
    assert (replies, len(said.asked)) == ([], 5)  # at 0, 20, 40, 60, 80
    parts.clock.advance(1)
    assert decode_produce(replies, version) is BUSY
    assert (len(said.asked), parts.offsets(LEDGER[0])) == (6, EMPTY)


@row("TELL-13 then NONE")
def test_produce_of_v2_succeeds_after_the_coordinator_was_busy(row, client, parts):
    said = Said(parts, BUSY)
    replies = client.begin_produce(LEDGER[0])
    parts.clock.advance(30)
    said.error = E.NONE
    parts.clock.advance(10)
    assert decode_produce(replies) is E.NONE
    assert parts.offsets(LEDGER[0]) == (0, 1)


@row("END2-31 Produce", "END2-31 TxnOffsetCommit")
def test_v2_begins_nothing_at_level_0(row, client, parts):
    update_features(parts.cluster, [FeatureUpdate("transaction.version", 0, 2)])
    told = client.produce(LEDGER[0]) if "Produce" in row else client.commit_offset()
    assert (told, client.state.status) == (E.UNSUPPORTED_VERSION, S.EMPTY)
    assert (parts.offsets(LEDGER[0]), parts.offsets(OFFSETS)) == (EMPTY, EMPTY)
