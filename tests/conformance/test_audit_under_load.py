"""Audits of an address while fifty producers write, topics are compacted, shortened and created again, and connections
are cut and delayed. No audit reports an error.
"""

import random
import threading
import time

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from contextlib import ExitStack

from clients import eventually
from four_clients import OVERRIDES
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from open_transactions import Client
from targets import TARGETS

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.testkit.kit.fault_registries import ProxyFaultRegistry
from ottla.testkit.kit.faults import Faults
from ottla.testkit.proxying import ProxyServer
from ottla.wire.address import parse_kafka_address

pytestmark = pytest.mark.slow
CASES = [
    pytest.param("ottla", 10, 5),
    pytest.param("apache", 50, 100, marks=[pytest.mark.conformance, pytest.mark.maven]),
    pytest.param("apache-v1", 50, 20, marks=[pytest.mark.conformance, pytest.mark.maven]),
]
KEPT, COMPACTED, SHORTENED, RECREATED = TOPICS = "kept", "compacted", "shortened", "recreated"
CONFIGS = {COMPACTED: {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}}
PARTITIONS = 2
ABORTED_SHARE = 0.2
PAUSE_S = 0.05


class Load:
    """Producers, and a thread that shortens and recreates topics, until `stop`."""

    def __init__(self, bootstrap, producers):
        self.bootstrap = bootstrap
        self.committed = self.refused = self.recreated = self.shortened = 0
        self._stopping = threading.Event()
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._create(*TOPICS)
        self._threads = [threading.Thread(target=self._produce, args=(number,)) for number in range(producers)]
        self._threads.append(threading.Thread(target=self._disturb))
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._admin.close()

    def _create(self, *names):
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=CONFIGS.get(name)) for name in names])

    def _produce(self, number):
        dice, client = random.Random(number), Client(self.bootstrap)
        while not self._stopping.wait(PAUSE_S):
            places = [(name, dice.randrange(PARTITIONS)) for name in dice.sample(TOPICS, 2)]
            commit = dice.random() > ABORTED_SHARE
            try:
                held = client.begin(f"load-{number}", places)
                client.end(f"load-{number}", *held, commit)
            except AssertionError:
                self.refused += 1  # a topic was deleted: the next transaction of the id aborts this one
            else:
                self.committed += commit
        client.close()

    def _disturb(self):
        while not self._stopping.wait(1):
            place = TopicPartition(SHORTENED, self.shortened % PARTITIONS)
            (row,) = self._admin.list_partition_offsets({place: -1}).values()
            self._admin.delete_records({place: row.offset})
            self.shortened += 1
            if self.shortened % 3 == 0:
                self._admin.delete_topics([RECREATED])
                eventually(self._recreate, "the topic is created again")
                self.recreated += 1

    def _recreate(self):
        """Try to create the topic: the deletion ends some time after its answer."""
        try:
            self._create(RECREATED)
        except KafkaError:
            return False
        return True


def disturb(faults, dice):
    """Plan faults of one audit's connections."""
    faults.on("Fetch", nth=dice.randint(1, 4), optional=True).drop_connection(after=dice.random() < 0.5)
    faults.on("Fetch", nth=dice.randint(1, 8), optional=True).delay(dice.randrange(300))
    faults.on("ListOffsets", nth=dice.randint(1, 2), optional=True).drop_connection()
    faults.on("DescribeProducers", optional=True).delay(dice.randrange(300))


@pytest.mark.parametrize(("target", "producers", "audits"), CASES)
def test_no_audit_under_load_reports_an_error(target, producers, audits, tmp_path):
    dice = random.Random(7)
    with ExitStack() as opened:
        broker = TARGETS[target](tmp_path, OVERRIDES).start()
        opened.callback(broker.stop)
        proxy = opened.enter_context(ProxyServer(broker.bootstrap))
        load = Load(broker.bootstrap, producers)
        opened.callback(load.stop)
        eventually(lambda: load.committed > producers, "every producer writes", timeout_s=120)
        address = parse_kafka_address(f"kafka://{proxy.bootstrap}")
        faults = Faults(ProxyFaultRegistry(proxy))
        batches = 0
        for _ in range(audits):
            disturb(faults, dice)
            found = audit(ThreadRunner(2), Request((str(address),), (), round(time.time() * 1000), address=address))
            assert [one.line() for one in found.at_least("warning")] == []
            batches += sum(one.batches for one in found.partitions)
            faults.clear()
        assert batches and load.recreated and load.shortened
