"""Faults of ConsumerGroupHeartbeat, and how a member of confluent-kafka recovers from them or ends."""

import pytest

from tests.wire.testkit.test_recipes_groups import poll_until

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = pytest.mark.slow  # in real time, with another client library than kafka-python

LOSES_ALL = ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"]
RETRIED = ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"]
FATAL = [
    "UNRELEASED_INSTANCE_ID",
    "FENCED_INSTANCE_ID",
    "INVALID_REQUEST",
    "GROUP_MAX_SIZE_REACHED",
    "UNSUPPORTED_ASSIGNOR",
    "UNSUPPORTED_VERSION",
    "GROUP_AUTHORIZATION_FAILED",
    "INVALID_REGULAR_EXPRESSION",
    "GROUP_ID_NOT_FOUND",
    "STALE_MEMBER_EPOCH",
]
JOINS, STAYS = 1, 2
"""Number of the heartbeat at which a fault fires."""


class Member:
    """A member of the group `g` with the calls of its listener and the errors of its polls, in order."""

    def __init__(self, make, topic, **options):
        self.events = []
        quick = {"log_level": 0, "socket.timeout.ms": 1_000} | options
        functions = {f"on_{name}": self._record(name) for name in ("assign", "revoke", "lost")}
        self.consumer = make(topic, group_id="g", **functions, **quick)

    def _record(self, name):
        return lambda _, partitions: self.events.append((name, len(partitions)))

    def poll(self, _timeout_s):
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is not None:
            self.events.append(message.error())


@pytest.fixture
def join(kafka_group_member, kafka_topic):
    return lambda **options: Member(kafka_group_member, kafka_topic, **options)


def heartbeat_errors(broker):
    """Return the error of each reply to a heartbeat, None for a lost reply."""
    calls = [event for event in broker.events() if event["api"] == "ConsumerGroupHeartbeat"]
    return [None if call.get("reply") is None else call["reply"]["error_code"] for call in calls]


@pytest.mark.parametrize("error", LOSES_ALL)
def test_a_fenced_member_loses_its_partitions_and_rejoins(error, join, ottla_broker, ottla_faults):
    ottla_faults.on("ConsumerGroupHeartbeat", nth=STAYS, group="g").reply(error)
    member = join()
    poll_until(lambda: len(member.events) == 3, member)
    assert member.events == [("assign", 1), ("lost", 1), ("assign", 1)]
    assert ottla_broker.wait_until_stable("g").epoch == 2


@pytest.mark.parametrize("error", LOSES_ALL + RETRIED)
def test_a_member_joins_after_an_error_that_is_not_fatal(error, join, ottla_faults):
    fault = ottla_faults.on("ConsumerGroupHeartbeat", nth=JOINS, group="g").reply(error)
    member = join()
    poll_until(lambda: member.events, member)
    assert (member.events, fault.hits) == ([("assign", 1)], 1)


@pytest.mark.parametrize("error", RETRIED)
def test_a_member_keeps_its_partitions_while_the_coordinator_is_away(error, join, ottla_broker, ottla_faults):
    fault = ottla_faults.on("ConsumerGroupHeartbeat", nth=STAYS, times=2, group="g").reply(error)
    member = join()
    poll_until(lambda: fault.hits == 2 and heartbeat_errors(ottla_broker)[-1] == 0, member)
    assert member.events == [("assign", 1)]
    assert ottla_broker.wait_until_stable("g").epoch == 2


@pytest.mark.parametrize("error", FATAL)
def test_a_fatal_error_reaches_the_application(error, join, ottla_broker, ottla_faults):
    ottla_faults.on("ConsumerGroupHeartbeat", nth=STAYS, group="g").reply(error)
    member = join()
    poll_until(lambda: len(member.events) == 2, member)
    assigned, raised = member.events
    assert (assigned, raised.name()) == (("assign", 1), "_FATAL")
    assert raised.str().endswith(confluent.KafkaError(getattr(confluent.KafkaError, error)).str())
    assert heartbeat_errors(ottla_broker)[1] == getattr(confluent.KafkaError, error)


def test_a_member_without_a_right_on_its_topic_reports_that_and_stays(join, ottla_broker, ottla_faults):
    fault = ottla_faults.on("ConsumerGroupHeartbeat", nth=STAYS, group="g").reply("TOPIC_AUTHORIZATION_FAILED")
    member = join()
    poll_until(lambda: fault.hits and len(member.events) == 2, member)
    assert (member.events[0], member.events[1].name()) == (("assign", 1), "TOPIC_AUTHORIZATION_FAILED")
    assert member.consumer.assignment()
    assert ottla_broker.wait_until_stable("g").epoch == 2


@pytest.mark.parametrize("nth", [JOINS, STAYS])
@pytest.mark.parametrize(
    "effect",
    [
        lambda on: on.delay(300),
        lambda on: on.delay(300, after=True),
        lambda on: on.lose_reply(),
        lambda on: on.drop_connection(),
        lambda on: on.drop_connection(after=True),
        lambda on: on.duplicate(),
    ],
    ids=["delay", "delay-after", "lose", "drop", "drop-after", "duplicate"],
)
def test_a_late_or_lost_reply_changes_nothing_for_the_application(effect, nth, join, ottla_broker, ottla_faults):
    fault = effect(ottla_faults.on("ConsumerGroupHeartbeat", nth=nth, group="g"))
    member = join()
    fault.wait_hit()
    asked = len(heartbeat_errors(ottla_broker))
    poll_until(lambda: heartbeat_errors(ottla_broker)[asked:].count(0) >= 2 and member.events, member)
    assert member.events == [("assign", 1)]
    group = ottla_broker.wait_until_stable("g", members=1)
    assert (group.epoch, group.members[0].epoch) == (2, 2)


def test_a_held_heartbeat_is_handled_when_it_is_released(join, ottla_broker, ottla_faults):
    held = ottla_faults.on("ConsumerGroupHeartbeat", group="g").hold()
    member = join(**{"socket.timeout.ms": 60_000})
    held.wait_hit()
    assert ottla_broker.wire.groups() == []
    held.release()
    poll_until(lambda: member.events, member)
    assert member.events == [("assign", 1)]


def test_offsets_of_a_stale_epoch_are_fetched_again_and_a_commit_fails(
    join, kafka_topic, kafka_producer, ottla_broker, ottla_faults
):
    kafka_producer().send(kafka_topic, b"paid").get(10)
    fetched = ottla_faults.on("OffsetFetch", group="g").reply("STALE_MEMBER_EPOCH")
    member = join()
    polled = []
    while not polled:
        message = member.consumer.poll(0.02)
        polled += [message] if message is not None else []
    assert (polled[0].value(), fetched.hits) == (b"paid", 1)
    ottla_faults.on("OffsetCommit", group="g").reply("STALE_MEMBER_EPOCH")
    with pytest.raises(confluent.KafkaException, match="STALE_MEMBER_EPOCH"):
        member.consumer.commit(polled[0], asynchronous=False)
    assert ottla_broker.committed("g") == {}
    member.consumer.commit(polled[0], asynchronous=False)
    assert ottla_broker.committed("g") == {(kafka_topic, 0): 1}
