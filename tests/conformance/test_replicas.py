"""Records that an unclean election lost, and a changed batch, are found on three Apache Kafka nodes.

A group has read the lost records, so they are found by the address of the cluster, too.

Node 2 is down while node 1 alone acknowledges records. Then node 1 is killed, and node 2 becomes the leader without
them. In another topic a record is changed on one node, and the CRC of its batch is made right again.
"""

import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from clients import eventually
from kafka import KafkaAdminClient, KafkaProducer
from targets import ApacheKafkaFromFile, free_port, tool_output

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.batch_header import iter_batches, seal
from ottla.wire.address import parse_kafka_address
from ottla.wire.brokers import parse_address
from ottla.wire.cluster import Cluster

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.slow]

CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
EVERYWHERE, ALONE, AFTER = 60, 40, 90
NOW_MS = 1_900_000_000_000


class Nodes:
    """Three nodes, each a controller and a broker. Checkpoints of high watermarks are written twice a second."""

    def __init__(self, root):
        port = free_port(span=6)
        voters = ",".join(f"{node}@127.0.0.1:{port + 2 + node}" for node in (1, 2, 3))
        self.nodes = {node: self._node(root / f"node-{node}", node, port + node - 1, voters) for node in (1, 2, 3)}

    def _node(self, folder, node, port, voters):
        own = next(voter.partition("@")[2] for voter in voters.split(",") if voter.startswith(f"{node}@"))
        properties = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{own}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": folder / "data",
            "replica.high.watermark.checkpoint.interval.ms": 500,
            "unclean.leader.election.enable": "true",
            "unclean.leader.election.interval.ms": 1000,
            "min.insync.replicas": 1,
        }
        made = ApacheKafkaFromFile(folder, properties, f"127.0.0.1:{port}")
        tool_output("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", made.properties)
        return made

    def __getitem__(self, node):
        return self.nodes[node]

    @property
    def running(self):
        return [one for one in self.nodes.values() if one.process is not None and one.process.poll() is None]

    @property
    def bootstrap(self):
        return [one.bootstrap for one in self.running]

    def topology(self, topic):
        with Cluster([parse_address(one) for one in self.bootstrap], 10) as cluster:
            return cluster.topology([topic])

    def wait_for_leader(self, topic, node):
        eventually(lambda: self.topology(topic).topics[topic][0].leader == node, f"node {node} leads {topic}", 60)

    def wait_for_isr(self, topic, nodes):
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)

        def is_it():
            (described,) = admin.describe_topics([topic])
            return sorted(described["partitions"][0]["isr_nodes"]) == sorted(nodes)

        eventually(is_it, f"the in-sync replicas of {topic} are {nodes}", 60)
        admin.close()

    def write(self, topic, count, name):
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=0)
        for number in range(count):
            producer.send(topic, b"%s %d" % (name, number), partition=0).get(30)
        producer.close()

    def read(self, topic, count):
        """Read so many records in a group, which commits."""
        options = ("--bootstrap-server", ",".join(self.bootstrap), "--topic", topic, "--group", "readers")
        consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        tool_output(consumer, *options, "--from-beginning", "--max-messages", count)

    def stop(self):
        for one in self.running:
            one.kill()


def change_a_record(folder, value):
    """Change a record in a segment; the CRC of its batch is right. Return the offset of the batch."""
    path = folder / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    at = content.index(value)
    content[at] ^= 1
    position, header = max((one for one in iter_batches(content) if one[0] < at), key=lambda one: one[0])
    seal(content, position)
    path.write_bytes(content)
    return header.base_offset


def found_in(*directories, address=None):
    request = Request(tuple(map(str, directories)), (), NOW_MS, checks=("replicas",), address=address)
    return audit(ThreadRunner(2), request).findings


def test_lost_records_and_a_changed_batch_are_found(tmp_path):
    nodes = Nodes(tmp_path)
    try:
        check(nodes, tmp_path)
    finally:
        nodes.stop()


def check(nodes, tmp_path):
    for node in (1, 2, 3):
        # A controller alone does not answer: the first two nodes start at once.
        nodes[node].start() if node == 3 else nodes[node].spawn()
    eventually(lambda: all(nodes[node].is_ready() for node in (1, 2, 3)), "all nodes answer", 120)
    admin = KafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    topics = {"lost": {"assignments": {0: [1, 2]}}, "changed": {"assignments": {0: [3, 1, 2]}}}
    admin.create_topics(topics, wait_for_metadata=True)
    admin.close()
    nodes.wait_for_isr("changed", [1, 2, 3])
    nodes.write("changed", 20, b"sound")
    nodes.write("lost", EVERYWHERE, b"everywhere")
    nodes.read("lost", EVERYWHERE)
    nodes[2].stop()
    nodes.wait_for_isr("lost", [1])
    nodes.write("lost", ALONE, b"alone")
    checkpoint = nodes[1].data_dir / "replication-offset-checkpoint"
    eventually(lambda: f"lost 0 {EVERYWHERE + ALONE}\n" in checkpoint.read_text(), "the high watermark is written", 30)
    nodes.read("lost", ALONE)
    nodes[1].kill()
    changed_at = change_a_record(nodes[2].data_dir / "changed-0", b"sound 7")
    nodes[2].start()
    nodes.wait_for_leader("lost", 2)
    nodes.write("lost", AFTER, b"after")

    directories = [nodes[node].data_dir for node in (1, 2, 3)]
    living = tmp_path / "copied"  # a living broker's directory, as a backup has it
    shutil.copytree(directories[1], living)
    lost, changed = sorted(found_in(directories[0], living, directories[2]), key=lambda one: one.topic, reverse=True)
    assert (lost.topic, lost.offset, lost.severity) == ("lost", EVERYWHERE, "error")
    end = EVERYWHERE + ALONE
    words = f"lost in {living}: {ALONE} records, offsets {EVERYWHERE} to {end - 1}, acknowledged by the high watermark"
    assert lost.message.startswith(f"{words} {end} of {directories[0]}, which still has them (leader epoch 0)")
    assert (changed.topic, changed.offset) == ("changed", changed_at)
    others = f"{directories[0]}, {directories[2]}"
    assert changed.message.startswith(f"different in {living} and {others}: 1 record, offset {changed_at}, below both")

    nodes.wait_for_isr("changed", [2, 3])
    address = parse_kafka_address(f"kafka://{','.join(nodes.bootstrap)}")
    found = found_in(str(address), address=address)
    (read,) = [one for one in found if one.severity == "warning"]
    assert (read.topic, read.offset) == ("lost", EVERYWHERE)
    assert read.message.startswith(f"lost: offsets {EVERYWHERE} to {end - 1}, which group readers has read in leader")
    (wired,) = [one for one in found if one.severity == "error"]
    assert (wired.topic, wired.offset) == ("changed", changed_at)
    assert wired.message.startswith(f"different in broker 2 and broker 3: 1 record, offset {changed_at}, below both")
