"""Requests with as many names as fit: they are checked and carried out in turn budgets, whatever the rows contain."""

from types import SimpleNamespace

import pytest

from lab.metadata import create_topic
from ottla.broker.api.request import Request
from ottla.broker.api.table import TABLE
from ottla.broker.config import Config
from ottla.broker.costs import CHANGE_US, CONFIGURE_US, ROW_US
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.broker_stub import broker_of
from tests.replies import message_of

MANY = 5_000


@pytest.fixture
def ask(parts, monkeypatch):
    """Serve a request to its end. `broker.meter.most_us` is the charge of its most expensive event."""

    def sync(_disk, paths, on_end):
        parts.clock.next_turn(on_end)
        return SimpleNamespace(done=True, error=None)

    monkeypatch.setattr(type(parts.disk), "start_sync", sync)

    def ask(key, version, **fields):
        context = broker_of(
            cluster=parts.cluster,
            turns=parts.turns,
            config=Config(),
            logs=parts.logs,
            endpoints={},
        )
        context.memory = SimpleNamespace(replies=SimpleNamespace(reserve=lambda: Room()))
        request = Request(key, version, 1, "", Session(), message(key, version, **fields))
        replies = []
        handler = TABLE[key].handle(context, request)
        parts.turns.event(lambda: parts.turns.start(handler, replies.append, parts.bugs.append))
        parts.settle()
        (reply,) = replies
        return message_of(reply, key, version)

    return ask


class Room:
    """Memory that grants any amount."""

    async def grow(self, size_bytes):
        """Grant the memory at once."""

    def built(self, size_bytes):
        """Ignore the size of the reply."""


def topics(count):
    return [{"name": f"t{number}"} for number in range(count)]


def creatable(count, **fields):
    row = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} | fields
    return [each | row for each in topics(count)]


def resources(count, *names):
    configs = [{"name": name, "value": "1", "config_operation": 0} for name in names]
    return [{"resource_type": 2, "resource_name": each["name"], "configs": configs} for each in topics(count)]


ASKED = {
    "create": (ApiKey.CREATE_TOPICS, 4, {"topics": creatable(MANY), "timeout_ms": 1, "validate_only": True}),
    "create too many": (ApiKey.CREATE_TOPICS, 4, {"topics": creatable(MANY, num_partitions=3), "timeout_ms": 1}),
    "create one often": (ApiKey.CREATE_TOPICS, 4, {"topics": creatable(1) * MANY, "timeout_ms": 1}),
    "delete": (ApiKey.DELETE_TOPICS, 5, {"topic_names": [each["name"] for each in topics(MANY)], "timeout_ms": 1}),
    "delete one often": (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"] * MANY, "timeout_ms": 1}),
    "add": (ApiKey.CREATE_PARTITIONS, 1, {"topics": [each | {"count": 2} for each in topics(MANY)], "timeout_ms": 1}),
    "alter": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": resources(MANY, "x")}),
    "alter one often": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": resources(1, "x") * MANY}),
    "alter much": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": resources(1, *map(str, range(MANY)))}),
    "describe": (ApiKey.METADATA, 4, {"topics": topics(MANY), "allow_auto_topic_creation": False}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_requests_of_many_names_are_processed_in_turn_budgets(parts, ask, asked):
    key, version, fields = ASKED[asked]
    before_us, parts.meter.most_us = parts.turns.charged_us, 0.0
    ask(key, version, **fields)
    assert parts.turns.charged_us - before_us >= MANY * ROW_US
    assert parts.meter.most_us < 2 * SHARE_US


def test_alter_configs_of_many_names_is_processed_in_turn_budgets(parts, ask):
    configs = [{"name": f"x{number}", "value": "1"} for number in range(MANY)]
    row = {"resource_type": 2, "resource_name": "t", "configs": configs}
    before_us, parts.meter.most_us = parts.turns.charged_us, 0.0
    (told,) = ask(ApiKey.ALTER_CONFIGS, 0, resources=[row]).responses
    assert told.error_code == E.INVALID_CONFIG and "x0" in told.error_message
    assert parts.turns.charged_us - before_us >= MANY * ROW_US
    assert parts.meter.most_us < 2 * SHARE_US


def test_many_topics_are_configured_a_part_at_a_time(parts, ask):
    for number in range(90):
        create_topic(parts.cluster, f"t{number}", 1)
    parts.settle()
    before_us, parts.meter.most_us = parts.turns.charged_us, 0.0
    told = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=resources(90, "retention.ms")).responses
    assert {row.error_code for row in told} == {E.NONE}
    assert {topic.configs["retention.ms"] for topic in parts.cluster.topics.values()} == {"1"}
    assert parts.turns.charged_us - before_us >= 90 * (CHANGE_US + CONFIGURE_US)
    assert parts.meter.most_us < 4 * SHARE_US
