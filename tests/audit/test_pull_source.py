"""Answers of a cluster that no log directory can hold are refused before anything is written."""

from types import SimpleNamespace

import pytest

from ottla.cli.pull.source import Request, list_source
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.wire import Unanswered
from ottla.wire.cluster import EARLIEST, Offsets
from ottla.wire.topology import Place, Topology

TOPIC_ID = bytes(15) + b"\7"
TWO = {0: Place(1, 0), 1: Place(1, 0)}


class ScriptedCluster:
    """A cluster that answers what a test sets."""

    def __init__(
        self, topics, *, cluster_id="c", start=0, end=9, configs=(), errors=None, configs_error=ErrorCode.NONE
    ):
        ids = dict.fromkeys(topics, TOPIC_ID)
        self._topology = Topology({1: ("h", 1)}, topics, errors or {}, ids, cluster_id)
        self._start, self._end, self._configs, self._configs_error = start, end, configs, configs_error

    def topology(self, topics=None, *, with_rights=False):
        return self._topology

    def offsets(self, places, timestamp):
        return Offsets(dict.fromkeys(places, self._start if timestamp == EARLIEST else self._end), {})

    def ask_any(self, message):
        rows = [SimpleNamespace(name=name, value=value, config_source=source) for name, value, source in self._configs]
        names = [row.resource_name for row in message.resources]
        return SimpleNamespace(
            results=[
                SimpleNamespace(resource_name=name, error_code=self._configs_error, configs=rows) for name in names
            ]
        )


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (ScriptedCluster({"../ledger": TWO}), "'../ledger' is not a topic name"),
        (ScriptedCluster({"ledger/../..": TWO}), "is not a topic name"),
        (ScriptedCluster({"ledger\n": TWO}), "is not a topic name"),
        (ScriptedCluster({"x" * 250: TWO}), "is not a topic name"),
        (ScriptedCluster({"ledger": {}}), "topic ledger has 0 partitions"),
        (
            ScriptedCluster({"ledger": {0: Place(1, 0), 2: Place(1, 0)}}),
            r"number the partitions of topic ledger \[0, 2\]",
        ),
        (ScriptedCluster({"ledger": TWO}, cluster_id="c\nnode.id=9"), "is not a cluster id"),
        (ScriptedCluster({"ledger": TWO}, cluster_id=""), "is not a cluster id"),
        (ScriptedCluster({"ledger": TWO}, start=-5), "offsets -5 to 9 for ledger-0"),
        (ScriptedCluster({"ledger": TWO}, end=2**63 - 1), "offsets 0 to 9223372036854775807 for ledger-0"),
    ],
)
def test_an_impossible_answer_is_refused(cluster, told):
    with pytest.raises(ProtocolError, match=told):
        list_source(cluster, Request(("*",)))


def test_configs_that_decide_about_deletion_are_copied_from_the_brokers():
    configs = [
        ("retention.bytes", "77", 1),
        ("retention.ms", "-1", 4),
        ("min.insync.replicas", "2", 4),
        ("cleanup.policy", "delete", 5),
        ("remote.storage.enable", "true", 1),
        ("segment.bytes", None, 1),
    ]
    found = list_source(ScriptedCluster({"ledger": TWO}, configs=configs), Request(("*",)))
    (topic,) = found.topics
    assert topic.configs == {"retention.bytes": "77", "retention.ms": "-1"}
    assert found.notes == ("ledger: config remote.storage.enable=true is not supported, and left out",)


def test_a_topic_without_a_right_is_left_out_with_the_reason():
    hidden = {"audit": {}, "__transaction_state": {}}
    errors = dict.fromkeys(hidden, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    cluster = ScriptedCluster({**hidden, "ledger": TWO}, errors=errors)
    found = list_source(cluster, Request(("ledger", "audit"), transactions=True))
    assert [topic.name for topic in found.topics] == ["ledger"]
    assert found.left_out == (
        "__transaction_state: this user lacks DESCRIBE on topic __transaction_state, so audits of the copy have no "
        "verdict on newer transactions",
        "audit: this user lacks DESCRIBE on topic audit",
    )


def test_a_partition_whose_end_no_broker_answers_is_left_out():
    cluster = ScriptedCluster({"ledger": TWO})
    cluster.offsets = lambda places, timestamp: Offsets(
        {place: 3 for place in places if timestamp == EARLIEST or place[1] == 0}, {}
    )
    found = list_source(cluster, Request(("*",)))
    assert [*found.topics[0].ranges] == [0]
    assert found.left_out == ("ledger-1: the topic was deleted meanwhile",)


def test_each_glob_must_match_a_topic():
    with pytest.raises(Unanswered, match="no topic matches orders, or this user lacks DESCRIBE on it; it sees ledger"):
        list_source(ScriptedCluster({"ledger": TWO}), Request(("ledger", "orders")))


def test_internal_topics_are_copied_by_their_options_alone():
    cluster = ScriptedCluster({"__consumer_offsets": TWO, "__transaction_state": TWO, "ledger": TWO})
    names = [topic.name for topic in list_source(cluster, Request(("*",))).topics]
    assert names == ["ledger"]
    everything = list_source(cluster, Request(("*",), groups=True, transactions=True))
    assert [topic.name for topic in everything.topics] == ["__transaction_state", "__consumer_offsets", "ledger"]


def test_a_topic_whose_configs_are_not_known_keeps_everything():
    cluster = ScriptedCluster({"ledger": TWO}, configs_error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = list_source(cluster, Request(("*",)))
    assert found.topics[0].configs == {"retention.ms": "-1", "retention.bytes": "-1"}
    (note,) = found.notes
    assert note.startswith("ledger: its configs are not known (TOPIC_AUTHORIZATION_FAILED)")
