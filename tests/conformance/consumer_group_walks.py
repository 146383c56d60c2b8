"""Random requests of a few members that the range assignor serves: of the consumer protocol, and of both."""

import random

from consumer_group_migration_scripts import ClassicMember, finish
from consumer_group_requests import OWN, Member

WALKS, MIXED_WALKS, STEPS = 16, 8, 60


def walk(seed):
    def script(requests):
        chance = random.Random(seed)
        members = [Member(requests, f"m{number}", assignor="range") for number in range(3)]
        members += [
            Member(requests, f"s{number}", instance=f"i{number % 2}", rack="r", assignor="range") for number in range(3)
        ]
        for _ in range(STEPS):
            _step(chance, requests, chance.choice(members[seed % 3 :]))
        requests.describe_consumer_group()
        requests.list_types()
        requests.fetch_as(topics=None)
        requests.read_records()

    script.__name__ = f"walk_{seed}"
    return script


def _step(chance, requests, member):
    names = chance.sample([requests.a, requests.b, "no-such-topic"], chance.randint(0, 2))
    epoch = max(member.epoch, 0) + chance.choice((0, 0, 0, 0, -1, -2, 1))
    owned = _draw_partitions(chance, requests, member)
    action = chance.random()
    if member.epoch <= 0 or action < 0.1:
        # Never without a topic: consumer_group_scripts.py shows what Kafka makes of that.
        member.join(**({"subscribed_topic_names": names} if names and chance.random() < 0.5 else {}))
    elif action < 0.6:
        member.beat(owned, member.epoch if chance.random() < 0.8 else epoch)
    elif action < 0.7:
        member.beat(owned, subscribed_topic_names=names)
    elif action < 0.73:
        member.beat(owned, server_assignor="range", rack_id=chance.choice("rs"), rebalance_timeout_ms=30_000)
    elif action < 0.8:
        member.leave(-2 if member.fixed["instance_id"] else -1)
    elif action < 0.83:
        member.leave()
    elif action < 0.92:
        partitions = chance.sample(range(6), chance.randint(1, 2))
        rows = [(requests.a, [(index, chance.randrange(100), "") for index in partitions])]
        requests.commit(rows, member.member_id, epoch, version=chance.choice((9, 9, 8)))
    elif action < 0.96:
        requests.fetch_as(member.member_id, epoch)
    else:
        requests.describe_consumer_group()


def _draw_partitions(chance, requests, member):
    kept = {}
    for name, partitions in sorted(member.owned.items()):
        kept[name] = sorted(partitions)[: chance.randint(0, len(partitions))]
    return chance.choice((OWN, OWN, OWN, OWN, None, {}, kept, {requests.a: [chance.randrange(7)]}))


def mix(seed):
    def script(requests):
        chance = random.Random(seed)
        stays = Member(requests, "m0", assignor="range")
        stays.join()
        members = [Member(requests, f"m{number}", assignor="range") for number in (1, 2)]
        members += [ClassicMember(requests, f"c{number}") for number in (1, 2)]
        for _ in range(STEPS):
            member = chance.choice([stays, *members])
            if isinstance(member, ClassicMember):
                _step_classic(chance, requests, member)
            elif chance.random() < 0.15 and member is not stays:
                member.leave()
            elif member.epoch <= 0 or chance.random() < 0.1:
                member.join()
            else:
                member.beat(chance.choice((OWN, OWN, None, {})))
        finish(requests)

    script.__name__ = f"mixed_walk_{seed}"
    return script


def _step_classic(chance, requests, member):
    action = chance.random()
    if member.generation < 0 or action < 0.3:
        names = chance.choice(([requests.a], [requests.a], [requests.a, requests.b], [requests.b]))
        member.join(chance.choice((OWN, OWN, {}, {requests.a: [0, 5]})), names)
    elif action < 0.6:
        member.sync(member.generation + chance.choice((0, 0, 0, -1)))
    elif action < 0.8:
        member.beat(member.generation + chance.choice((0, 0, 0, 1)))
    elif action < 0.9:
        member.commit(member.generation + chance.choice((0, -1)), chance.randrange(6), version=chance.choice((8, 9)))
    elif action < 0.95:
        requests.fetch_as(member.member_id, member.generation)
    else:
        member.leave()


SCRIPTS = [*map(walk, range(WALKS)), *map(mix, range(MIXED_WALKS))]
