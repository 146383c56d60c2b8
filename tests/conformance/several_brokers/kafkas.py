"""Three brokers of Apache Kafka 4.3.1 and a controller, or one that is both, on 127.0.0.1.

Leaders are moved by Kafka's own requests.
"""

import time

from kafka import KafkaAdminClient, TopicPartition

from ottla.protocol.api_keys import ApiKey
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from tests.conformance.several_brokers.steps import OFFSETS, STATES
from tests.conformance.targets import ApacheKafka, ApacheKafkaFromFile, free_port, tool_output

CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
IDS, CONTROLLER = (1, 2, 3), 100
READY_S, ANSWER_S, POLL_S = 120, 15, 0.05
# Brokers know the leaders from the metadata a moment before their coordinators and replicas follow.
FOLLOW_S, REPLICATE_S, ELECT_S = 0.5, 0.2, 2
NO_LEADER = -1
OPTIONS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "replica.fetch.wait.max.ms": "20",
    "transaction.state.log.num.partitions": "1",
}


class Kafkas:
    """Each node is a process that a stop ends with SIGTERM: its leaders move before it goes."""

    def __init__(self, root):
        port = free_port(span=4)
        self._ports = {node_id: port + node_id for node_id in IDS}
        self._voter = f"{CONTROLLER}@127.0.0.1:{port}"
        self._controller = self._node(root, CONTROLLER, "controller", f"CONTROLLER://127.0.0.1:{port}", OPTIONS)
        self._brokers = {
            node_id: self._node(
                root,
                node_id,
                "broker",
                f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}",
                OPTIONS | {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}"},
            )
            for node_id in IDS
        }
        self._connections, self.running = {}, set()

    def _node(self, root, node_id, role, listeners, more):
        folder = root / f"node-{node_id}"
        properties = {
            "process.roles": role,
            "node.id": node_id,
            "controller.quorum.voters": self._voter,
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": folder / "data",
            # A slow machine is no reason to take a replica out of the in-sync set.
            "replica.lag.time.max.ms": 120_000,
        }
        bootstrap = listeners.rpartition("//")[2]
        node = ApacheKafkaFromFile(folder, properties | more, bootstrap)
        tool_output("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", node.properties)
        return node

    def __enter__(self):
        try:
            self._controller.spawn()
            for node_id in IDS:
                self._brokers[node_id].spawn()
            for node_id in IDS:
                _until(self._brokers[node_id].is_ready, f"broker {node_id} answers")
                self.running.add(node_id)
            self.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for connection in self._connections.values():
            connection.close()
        for node in (*self._brokers.values(), self._controller):
            if node.process is not None:
                node.stop()

    def name_port(self, port):
        """Return the id of the broker with this port."""
        return next(node_id for node_id, own in self._ports.items() if own == port)

    def now_ms(self):
        return time.time_ns() // 1_000_000

    def send(self, at, request, version):
        """Return the reply of a broker, or None without one. Raises ConnectionError and TimeoutError."""
        if at not in self._connections:
            self._connections[at] = BlockingConnection(
                "127.0.0.1", self._ports[at], client_id="client", timeout_s=ANSWER_S
            )
        connection = self._connections[at]
        try:
            reply = connection.send(request, version)
            if reply is None:
                # The broker answers the next request, unless it has closed the connection.
                connection.send(message(ApiKey.API_VERSIONS, 0), 0)
            return reply
        except OSError:
            self._connections.pop(at).close()
            raise

    def hang_up(self):
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def wait(self):
        """Let some time pass before a request is repeated."""
        time.sleep(POLL_S)

    def wait_for_replicas(self):
        """Let the followers fetch what was written, and the high watermark after it."""
        time.sleep(REPLICATE_S)

    def move(self, topic, index, to):
        """Make a replica the preferred one, elect it, and give the replicas their former order.

        The controller places internal topics as it likes: their replicas are in the order of their ids from now on.
        """
        place = self._places(next(iter(self.running)))[topic, index]
        replicas = [*place.replica_nodes] if topic not in (OFFSETS, STATES) else sorted(place.replica_nodes)
        if place.leader_id == to and [*place.replica_nodes] == replicas:
            return
        partition = TopicPartition(topic, index)
        admin = KafkaAdminClient(bootstrap_servers=[f"127.0.0.1:{self._ports[each]}" for each in self.running])
        try:
            admin.alter_partition_reassignments({partition: [to, *(each for each in replicas if each != to)]})
            admin.elect_leaders(0, {topic: [index]})
            admin.alter_partition_reassignments({partition: replicas})
        finally:
            admin.close()
        self.settle()
        assert self._places(to)[topic, index].leader_id == to

    def stop(self, node_id):
        self.running.remove(node_id)
        connection = self._connections.pop(node_id, None)
        if connection:
            connection.close()
        self._brokers[node_id].stop()
        self.settle()

    def start(self, node_id):
        self._brokers[node_id].start()
        self.running.add(node_id)
        self.settle()

    def settle(self):
        """Wait until all running brokers know the same brokers and leaders, and replicas that run are in sync."""
        _until(self._do_all_agree, "all brokers know the same leaders and in-sync sets")
        if any(self._lacks_leader(place) for place in self._know(next(iter(self.running)))[1]):
            # An election may follow, or there is no replica that may lead.
            time.sleep(ELECT_S)
            _until(self._do_all_agree, "all brokers know the same leaders")
        time.sleep(FOLLOW_S)

    def _do_all_agree(self):
        try:
            known = [self._know(node_id) for node_id in self.running]
        except OSError:
            return False
        ids, places = known[0]
        return ids == self.running and all(each == known[0] for each in known) and all(map(self._is_in_sync, places))

    def _know(self, node_id):
        reply = self._metadata(node_id)
        places = sorted(
            (
                topic.name,
                row.partition_index,
                row.leader_id,
                row.leader_epoch,
                *map(tuple, (row.replica_nodes, row.isr_nodes)),
            )
            for topic in reply.topics
            for row in topic.partitions
        )
        return {row.node_id for row in reply.brokers}, places

    def _is_in_sync(self, place):
        *_, leader, _, replicas, in_sync = place
        return leader == NO_LEADER or (leader in self.running and {*in_sync} == self.running & {*replicas})

    def _lacks_leader(self, place):
        *_, leader, _, replicas, _ = place
        return leader == NO_LEADER and not self.running.isdisjoint(replicas)

    def _places(self, node_id):
        topics = self._metadata(node_id).topics
        return {(topic.name, row.partition_index): row for topic in topics for row in topic.partitions}

    def _metadata(self, node_id):
        return self.send(node_id, message(ApiKey.METADATA, 9, topics=None, allow_auto_topic_creation=False), 9)


class OneKafka(Kafkas):
    """A process that is a broker and the controller. Scripts do not stop it."""

    def __init__(self, root):
        node = ApacheKafka(root / "node-1", OPTIONS)
        self._brokers, self._controller = {1: node}, node
        self._ports = {1: int(node.bootstrap.rpartition(":")[2])}
        self._connections, self.running = {}, set()

    def __enter__(self):
        self._controller.start()
        self.running.add(1)
        self.settle()
        return self


def _until(is_so, what):
    deadline = time.monotonic() + READY_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {READY_S} s: {what}"
        time.sleep(POLL_S)
