"""The runtime of coordinators, with a coordinator that keeps the last value of a key."""

from types import SimpleNamespace

import pytest

from ottla.broker.coordinator import loader
from ottla.broker.coordinator.runtime import CoordinatorRuntime, await_durable, client_error
from ottla.broker.turns import SHARE_US, Turns, Wait
from ottla.protocol.batch import build_record_batch
from ottla.protocol.batch_header import assign_offsets, read_header
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.errors import ProtocolError
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.records import iter_records


class Log:
    """`hold` keeps appends from becoming durable. `refuse` fails them. `breaks` fails a scan after the first batch."""

    log_start_offset = leader_epoch = high_watermark = 0
    offline, hold, refuse, breaks = None, False, E.NONE, None

    def __init__(self, index):
        self.index, self.batches, self.waiting = index, [], []

    @property
    def log_end_offset(self):
        return len(self.batches)

    def append_own(self, batch):
        if self.refuse:
            return SimpleNamespace(error=self.refuse, base_offset=-1, last_offset=-1)
        offset = len(self.batches)
        assign_offsets(batch, offset, 0)
        self.batches.append(memoryview(bytes(batch)))
        if not self.hold:
            self.high_watermark = len(self.batches)
        return SimpleNamespace(error=E.NONE, base_offset=offset, last_offset=offset)

    def when_durable(self, offset, callback):
        self.waiting.append(callback)

    def scan(self, from_offset):
        for number, batch in enumerate(self.batches):
            if self.breaks is not None and number:
                raise self.breaks
            yield read_header(batch), batch


class Shard:
    def __init__(self, log):
        self.log, self.values, self.begun, self.resigned = log, {}, [], False

    def replay(self, header, batch):
        for record in iter_records(batch, header):
            self.values[bytes(record.key)] = bytes(record.value), record.offset


class Keeper(CoordinatorRuntime):
    """A coordinator that keeps the last value of a key. A change is (key, value). Its answer is an error."""

    def __init__(self, logs, turns):
        self.logs, self.is_loaded, self.has_resigned, self.made = logs, [], [], True
        super().__init__("values", self, turns)

    @property
    def topics(self):
        return {"values": SimpleNamespace(partition_count=len(self.logs))} if self.made else {}

    def partition(self, topic, index):
        return self.logs[index] if index < len(self.logs) else None

    async def get_or_open(self, topic, index):
        return self.partition(topic, index)

    def new_shard(self, partition):
        return Shard(partition)

    async def on_load(self, shard):
        self.is_loaded.append(shard.log.index)

    def on_resign(self, shard):
        self.has_resigned.append(shard.log.index)

    def apply(self, shard, change, base_offset):
        key, value = change
        shard.values[key] = value, base_offset
        return E.NONE

    def mark_pending(self, shard, change):
        shard.begun.append(change)

    def answer_refusal(self, shard, change, error):
        return client_error(error)

    def answer_lost_change(self, change, error):
        return client_error(error)

    def put(self, write, index=0, key=b"k", value=b"v"):
        return write(self.shards[index], build_record_batch(key, value, 0), (key, value))


@pytest.fixture
def due():
    return []


@pytest.fixture
def turns(due):
    bugs = []
    yield Turns(due.append, bugs.append)
    assert bugs == []


@pytest.fixture
def go_on(turns, due):
    """Run all turns that are due."""

    def run():
        while due:
            turns.event(due.pop(0))

    return run


@pytest.fixture
def begin(turns):
    def make(logs):
        keeper = Keeper(logs, turns)
        turns.event(keeper.start)
        return keeper

    return make


@pytest.fixture
def keeper(begin):
    return begin([Log(0)])


def test_a_change_is_applied_when_it_is_in_the_log(keeper):
    keeper.logs[0].hold = True
    assert keeper.put(keeper.write) is E.NONE
    assert keeper.shards[0].values == {b"k": (b"v", 0)}


def test_a_change_is_applied_when_it_is_durable(keeper, turns):
    keeper.logs[0].hold = True
    answer = keeper.put(keeper.write_durable)
    assert isinstance(answer, Wait) and not keeper.shards[0].values and keeper.shards[0].begun == [(b"k", b"v")]
    answers = []
    turns.event(lambda: turns.start(await_durable(answer), answers.append, answers.append))
    assert answers == []
    turns.event(lambda: keeper.logs[0].waiting.pop()(E.NONE))
    assert answers == [E.NONE] and keeper.shards[0].values == {b"k": (b"v", 0)}


def test_a_change_that_is_durable_at_once_is_answered_without_a_wait(keeper):
    assert keeper.put(keeper.write_durable) is E.NONE
    assert keeper.shards[0].begun == [] and keeper.shards[0].values == {b"k": (b"v", 0)}


@pytest.mark.parametrize("durable", [False, True])
def test_a_change_that_the_log_refuses_is_not_applied(keeper, durable):
    keeper.logs[0].refuse = E.NOT_ENOUGH_REPLICAS
    assert keeper.put(keeper.write_durable if durable else keeper.write) is E.COORDINATOR_NOT_AVAILABLE
    assert keeper.shards[0].values == {} and keeper.shards[0].begun == []


def test_a_change_whose_log_goes_offline_is_not_applied(keeper, turns):
    keeper.logs[0].hold = True
    answer, answers = keeper.put(keeper.write_durable), []
    turns.event(lambda: turns.start(await_durable(answer), answers.append, answers.append))
    turns.event(lambda: keeper.logs[0].waiting.pop()(E.KAFKA_STORAGE_ERROR))
    assert answers == [E.NOT_COORDINATOR] and keeper.shards[0].values == {}


def test_a_replay_restores_the_applied_state(keeper, begin):
    for value in (b"a", b"b"):
        keeper.put(keeper.write, value=value)
    again = begin(keeper.logs)
    assert again.is_loaded == [0] and again.shards[0].values == keeper.shards[0].values


def test_a_shard_serves_when_it_is_loaded_and_not_before(keeper, begin, monkeypatch, go_on):
    keeper.put(keeper.write)
    monkeypatch.setattr(loader, "BATCH_US", SHARE_US)
    again = begin(keeper.logs)
    assert again.shard_at(0) is E.COORDINATOR_LOAD_IN_PROGRESS and again.loading == {0}
    go_on()
    assert again.shard_at(0) is again.shards[0] and not again.loading


@pytest.mark.parametrize("why", [ProtocolError("cut short"), OSError("Input/output error"), KeyError("a bug")])
def test_a_log_that_cannot_be_read_has_no_coordinator_and_the_others_have(begin, caplog, why):
    logs = [Log(0), Log(1)]
    keeper = begin(logs)
    for index in (0, 1):
        for value in (b"a", b"b"):
            keeper.put(keeper.write, index, value=value)
    logs[0].breaks = why
    again = begin(logs)
    assert again.shard_at(0) is E.NOT_COORDINATOR and again.shard_at(1) is again.shards[1]
    assert "values-0 cannot be loaded" in caplog.text


def test_a_log_that_is_offline_has_no_coordinator(begin):
    logs = [Log(0), Log(1)]
    logs[0].offline = "no space left"
    keeper = begin(logs)
    logs[1].offline = "no space left"
    assert keeper.is_loaded == [1]
    assert keeper.shard_at(0) is keeper.shard_at(1) is keeper.shard_at(2) is E.NOT_COORDINATOR
    logs[0].offline = None
    assert keeper.shard_at(0) is keeper.shards[0] and keeper.is_loaded == [1, 0]


def test_an_id_has_the_shard_that_it_hashes_to(begin):
    keeper = begin([Log(0), Log(1), Log(2)])
    for key in ("", "ledger", "é", "x" * 10_000):
        assert keeper.shard_of(key) is keeper.shards[coordinator_partition(key, 3)]


def test_there_is_no_coordinator_before_its_topic_is_made(begin):
    keeper = begin([])
    keeper.made = False
    assert keeper.shard_of("ledger") is E.NOT_COORDINATOR
    keeper.logs.append(Log(0))
    keeper.made = True
    assert keeper.shard_of("ledger") is keeper.shards[0]


def test_the_empty_id_may_be_none(keeper):
    keeper.empty_id = E.INVALID_REQUEST
    assert keeper.shard_of("") is E.INVALID_REQUEST and keeper.shard_of("a") is keeper.shards[0]


@pytest.mark.parametrize(("key", "costs_again"), [("ledger", False), ("x" * 10_000, True)])
def test_hashes_of_ids_are_cached_except_for_very_long_ids(keeper, turns, key, costs_again):
    keeper.shard_of(key)
    before_us = turns.charged_us
    keeper.shard_of(key)
    assert (turns.charged_us > before_us) is costs_again


@pytest.mark.parametrize("durable", [False, True])
def test_a_shard_that_has_resigned_accepts_no_change(keeper, durable):
    shard = keeper.shards[0]
    keeper.resign(0)
    assert keeper.has_resigned == [0] and keeper.shards == {}
    write = keeper.write_durable if durable else keeper.write
    assert write(shard, build_record_batch(b"k", b"v", 0), (b"k", b"v")) is E.NOT_COORDINATOR
    assert keeper.logs[0].batches == [] and shard.values == {} and shard.begun == []


def test_a_change_that_is_durable_after_its_shard_has_resigned_is_not_applied(keeper, turns):
    shard, keeper.logs[0].hold = keeper.shards[0], True
    answer, answers = keeper.put(keeper.write_durable), []
    turns.event(lambda: turns.start(await_durable(answer), answers.append, answers.append))
    keeper.resign(0)
    turns.event(lambda: keeper.logs[0].waiting.pop()(E.NONE))
    assert answers == [E.NOT_COORDINATOR] and shard.values == {}


def test_a_new_coordinator_waits_until_the_log_is_durable(keeper, begin, turns):
    log = keeper.logs[0]
    log.hold = True
    keeper.put(keeper.write)
    other = begin([])
    other.logs = keeper.logs
    turns.event(lambda: other.become(0))
    assert other.shard_at(0) is E.COORDINATOR_LOAD_IN_PROGRESS
    log.high_watermark = 1
    turns.event(lambda: log.waiting.pop()(E.NONE))
    assert other.shards[0].values == {b"k": (b"v", 0)}


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_shard_that_moved_while_it_was_loaded_is_discarded(keeper, begin, turns, monkeypatch, comes_back, go_on):
    keeper.put(keeper.write)
    monkeypatch.setattr(loader, "BATCH_US", SHARE_US)
    other = begin(keeper.logs)
    assert other.loading == {0}
    other.resign(0)
    keeper.put(keeper.write, value=b"w")
    if comes_back:
        turns.event(lambda: other.become(0))
    go_on()
    assert other.is_loaded == [0] * comes_back and other.loading == set()
    assert {index: shard.values for index, shard in other.shards.items()} == (
        {0: {b"k": (b"w", 1)}} if comes_back else {}
    )


def test_a_partition_that_is_new_has_an_empty_shard(keeper):
    keeper.logs.append(Log(1))
    shard = keeper.shard_at(1)
    assert shard is keeper.shards[1] and shard.values == {} and keeper.is_loaded == [0, 1]


def test_a_stop_during_a_load_leaves_no_shard(keeper, begin, monkeypatch, go_on):
    keeper.put(keeper.write)
    monkeypatch.setattr(loader, "BATCH_US", SHARE_US)
    again = begin(keeper.logs)
    again.stop()
    go_on()
    assert again.shards == {} and again.shard_at(0) is E.COORDINATOR_LOAD_IN_PROGRESS
