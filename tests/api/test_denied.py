"""Log lines and events of refused requests: Kafka's words, without repeating the same line again and again."""

import logging

import pytest

from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.broker.log_limiter import LOG_AGAIN_MS
from ottla.broker.security.authorizer import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from tests.memory_broker import MemoryBroker

LINE = (
    "Principal = User:ANONYMOUS is Denied operation = ALTER from host = client on resource = "
    "Cluster:LITERAL:kafka-cluster for request = DeleteAcls with resourceRefCount = 1 based on rule "
)


@pytest.fixture
def broker():
    return MemoryBroker(authorizer_class_name=STANDARD_AUTHORIZER)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "ottla.broker.api.denial_log")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "ottla.broker.api.denial_log"]


def cause_denial(broker):
    assert broker.call(K.DELETE_ACLS, 3, filters=[{}]).filter_results[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED


def test_a_repeated_denial_is_logged_once_a_minute_with_its_count(broker, lines):
    for _ in range(3):
        cause_denial(broker)
    assert lines() == [f"{LINE}DefaultDeny"]
    broker.advance(LOG_AGAIN_MS)
    cause_denial(broker)
    assert lines()[1:] == [f"{LINE}DefaultDeny (2 more since the previous such line)"]


def test_the_entry_that_denies_is_named_as_kafka_names_it(broker, lines):
    denying = AccessControlEntryRecord(b"1" * 16, 4, "kafka-cluster", 3, "User:*", "*", 7, 2)
    broker.assembly.broker.authorizer.add(denying)
    cause_denial(broker)
    assert lines() == [
        f"{LINE}MatchingAcl(acl=StandardAcl(resourceType=CLUSTER, resourceName=kafka-cluster, patternType=LITERAL, "
        "principal=User:*, host=*, operation=ALTER, permissionType=DENY))"
    ]


def test_a_line_has_fields_for_what_it_is_about(broker, caplog):
    caplog.set_level(logging.INFO, "ottla.broker.api.denial_log")
    request = lone_request(broker)
    parts = broker.assembly.broker
    need = Need(AclOperation.WRITE, ResourceType.TOPIC, E.TOPIC_AUTHORIZATION_FAILED)
    assert not parts.may(request, need, "orders")
    wanted = {
        "api": "DeleteAcls",
        "peer": "10.0.0.9:4711",
        "principal": "User:alice",
        "operation": "WRITE",
        "topic": "orders",
        "error": "TOPIC_AUTHORIZATION_FAILED",
    }
    assert wanted.items() <= caplog.records[-1].args.items()


def test_a_quiet_authorization_check_logs_no_denial(broker, lines):
    need = Need(AclOperation.DESCRIBE, ResourceType.GROUP, E.GROUP_AUTHORIZATION_FAILED, is_quiet=True)
    assert not broker.assembly.broker.may(lone_request(broker), need, "g")
    assert lines() == []


def test_a_watcher_gets_the_reason_and_the_count_of_denials(broker):
    events = broker.assembly.broker.watch()
    cause_denial(broker)
    cause_denial(broker)
    (refusal,) = events.refusals()
    assert (refusal.api, refusal.error, refusal.client_id) == ("DeleteAcls", "CLUSTER_AUTHORIZATION_FAILED", "client")
    assert (refusal.reason, refusal.times) == (f"{LINE}DefaultDeny", 2)


def lone_request(broker):
    from ottla.broker.api.request import Request
    from ottla.broker.security.session import Session

    return Request(K.DELETE_ACLS, 3, 1, "c", Session(peer="10.0.0.9:4711", principal="User:alice"), None)
