"""The metadata of one broker: what is created, what a stop or a kill leaves, what a failing disk does."""

from ottla.protocol.errors import ErrorCode


def test_nobody_may_create_a_topic_that_is_the_metadata_log(broker):
    error, message = broker.cluster.name_problem("__cluster_metadata")
    assert error is ErrorCode.INVALID_REQUEST
    assert "__cluster_metadata" in message


def test_metadata_batches_are_not_bound_by_the_size_of_messages(broker):
    broker.stop()
    broker.start(max_message_bytes=500)
    assert broker.cluster.create_topic("wide", 100, {}).partition_count == 100
    broker.kill()
    broker.start(max_message_bytes=500)
    assert broker.cluster.topics["wide"].leader_epochs == [1] * 100
    assert broker.cluster.create_topic("widest", 10_000, {}).partition_count == 10_000
