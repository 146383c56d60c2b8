"""DescribeQuorum: the first broker is the voter, the others observe. Recorded answers are in `test_three_kafkas.py`."""

import uuid

from ottla.broker.api.context import NodeEndpoint
from ottla.protocol.api_keys import ApiKey as K
from tests.api.callers import three_brokers


def test_each_broker_names_the_voter_its_address_and_the_observers():
    cluster = three_brokers()
    broker = cluster.assembly.broker
    for each in broker.brokers:
        each.endpoints = {"PLAINTEXT": NodeEndpoint(each.cluster.node_id, "host", 9_091 + each.cluster.node_id)}
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    end = broker.cluster.metadata_log.end_offset
    directory_id = uuid.UUID(bytes=broker.cluster.directory_id)
    for node_id in (1, 2, 3):
        reply = cluster.ask_broker(node_id).call(K.DESCRIBE_QUORUM, 2, topics=topics)
        (row,) = reply.topics[0].partitions
        assert (row.leader_id, row.high_watermark) == (1, end) and row.leader_epoch >= 0
        assert [(each.replica_id, each.log_end_offset) for each in row.current_voters] == [(1, end)]
        assert [(each.replica_id, each.log_end_offset) for each in row.observers] == [(2, end), (3, end)]
        assert {each.replica_directory_id for each in (*row.current_voters, *row.observers)} == {directory_id}
        addresses = [(node.node_id, [(each.name, each.port) for each in node.listeners]) for node in reply.nodes]
        assert addresses == [(1, [("PLAINTEXT", 9_092)])]
