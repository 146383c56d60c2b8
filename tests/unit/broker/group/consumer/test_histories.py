"""Random histories of a consumer group: a partition has one owner at most, and a replay gives the same group."""

from random import Random

import pytest

from ottla.broker.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from ottla.broker.group.consumer.decisions import (
    Decision,
    Heartbeat,
    Refusal,
    Settings,
    decide_heartbeat,
    decide_removal,
)
from ottla.broker.group.consumer.topics import TopicInfo
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.consumer_group_records import (
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
    read_consumer_group_key,
)
from ottla.protocol.steps import to_the_end

SETTINGS = Settings(5_000, 0, 100, ("uniform", "range"), 600_000, 262_144)


class Client:
    """A member as its client sees it. It gives up what it must, some heartbeats later."""

    def __init__(self, name, random):
        self.name = name
        self.random = random
        self.epoch = 0
        self.owned = {}
        self.must_own = {}

    def take(self, reply):
        self.epoch = reply.member_epoch
        if reply.assigned is not None:
            wanted = {(topic, index) for topic, indexes in reply.assigned.items() for index in indexes}
            self.must_own = wanted

    def acknowledge(self):
        """Give up what the assignment lacks and take the rest."""
        self.owned = set(self.must_own)

    @property
    def reported(self):
        found = {}
        for topic, index in self.owned:
            found[topic] = (*found.get(topic, ()), index)
        return found


class History:
    """A group, its topics, its log and its clients."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.group = ConsumerGroup("g")
        self.topics = {"a": TopicInfo(b"a" * 16, 5), "b": TopicInfo(b"b" * 16, 3)}
        self.log = []
        self.clients = {}
        self.now_ms = 1_000

    def follow(self, records):
        for key, value in records:
            self.log.append(
                (encode_consumer_group_key(key), None if value is None else encode_consumer_group_value(value))
            )
            self.group.apply(key, value)

    def beat(self, client, *, joins=False, names=None):
        beat = Heartbeat(
            "g",
            client.name,
            0 if joins else client.epoch,
            None,
            None,
            30_000 if joins else -1,
            names if names is not None else ("a", "b") if joins else None,
            None,
            self.random.choice((None, "range", "uniform")) if joins else None,
            {} if joins else self.random.choice((None, client.reported)),
            "c",
            "/h",
        )
        decision = to_the_end(
            decide_heartbeat(self.group, beat, SETTINGS, self.topics.get, self.now_ms, self.random.random() < 0.5)
        )
        if isinstance(decision, Refusal):
            assert decision.error in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID)
            client.epoch, client.owned, client.must_own = 0, set(), set()
            return
        assert isinstance(decision, Decision)
        self.follow(decision.records)
        client.take(decision.reply)

    def step(self):
        self.now_ms += 500
        name = f"m{self.random.randrange(4)}"
        client = self.clients.setdefault(name, Client(name, self.random))
        match self.random.randrange(12):
            case 0:
                client.owned = client.must_own = set()
                self.beat(client, joins=True)
            case 1 if name in self.group.members:
                self.follow(to_the_end(decide_removal(self.group, [self.group.members[name]], self.topics.get)))
                client.epoch, client.owned, client.must_own = 0, set(), set()
            case 2 if name in self.group.members:
                self.follow(to_the_end(decide_removal(self.group, [self.group.members[name]], self.topics.get)))
            case 3:
                self.topics["b"] = TopicInfo(b"b" * 16, min(9, self.topics["b"].partition_count + 1))
            case 4 if client.epoch:
                self.beat(client, names=self.random.choice((("a",), ("b",), ("a", "b"))))
            case 5 | 6 | 7:
                client.acknowledge()
            case _:
                self.beat(client, joins=client.epoch == 0)

    def check(self):
        owners = {}
        for member in self.group.members.values():
            for owned in (member.current.assigned, member.current.pending_revocation):
                for topic, indexes in owned.items():
                    for index in indexes:
                        assert owners.setdefault((topic, index), member.member_id) == member.member_id
                        assert self.group.partition_epoch(topic, index) == member.epoch
        for client in self.clients.values():
            if client.name in self.group.members and client.epoch == self.group.members[client.name].epoch:
                assert all(owners.get(place) == client.name for place in client.owned)


def state_of(group):
    return (
        group.epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_ms,
        group.members,
        group.static_members,
        group.targets,
        dict(group.topic_subscribers),
    )


@pytest.mark.parametrize("seed", range(60))
def test_partition_never_has_two_owners_and_a_replay_gives_the_same_group(seed):
    history = History(seed)
    for _ in range(300):
        history.step()
        history.check()
    replayed = ConsumerGroup("g")
    for key, value in history.log:
        found = read_consumer_group_key(key)
        replayed.apply(found, None if value is None else decode_consumer_group_value(found.record_type, value))
    assert state_of(replayed) == state_of(history.group)


@pytest.mark.parametrize("seed", range(20))
def test_group_becomes_stable_when_its_members_go_on(seed):
    history = History(seed)
    for _ in range(100):
        history.step()
    for _ in range(30):
        history.now_ms += 500
        for client in history.clients.values():
            if client.name in history.group.members:
                client.acknowledge()
                history.beat(client, joins=client.epoch == 0)
    if history.group.members:
        assert history.group.state is ConsumerGroupState.STABLE
