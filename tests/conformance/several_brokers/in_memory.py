"""Three brokers of Ottla in memory, or one, for scripts."""

from ottla.broker.api.context import NodeEndpoint
from ottla.protocol.requests import codec
from tests.memory_broker import MemoryBroker

FIRST_PORT = 9092
OPTIONS = {
    "auto_create_topics_enable": False,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
}


class ThreeInMemory:
    """Changes are in force when their call returns."""

    def __init__(self, count=3):
        self._broker = MemoryBroker(brokers=count, **OPTIONS)
        self.brokers = self._broker.assembly.broker.brokers
        for number, each in enumerate(self.brokers):
            each.endpoints = {"PLAINTEXT": NodeEndpoint(each.cluster.node_id, "127.0.0.1", FIRST_PORT + number)}
        self.running = {each.cluster.node_id for each in self.brokers}

    def name_port(self, port):
        """Return the id of the broker with this port."""
        return self.brokers[port - FIRST_PORT].cluster.node_id

    def now_ms(self):
        return int(self._broker.clock.now_ms())

    def send(self, at, request, version):
        """Return the reply, or None without one. Raises ConnectionError if the connection was closed instead."""
        frame = self._broker.ask_broker(at).serve(request, version)
        if frame is None and self._broker.link is None:
            raise ConnectionError("closed")
        return frame and codec.decode_response(request.API_KEY, version, frame[4:])[1]

    def hang_up(self):
        """Do nothing: each request has a connection of its own."""

    def wait(self):
        self._broker.advance(50)

    def wait_for_replicas(self):
        """Do nothing: all brokers have one log."""

    def settle(self):
        """Do nothing: all brokers have one log."""

    def move(self, topic, index, to):
        leader, _ = self._broker.assembly.broker.cluster.leader_of(topic, index)
        if leader != to:
            self._broker.complete(self._broker.assembly.leadership.move_leader(topic, index, to))

    def stop(self, node_id):
        self._broker.complete(self._broker.assembly.stop_broker(node_id))
        self.running.remove(node_id)

    def start(self, node_id):
        self._broker.complete(self._broker.assembly.start_broker(node_id))
        self.running.add(node_id)
