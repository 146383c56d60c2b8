"""Housekeeping of a broker, on a clock that the test moves: the tasks that it begins, and the stop of all of them."""

import pytest

from lab.metadata import alter_configs, change_security, create_internal_topic, create_topic, delete_topic
from ottla.broker.assembly import Assembly
from ottla.broker.config import Config
from ottla.broker.costs import ROW_US
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.batch import build_batch
from ottla.protocol.internal_topics.metadata_records import BROKER_RESOURCE, ConfigRecord
from ottla.protocol.internal_topics.security_records import ClientQuotaRecord
from ottla.protocol.requests.frames import INITIAL_BYTES, LITTLE_BYTES
from ottla.protocol.requests.produced import check_produced_batch


class Timer:
    def __init__(self, clock, delay_ms, callback):
        self.clock = clock
        self.delay_ms = delay_ms
        self.callback = callback

    def cancel(self):
        self.clock.timers.discard(self)


class Clock:
    """A clock whose timers and turns wait until the test runs them."""

    def __init__(self):
        self.timers = set()
        self.turns = []

    def now_ms(self):
        return 1_700_000_000_000

    def monotonic_ms(self):
        return 0.0

    def call_later(self, delay_ms, callback):
        timer = Timer(self, delay_ms, callback)
        self.timers.add(timer)
        return timer

    def next_turn(self, callback):
        self.turns.append(callback)

    from_thread = next_turn

    def run_turns(self, most=1000):
        """Run waiting callbacks and the callbacks that they add, or only a few turns to leave the work unfinished."""
        while self.turns and most:
            most -= 1
            self.enter(self.turns.pop(0))

    def fire(self):
        """Fire every timer once."""
        due, self.timers = self.timers, set()
        for timer in due:
            self.enter(timer.callback)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def assembly(tmp_path, clock):
    bugs = []
    disk = RealDisk()
    disk.now_ns = lambda: 0  # what is charged does not depend on the machine
    turns = Turns(clock.next_turn, bugs.append)
    clock.enter = turns.event
    yield Assembly(Config(log_dirs=str(tmp_path / "data")), clock, disk, turns)
    assert bugs == []


def test_housekeeping_timers_are_set_again_after_they_fire(assembly, clock):
    assembly.start_housekeeping()
    clock.run_turns()
    for _ in range(3):
        assert len(clock.timers) >= 5
        clock.fire()
        clock.run_turns()
    assembly.close()


@pytest.mark.parametrize("turns", [0, 1, 2, 1000])
def test_a_stopped_broker_sets_no_timer_and_adds_or_removes_no_file(assembly, clock, turns, tmp_path):
    cluster = assembly.broker.cluster
    create_topic(cluster, "ledger", 3)
    create_topic(cluster, "gone", 3)
    clock.run_turns()
    delete_topic(cluster, cluster.topics["gone"])
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0))
    assert not cluster.partition("ledger", 0).append_from_client(check_produced_batch(data), data).error
    create_internal_topic(cluster, "__transaction_state")
    assembly.start_housekeeping()
    clock.run_turns(turns)
    clock.fire()
    clock.run_turns(turns)
    assembly.close()
    assert clock.timers == set()
    names = sorted(path.name for path in (tmp_path / "data").rglob("*"))
    clock.run_turns()
    assert clock.timers == set()
    assert sorted(path.name for path in (tmp_path / "data").rglob("*")) == names


def change_broker(assembly, **configs):
    values = ((key.replace("_", "."), value) for key, value in configs.items())
    alter_configs(assembly.broker.cluster, [ConfigRecord(BROKER_RESOURCE, "1", key, value) for key, value in values])


def largest(assembly, names):
    return {assembly.broker.cluster.partition(name, 0).log.config.max_message_bytes for name in names}


def test_logs_act_on_a_changed_config_of_the_broker_a_share_at_a_time(assembly, clock):
    names = [f"topic-{number}" for number in range(100)]
    for name in names:
        create_topic(assembly.broker.cluster, name, 1)
    create_topic(assembly.broker.cluster, "own", 1, {"max.message.bytes": "300"})
    clock.run_turns()
    charged_us = assembly.broker.turns.charged_us
    change_broker(assembly, message_max_bytes="100")
    assert assembly.broker.config.message_max_bytes == 100
    assert 1_048_588 in largest(assembly, names)
    assert assembly.broker.turns.charged_us - charged_us < 2 * SHARE_US
    clock.run_turns(3)
    assert largest(assembly, names) == {100, 1_048_588}
    change_broker(assembly, message_max_bytes="200")
    clock.run_turns()
    assert (largest(assembly, names), largest(assembly, ["own"])) == ({200}, {300})
    assembly.close()


def test_quotas_that_a_directory_has_act_from_the_start(assembly, clock, tmp_path):
    assert not assembly.broker.quotas.enabled
    records = [
        ClientQuotaRecord((("client-id", None), ("user", "ada")), "consumer_byte_rate", 5.0, False),
        ClientQuotaRecord((("ip", "10.0.0.1"),), "connection_creation_rate", 0.1, False),
        ClientQuotaRecord((("user", "ada"),), "of_a_later_kafka", 5.0, False),
    ]
    change_security(assembly.broker.cluster, records)
    assert assembly.broker.quotas.fetch.sensors.limit("ada", "any") == 5.0
    assembly.close()
    again = Assembly(Config(log_dirs=str(tmp_path / "data")), clock, RealDisk(), assembly.broker.turns)
    quotas = again.broker.quotas
    assert quotas.enabled and quotas.fetch.sensors.limit("ada", "any") == 5.0
    assert [quotas.connections.enter("10.0.0.1", 0.0) for _ in range(2)] == [True, False]
    again.close()


def test_a_restart_applies_the_changed_broker_configs(assembly, clock, tmp_path):
    change_broker(assembly, log_cleaner_backoff_ms="7", message_max_bytes="100")
    clock.run_turns()
    assembly.close()
    again = Assembly(Config(log_dirs=str(tmp_path / "data")), clock, RealDisk(), assembly.broker.turns)
    assert (again.config.log_cleaner_backoff_ms, again.broker.config.message_max_bytes) == (7, 100)
    create_topic(again.broker.cluster, "ledger", 1)
    assert largest(again, ["ledger"]) == {100}
    again.close()


def test_changed_broker_configs_reach_running_timers_and_open_logs(assembly, clock):
    create_topic(assembly.broker.cluster, "ledger", 1)
    assembly.start_housekeeping()
    clock.run_turns()
    count = len(clock.timers)
    change_broker(assembly, log_cleaner_backoff_ms="7", producer_id_expiration_ms="9")
    clock.run_turns()
    assert len(clock.timers) == count
    assert 7 in {timer.delay_ms for timer in clock.timers}
    assert assembly.broker.cluster.partition("ledger", 0).log.config.producer_id_expiration_ms == 9
    assembly.close()
    assert clock.timers == set()


def test_idle_connections_are_swept_a_share_at_a_time(assembly, clock):
    swept = []

    class Idle:
        def sweep(self, most_sweeps):
            swept.append(self)

    connections = [Idle() for _ in range(5_000)]
    assembly.connections.update(dict.fromkeys(connections))
    assembly.start_housekeeping()
    clock.run_turns()
    clock.fire()
    most = len(swept)
    del assembly.connections[connections[0]]
    while clock.turns:
        before = len(swept)
        clock.run_turns(1)
        most = max(most, len(swept) - before)
    assert 0 < most <= SHARE_US / ROW_US
    assert len(swept) == len(set(swept))
    assert set(connections[1:]) <= set(swept)
    assembly.connections.clear()
    assembly.close()


def test_the_receive_size_is_restored_after_a_memory_shortage(assembly, clock):
    memory, shared = assembly.broker.memory, assembly.accept()._inbox._shared
    shared.most_bytes = LITTLE_BYTES
    claims = [memory.requests.reserve(memory.requests.limit_bytes, list) for _ in range(2)]
    assembly.start_housekeeping()
    clock.run_turns()
    clock.fire()
    clock.run_turns()
    assert memory.short and shared.most_bytes == LITTLE_BYTES
    for claim in claims:
        claim.release()
    clock.fire()
    clock.run_turns()
    assert not memory.short and shared.most_bytes == INITIAL_BYTES
    assembly.close()


@pytest.mark.parametrize(("asked", "taken"), [("100", 100), ("262144", 262_144), ("2147483647", 262_144)])
def test_index_interval_bytes_is_capped_at_256_kib(assembly, clock, asked, taken):
    create_topic(assembly.broker.cluster, "ledger", 1, {"index.interval.bytes": asked})
    assert assembly.broker.cluster.partition("ledger", 0).log.config.index_interval_bytes == taken
    assembly.close()
