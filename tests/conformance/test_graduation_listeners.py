"""The same server.properties for Ottla and Apache Kafka 4.3.1, with several listeners and a cluster.id of its own."""

import time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata
from targets import ApacheKafkaFromFile, OttlaFromFile, free_port
from test_graduation import EVENT_TIMEOUT_S, graduate

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

NODE = 7
COUNT = 12
PLACES = [TopicPartition("financial-ledger", index) for index in range(2)]
# A Kafka takes any text for the id of its cluster, such as that of testcontainers for Python.
CLUSTERS = ("4L6g3nShT-eMCtK--X86sw", "q+/0qqqqSqqqqqqqqqqqqg==", "ledger_of_tests")


def properties(directory, port):
    """Return properties of both brokers: clients inside and outside get other names, one listener is not advertised."""
    names = ("INSIDE", "OUTSIDE", "HIDDEN", "CONTROLLER")
    return {
        "process.roles": "broker,controller",
        "node.id": NODE,
        "listeners": ",".join(f"{name}://:{port + index}" for index, name in enumerate(names)),
        "advertised.listeners": f"INSIDE://127.0.0.1:{port},OUTSIDE://localhost:{port + 1}",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": "INSIDE",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + 3}",
        "log.dirs": directory,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


def metadata(bootstrap):
    """Return (cluster id, brokers, leaders by partition) from Metadata on this listener."""
    host, _, port = bootstrap.rpartition(":")
    with BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S) as connection:
        request = codec.request_class(ApiKey.METADATA)
        topic = request.MetadataRequestTopic(name=PLACES[0].topic)
        reply = connection.send(request(topics=[topic], allow_auto_topic_creation=False), version=9)
    leaders = {
        row.partition_index: (row.error_code, row.leader_id) for found in reply.topics for row in found.partitions
    }
    return reply.cluster_id, [(row.node_id, row.host, row.port) for row in reply.brokers], leaders


def play(bootstrap, first):
    """Transactions of one record each, every third aborted, with the offsets of a group."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="order-processor-01", acks="all")
    producer.init_transactions()
    for number in range(first, first + COUNT):
        producer.begin_transaction()
        place = PLACES[number % 2]
        producer.send(place.topic, partition=place.partition, value=b"%d" % number)
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(number, "", -1)}, "auditors")
        producer.flush()
        if number % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()


def read(bootstrap):
    """(values of committed records, committed offsets of the group)."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="auditors",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    consumer.assign(PLACES)
    consumer.seek_to_beginning(*PLACES)
    ends, found, deadline = consumer.end_offsets(PLACES), [], time.monotonic() + EVENT_TIMEOUT_S
    while any(consumer.position(place) < ends[place] for place in PLACES):
        assert time.monotonic() < deadline, ends
        for records in consumer.poll(timeout_ms=200).values():
            found += [int(record.value) for record in records]
    offsets = [consumer.committed(place) for place in PLACES]
    consumer.close(autocommit=False)
    return sorted(found), offsets


def check(broker, addresses, cluster_id, count):
    """Each listener names itself, and all lead to the same records."""
    leaders = {0: (0, NODE), 1: (0, NODE)}
    for bootstrap in addresses:
        host, _, port = bootstrap.rpartition(":")
        assert metadata(bootstrap) == (cluster_id, [(NODE, host, int(port))], leaders), broker.name
        kept = [number for number in range(count) if number % 3 != 2]
        assert read(bootstrap) == (kept, [max(n for n in kept if n % 2 == index) for index in range(2)]), broker.name


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("cluster_id", CLUSTERS)
def test_a_broker_of_several_listeners_moves_to_kafka_and_back_with_its_file_and_its_cluster(tmp_path, cluster_id):
    port = free_port(span=4)
    inside, outside, hidden = (f"127.0.0.1:{port}", f"localhost:{port + 1}", f"127.0.0.1:{port + 2}")
    shared = properties(tmp_path / "data", port)
    ottla, kafka = (kind(tmp_path, shared, inside) for kind in (OttlaFromFile, ApacheKafkaFromFile))
    ottla.more = ("--override", f"cluster.id={cluster_id}")
    ottla.start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=outside)
        admin.create_topics([NewTopic(PLACES[0].topic, len(PLACES), 1)])
        admin.close()
        play(outside, 0)
        check(ottla, (inside, outside), cluster_id, COUNT)
        told_of_hidden = metadata(hidden)
    finally:
        assert ottla.stop() == 0

    done = graduate(ottla.data_dir, ottla.properties, node_id=NODE)
    assert done.returncode == 0, done.stderr
    assert "Note:" not in done.stdout
    kafka.start()
    try:
        check(kafka, (inside, outside), cluster_id, COUNT)
        assert metadata(hidden) == told_of_hidden
        play(inside, COUNT)
        check(kafka, (inside, outside), cluster_id, 2 * COUNT)
    finally:
        kafka.stop()

    for more in (("--override", f"cluster.id={cluster_id}"), ()):
        ottla.more = more
        ottla.start()
        try:
            check(ottla, (inside, outside), cluster_id, 2 * COUNT)
        finally:
            assert ottla.stop() == 0
