"""The coordinator over real partitions: LSO, aborted lists, and kill -9 between any two markers."""

import pytest

from ottla.broker.cluster.leaders import Leaders
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.log.manager import LogManager
from ottla.broker.log.results import Limit
from ottla.broker.log.settings import LogSettings, PartitionSettings
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns
from ottla.broker.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.batch import build_batch, iter_batches
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.produced import check_produced_batch

LEDGER = [("ledger", index) for index in range(4)]


class DeafSink:
    """The leaders, of whom only the first `hearing` markers are heard."""

    def __init__(self, leaders, hearing):
        self.leaders = leaders
        self.hearing = hearing

    def write_marker(self, topic, index, marker):
        if self.hearing == 0:
            return E.NOT_LEADER_OR_FOLLOWER
        self.hearing -= 1
        return self.leaders.write_marker(topic, index, marker)


class Broker:
    """What `server.py` builds, without sockets, on a virtual clock."""

    def __init__(self, directory, clock):
        self.directory, self.clock = directory, clock
        self.bugs = []
        self.logs = None
        self.start()

    def start(self, hearing=-1):
        turns = self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = turns.event
        self.logs = LogManager(RealDisk(), self.clock, turns, LogSettings(str(self.directory)))
        self.logs.open()
        self.cluster = Cluster(
            self.logs,
            self.clock,
            1,
            iter([bytes([n]) * 16 for n in range(1, 99)]).__next__,
            lambda own: PartitionSettings(),
            {"__transaction_state": (3, {"cleanup.policy": "compact"})},
            1,
        )
        self.cluster.open()
        self.sink = DeafSink(Leaders(self.cluster), hearing)
        self.coordinator = TransactionCoordinator(self.cluster, self.sink, turns, self.clock, TransactionSettings())
        turns.event(self.coordinator.start)
        self.clock.settle()

    def kill(self):
        self.coordinator.stop()
        self.clock._next.clear()
        self.clock._timers.clear()
        self.logs.abandon()

    def ask(self, coroutine):
        results = []
        self.turns.event(lambda: self.turns.start(coroutine, results.append, self.bugs.append))
        return results[0]

    def write(self, producer, sequence, place):
        producer_id, epoch = producer
        assert self.coordinator.verify("t", producer_id, epoch, [place]) == [E.NONE]
        batch = memoryview(
            build_batch(
                [(b"Account-123", b"10")],
                timestamp_ms=self.clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        return self.cluster.partition(*place).append_produced(check_produced_batch(batch), batch)

    def offsets(self, place):
        partition = self.cluster.partition(*place)
        return partition.last_stable_offset, partition.log_end_offset

    def markers(self, place):
        partition = self.cluster.partition(*place)
        data = partition.read(0, 1 << 20, limit=Limit.END).records
        return sum(header.is_control for _, header in iter_batches(memoryview(data)))


@pytest.fixture
def broker(tmp_path, make_rig):
    broker = Broker(tmp_path / "data", make_rig().clock)
    broker.cluster.create_topic("ledger", 4, {})
    broker.cluster.ensure_internal_topic("__transaction_state")
    broker.clock.settle()
    yield broker
    broker.kill()
    assert broker.bugs == []


def opened(broker):
    answer = broker.ask(broker.coordinator.init_producer_id("t", 60_000))
    producer = (answer.producer_id, answer.producer_epoch)
    assert broker.ask(broker.coordinator.add_partitions("t", *producer, LEDGER)) is E.NONE
    for place in LEDGER:
        assert broker.write(producer, 0, place).error is E.NONE
        assert broker.offsets(place) == (0, 1)
    return producer


@pytest.mark.parametrize(("commit", "aborted"), [(True, []), (False, [(0, 0)])])
def test_the_end_of_a_transaction_moves_the_stable_offset(broker, commit, aborted):
    producer = opened(broker)
    assert broker.ask(broker.coordinator.end("t", *producer, commit, v2=False)).error is E.NONE
    for place in LEDGER:
        assert broker.offsets(place) == (2, 2)
        found = broker.cluster.partition(*place).read(0, 1 << 20, limit=Limit.STABLE)
        assert [(producer_id, first) for producer_id, first in found.aborted] == aborted


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("heard", range(5))
def test_a_kill_between_markers_leaves_no_partition_open(broker, heard, commit):
    producer = opened(broker)
    broker.sink.hearing = heard
    assert broker.ask(broker.coordinator.end("t", *producer, commit, v2=False)).error is E.NONE
    assert sum(broker.offsets(place) == (2, 2) for place in LEDGER) == heard
    broker.kill()
    broker.start()
    for number, place in enumerate(LEDGER):
        stable, end = broker.offsets(place)
        assert stable == end
        # Those that had their marker get a second one if Complete was not logged: it ends nothing again.
        assert broker.markers(place) == (2 if number < heard < 4 else 1)
        found = broker.cluster.partition(*place).read(0, 1 << 20, limit=Limit.STABLE)
        assert found.aborted == ([] if commit else [(producer[0], 0)])
    state = broker.coordinator.describe("t").state
    assert state.status is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert broker.ask(broker.coordinator.end("t", *producer, commit, v2=False)).error is E.NONE
    assert broker.ask(broker.coordinator.add_partitions("t", *producer, LEDGER)) is E.NONE
    assert broker.write(producer, 1, LEDGER[0]).error is E.NONE


def test_a_kill_with_an_open_transaction_leaves_it_to_its_producer_or_its_timeout(broker):
    producer = opened(broker)
    broker.kill()
    broker.start()
    assert broker.write(producer, 1, LEDGER[0]).error is E.NONE
    broker.clock.advance(80_000)
    assert [broker.offsets(place) for place in LEDGER] == [(3, 3), (2, 2), (2, 2), (2, 2)]
    assert broker.ask(broker.coordinator.end("t", *producer, True, v2=False)).error is E.PRODUCER_FENCED
    assert broker.coordinator.verify("t", *producer, LEDGER[:1]) == [E.PRODUCER_FENCED]


def test_producer_ids_are_not_handed_out_again_after_a_kill(broker):
    first = [broker.ask(broker.coordinator.init_producer_id(None, 0)).producer_id for _ in range(3)]
    broker.kill()
    broker.start()
    again = [broker.ask(broker.coordinator.init_producer_id(None, 0)).producer_id for _ in range(3)]
    assert len({*first, *again}) == 6


def test_a_topic_deleted_with_an_open_transaction_does_not_keep_it_from_ending(broker):
    producer = opened(broker)
    broker.cluster.delete_topic(broker.cluster.topics["ledger"])
    assert broker.ask(broker.coordinator.end("t", *producer, True, v2=False)).error is E.NONE
    assert broker.coordinator.describe("t").state.status is S.COMPLETE_COMMIT
