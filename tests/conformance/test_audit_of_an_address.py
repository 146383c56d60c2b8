"""An audit of a running Apache Kafka by its address finds what an audit of its log directory finds.

The log has committed and aborted transactions of four client libraries in all codecs, and open ones in each state
(`transaction_states`), while topics were compacted, and shortened by retention and DeleteRecords. The differences are
those of docs/audit-a-kafka.md#by-address-and-by-directory.
"""

import time

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from clients import eventually
from four_clients import CODECS, COMPACTED_TOPICS, OVERRIDES, Play
from transaction_states import CALM_MS, GONE, BrokerInEachState

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.wire.address import parse_kafka_address

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.slow]

TRANSACTIONS = 200
SHORTENED = "audit-log"
DELETED = "financial-ledger"
COMPACTED = "balances"
RECREATED = "recreated"
FILLER = b"." * 1_000
# So that every transaction is old enough for a verdict from the files alone.
SETTLED_MS = 70_000
OF_COMPACTION = "compacted or lost; it is not known which"
OF_RETENTION = "their counterparts are compacted, deleted or not read"


class LiveKafka:
    """An Apache Kafka with a log of every kind, which no client writes to any more."""

    def __init__(self, target, directory):
        self.states = BrokerInEachState(target, directory, OVERRIDES)
        self.data_dir = self.states.broker.data_dir
        self._play(Play(self.states.broker, directory))
        self.states.begin()

    def _play(self, play):
        play.create_topics()
        play.leave_open("confluent-kafka", CALM_MS, (SHORTENED, DELETED))
        play.start(TRANSACTIONS)
        play.wait_for(TRANSACTIONS // 2)
        play.delete_records(DELETED, 0, 0.5)
        play.finish()
        play.leave_open("java", CALM_MS)
        self._recreate(play)
        filler = play.clients["kafka-python"].producer()
        eventually(lambda: filler.send(SHORTENED, *[FILLER] * 300) and self.start_of(SHORTENED) > 1, "retention")
        eventually(lambda: self.gaps_of(COMPACTED), "compaction")
        play.close()

    def _recreate(self, play):
        """Delete a topic of a committed transaction, and create it again with another one."""
        producer = play.clients["java"].producer("recreated-1")
        for value in (b"before", b"after"):
            play.clients["java"].create_topics([RECREATED])
            producer.begin()
            producer.send(RECREATED, value)
            producer.send("orders", value)
            producer.commit()
            if value == b"before":
                play.clients["java"].delete_topics([RECREATED])
                eventually(lambda: RECREATED not in play.clients["java"].topics(), "the topic is deleted")

    def close(self):
        self.states.close()

    def by_directory(self, now_ms):
        return audit(ThreadRunner(1), Request((str(self.data_dir),), (), now_ms))

    def by_address(self, now_ms):
        address = parse_kafka_address(f"kafka://{self.states.plain}")
        return audit(ThreadRunner(1), Request((str(address),), (), now_ms, address=address))

    def start_of(self, topic):
        return self._partition(topic).log_start

    def gaps_of(self, topic):
        return self._partition(topic).missing.compacted

    def _partition(self, topic):
        request = Request((str(self.data_dir),), (topic,), round(time.time() * 1000))
        return next(one for one in audit(ThreadRunner(1), request).partitions if one.name == f"{topic}-0")


@pytest.fixture(scope="module", params=["apache", "apache-v1"])
def kafka(request, tmp_path_factory):
    live = LiveKafka(request.param, tmp_path_factory.mktemp(request.param))
    yield live
    live.close()


@pytest.fixture(scope="module")
def both(kafka):
    """Return (audit of the directory, audit of the address) of a log that did not change between them."""

    def read():
        now_ms = round(time.time() * 1000) + SETTLED_MS
        before, wire = kafka.by_directory(now_ms), kafka.by_address(now_ms)
        return facts_of(before) == facts_of(kafka.by_directory(now_ms)) and (before, wire)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ottla.verdict.OVERDUE_AFTER_MS", 0)
        patch.setattr("ottla.wire.cluster.OVERDUE_AFTER_MS", 0)
        return eventually(read, "a log at rest")


def facts_of(found):
    """Return all of an audit except the findings and the counts that docs/audit-a-kafka.md lists."""
    shortened = {one.name for one in found.partitions if one.log_start}
    return {
        "findings": sorted(
            (one.check, one.severity, one.place, one.producer_id, one.transactional_id, one.message)
            for one in found.findings
            if one.check not in ("index", "shape")
            if not one.message.endswith(OF_COMPACTION)
            if not (f"{one.topic}-{one.partition}" in shortened and one.message.endswith(OF_RETENTION))
        ),
        "open": sorted(one[:7] + one[8:] for one in found.open_transactions),
        "partitions": sorted(
            (
                *(one.name, one.log_start, one.log_end, one.last_stable_offset, one.opened, one.missing),
                *(one.plain_records, one.control_batches, one.batches, one.size_bytes),
                *(one.committed.records, one.aborted.records),
                None if one.name in shortened else (one.committed.transactions, one.aborted.transactions),
            )
            for one in found.partitions
        ),
    }


def test_the_findings_by_address_are_those_of_the_directory(both):
    directory, address = both
    assert facts_of(address) == facts_of(directory)


def test_the_log_has_what_is_compared(both):
    directory, _ = both
    parts = {one.name: one for one in directory.partitions}
    assert parts[f"{SHORTENED}-0"].log_start and parts[f"{DELETED}-0"].log_start
    assert parts[f"{SHORTENED}-0"].open_transactions[0].first_offset < parts[f"{SHORTENED}-0"].log_start
    assert parts[f"{COMPACTED}-0"].missing.compacted
    for codec in CODECS[1:]:
        assert parts[f"as-{codec}-0"].committed.records and parts[f"as-{codec}-0"].aborted.records
    verdicts = {one.topic.removeprefix("topic-"): str(one.verdict) for one in directory.open_transactions}
    assert verdicts["overdue"] == "overdue" and verdicts["ending"] == "ending" and verdicts["in-time"] == "in time"
    assert {name for name, verdict in verdicts.items() if verdict == "forgotten"} == GONE - {"elsewhere"}


def test_findings_by_address_alone_are_offsets_that_may_be_compacted(both):
    directory, address = both
    known = {(one.check, one.place) for one in directory.findings}
    more = [one for one in address.findings if (one.check, one.place) not in known]
    compacted = {*COMPACTED_TOPICS, "__consumer_offsets", "__transaction_state"}
    assert {(one.check, one.severity, one.topic in compacted) for one in more} == {("gaps", "info", True)}
    assert not [one for one in directory.findings if one.check == "index"]
