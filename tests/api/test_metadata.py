"""Metadata: topics that are made because somebody asks for them."""

from uuid import UUID

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.furnish import message
from tests.lone import Lone


def test_a_topic_that_is_asked_for_by_two_ids_is_created_once():
    lone = Lone()
    topics = [{"name": "new", "topic_id": UUID(int=number)} for number in (7, 8)]
    reply = lone.ask(ApiKey.METADATA, 10, message(ApiKey.METADATA, 10, topics=topics, allow_auto_topic_creation=True))
    cluster = lone.assembly.broker.cluster
    topic = cluster.topics["new"]
    assert {row.error_code for row in reply.topics} == {E.NONE}
    assert [*cluster.topics_by_id.values()] == [topic]
    assert cluster.partition("new", topic.partition_count) is None
