"""Random histories of a group that changes its protocol: a partition has one owner, a replay gives the same group."""

from random import Random

import pytest

from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.classic_members import (
    find_classic,
    find_consumer_holder,
    must_join,
    read_join,
    refuse_sync,
)
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.decisions import (
    Decision,
    Heartbeat,
    Refusal,
    Settings,
    decide_heartbeat,
    decide_removal,
)
from ottla.broker.group.consumer.migration import (
    MigrationPolicy,
    can_downgrade,
    decide_downgrade,
    decide_group,
    encode_assignment,
)
from ottla.broker.group.consumer.topics import TopicInfo
from ottla.broker.group.log import CoordinatorRecord, consumer_group_batch, encode_rows
from ottla.broker.group.members import Caller, JoinAsk, Member, Moment, Timeouts
from ottla.broker.group.shard import GroupStore
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.offsets_records import GroupKey
from ottla.protocol.steps import to_the_end
from tests.subscriptions import assign, parse_assignment, subscribe
from tests.unit.broker.group.consumer.test_histories import state_of

SETTINGS = Settings(5_000, 0, 100, ("uniform", "range"), 600_000, 262_144)
BOTH, ROOM = MigrationPolicy.BIDIRECTIONAL, 100
TOPICS = {"a": TopicInfo(b"a" * 16, 5), "b": TopicInfo(b"b" * 16, 3)}
NAMES = {topic.topic_id: name for name, topic in TOPICS.items()}


class Client:
    """A member of either protocol as its client sees it: its epoch or generation, and the partitions that it uses."""

    def __init__(self, name):
        self.name, self.instance = name, f"i-{name}" if name == "s" else None
        self.leave()

    def leave(self):
        self.epoch, self.owned, self.is_classic = 0, {}, False


class History:
    """A group, its log and its clients."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.store = GroupStore()
        self.log = []
        self.clients = [Client(name) for name in ("m1", "m2", "m3", "s")]
        self.now_ms = 1_000
        self.upgrades = self.downgrades = 0

    @property
    def group(self):
        found = self.store.groups.get("g")
        return None if found is None else found.group

    @property
    def now(self):
        return Moment(self.now_ms, self.now_ms)

    def log_batch(self, records):
        self.log.append(bytes(consumer_group_batch(to_the_end(encode_rows(records)), self.now_ms)))

    def follow(self, records):
        self.log_batch(records)
        for key, value in records:
            self.store.apply(CoordinatorRecord(-1, 0, key, value), self.now_ms)

    # -- the consumer protocol

    def beat(self, client, joins):
        owned = {TOPICS[topic].topic_id: tuple(rows) for topic, rows in client.owned.items() if rows}
        epoch = 0 if joins else client.epoch
        beat = Heartbeat(
            *("g", client.name, epoch, client.instance, None, 9_000 if joins else -1),
            *(("a", "b") if joins else None, None, None, {} if joins else owned, "c", "/h"),
        )
        found = self.group
        begun = to_the_end(decide_group(beat, found, BOTH, ROOM, TOPICS.get))
        if isinstance(begun, Refusal):
            return begun.error
        decision = to_the_end(decide_heartbeat(begun.group, beat, SETTINGS, TOPICS.get, self.now_ms, False))
        if isinstance(decision, Refusal):
            client.leave()
            return decision.error
        assert isinstance(decision, Decision) and begun.is_current(found)
        self.follow([*begun.records, *decision.records])
        self.upgrades += isinstance(found, ClassicGroup) and len(begun.records) > 1
        client.epoch, client.is_classic = decision.reply.member_epoch, False
        if decision.reply.assigned is not None:
            client.owned = {NAMES[topic_id]: sorted(rows) for topic_id, rows in decision.reply.assigned.items()}
        return E.NONE

    def remove(self, members):
        group = self.group
        if can_downgrade(group, members, False, BOTH, ROOM):
            self.downgrade(to_the_end(decide_downgrade(group, members, None, NAMES.get, self.now_ms)))
        else:
            self.follow(to_the_end(decide_removal(group, members, TOPICS.get)))

    def downgrade(self, downgrade):
        self.downgrades += 1
        self.follow(downgrade.records)
        group = self.group
        assert isinstance(group, ClassicGroup)
        owned = [parse_assignment(member.assignment) for member in group.members.values()]
        places = [(topic, index) for each in owned for topic, rows in each.items() for index in rows]
        assert len(places) == len({*places})
        for member in group.members.values():
            group.roster.update(member, downgrade.protocols[member.member_id], member.timeouts)
        if downgrade.reason:
            group.begin_again(self.now, downgrade.reason)

    # -- the classic protocol

    def ask(self, client, member_id):
        eager = self.random.random() < 0.3
        content = subscribe("a", "b", owned={} if eager else client.owned)
        protocols = (("range", content), ("roundrobin", content))
        return JoinAsk(
            *("g", member_id, client.instance, "c", "/h", Timeouts(9_000, 9_000), "consumer", protocols, True, True)
        )

    def join_consumers(self, client):
        group = self.group
        known = group.members.get(client.name)
        ask = self.ask(client, "" if client.instance and known is None else client.name)
        beat = to_the_end(read_join(ask, client.name, ask.protocols, TOPICS.get))
        replaced = find_consumer_holder(group, client.instance)
        downgrades = replaced is not None and can_downgrade(group, [replaced], True, BOTH, ROOM)
        decision = to_the_end(
            decide_heartbeat(group, beat, SETTINGS, TOPICS.get, self.now_ms, False, keeps_target=downgrades)
        )
        assert isinstance(decision, Decision)
        if downgrades:
            self.downgrade(to_the_end(decide_downgrade(group, [replaced], decision, NAMES.get, self.now_ms)))
        else:
            self.follow(decision.records)
        client.epoch, client.is_classic = decision.reply.member_epoch, True

    def sync_consumers(self, client):
        found = find_classic(self.group, Caller("g", client.epoch, client.name, client.instance))
        if isinstance(found, E):
            return
        if not refuse_sync(self.group, found, "consumer", "range"):
            owned = {topic_id: tuple(rows) for topic_id, rows in found.member.current.assigned.items()}
            client.owned = parse_assignment(to_the_end(encode_assignment(owned, NAMES.get, found.subscription)))
        if to_the_end(must_join(self.group, found.member)):
            self.join_consumers(client)

    def join_classic(self, client):
        group = self.group
        if group is None:
            self.store.obtain("g", self.now_ms)
            group = self.group
        ask = self.ask(client, client.name)
        known = group.members.get(client.name)
        if known is not None:
            outcome = group.rejoin(known, ask.protocols, ask.timeouts, self.now)
        else:
            member = Member(client.name, client.instance, "c", "/h", ask.timeouts, ask.protocols)
            outcome = group.add(member, "consumer", self.now)
        client.is_classic = True
        self.take(outcome)

    def pass_time(self):
        self.now_ms += 300
        if isinstance(self.group, ClassicGroup):
            self.take(self.group.tick(self.now))

    def take(self, outcome):
        """Log the step of a classic group. Clients take their generations and assignments."""
        if outcome.step is not None:
            group = self.group
            self.log_batch([(GroupKey("g"), outcome.step.record)])
            outcome.add(group.apply_step(outcome.step, E.NONE, self.now))
        for client in self.clients:
            if client.name in outcome.joined:
                client.epoch = outcome.joined[client.name].generation
            if client.name in outcome.synced:
                client.owned = parse_assignment(outcome.synced[client.name].assignment)

    def sync_classic(self, client):
        group = self.group
        member = group.members.get(client.name)
        if member is None or client.epoch != group.generation or group.state.value == "PreparingRebalance":
            return
        given = []
        if client.name == group.roster.leader:
            ids = [*group.members]
            given = [
                (each, assign(**{t: range(i, TOPICS[t].partition_count, len(ids)) for t in TOPICS}))
                for i, each in enumerate(ids)
            ]
        self.take(group.sync(member, given))

    # -- steps and checks

    def step(self):
        self.pass_time()
        client = self.random.choice(self.clients)
        group, action = self.group, self.random.random()
        if isinstance(group, ConsumerGroup) and client.name in group.members:
            if action < (0.06 if client.is_classic else 0.15):
                self.remove([group.members[client.name]])
                client.leave()
            elif action < 0.15 and client.is_classic:
                client.leave()
                self.beat(client, joins=True)
            elif client.is_classic:
                self.sync_consumers(client)
            else:
                self.beat(client, joins=client.epoch == 0)
        elif isinstance(group, ConsumerGroup) and not group.is_empty and action < 0.8:
            client.leave()
            self.join_consumers(client)
        elif isinstance(group, ConsumerGroup) or group is None or action < 0.25:
            client.leave()
            self.beat(client, joins=True)
        elif client.name in group.members and action < 0.3:
            self.take(group.leave([(client.name, client.instance)], self.now)[1])
            client.leave()
        elif action < 0.5:
            self.join_classic(client)
        else:
            self.sync_classic(client)

    def check(self):
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        owners = {}
        for member in group.members.values():
            for owned in (member.current.assigned, member.current.pending_revocation):
                for topic_id, rows in owned.items():
                    for index in rows:
                        assert owners.setdefault((topic_id, index), member.member_id) == member.member_id
                        assert group.partition_epoch(topic_id, index) == member.epoch
        assert group.classic_count == sum(member.metadata.classic is not None for member in group.members.values())

    def replay(self):
        store = GroupStore()
        for batch in self.log:
            for position, header in iter_batches(memoryview(batch)):
                store.replay(header, memoryview(batch)[position : position + header.size_bytes])
        return store.groups["g"].group


@pytest.mark.parametrize("seed", range(24))
def test_group_that_migrates_is_the_same_after_a_replay_and_no_partition_has_two_owners(seed):
    history = History(seed)
    for _ in range(200):
        before = history.downgrades
        history.step()
        history.check()
        group = history.group
        if history.downgrades > before:
            value, replayed = group.value(), history.replay().value()
            assert replayed == value._replace(state_timestamp_ms=replayed.state_timestamp_ms)
        elif isinstance(group, ConsumerGroup) and history.random.random() < 0.05:
            assert state_of(history.replay()) == state_of(group)


def test_random_histories_have_upgrades_and_downgrades():
    histories = [History(seed) for seed in range(8)]
    for history in histories:
        for _ in range(200):
            history.step()
    assert sum(history.upgrades for history in histories) > 8
    assert sum(history.downgrades for history in histories) > 8


def test_large_subscriptions_and_assignments_are_upgraded_in_steps():
    classic = ClassicGroup("g", 0, 1_000)
    content = subscribe(*(f"t{number}" for number in range(20_000)))
    classic.add(Member("m", None, "c", "/h", Timeouts(9_000, 9_000), (("range", content),)), "consumer", Moment(0, 0))
    classic.tick(Moment(1_000, 1_000))
    given = [("m", assign(a=list(range(5)) * 4_000))]
    step = classic.sync(classic.members["m"], given).step
    classic.apply_step(step, E.NONE, Moment(1_000, 1_000))
    beat = Heartbeat("g", "new", 0, None, None, 9_000, ("a",), None, None, {}, "c", "/h")
    steps = decide_group(beat, classic, BOTH, ROOM, TOPICS.get)
    costs = []
    with pytest.raises(StopIteration) as done:
        while True:
            costs.append(next(steps))
    assert max(costs) <= 5_000.0
    assert sum(costs) > 60_000.0
    assert len(done.value.value.group.members["m"].metadata.topic_names) == 20_000
    assert set(done.value.value.group.targets["m"][b"a" * 16]) == {0, 1, 2, 3, 4}
