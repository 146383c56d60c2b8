"""Expiry of committed offsets and of groups: the same groups, left alone, on Ottla and on Apache Kafka 4.3.1.

Both brokers look every half second and keep offsets for a minute, Kafka's least; offsets may bring a time of their own.
"""

import time

import pytest
from group_end_scripts import subscription
from group_requests import GroupRequests
from targets import TARGETS
from test_groups_differential import TOPIC, prepare

OVERRIDES = {"offsets.retention.check.interval.ms": "500", "offsets.retention.minutes": "1"}
LOOKS_S = 2.5
RETENTION_S = 62
SESSION_MS = 1_800_000


def own_times(requests):
    """Commit offsets without a member, one with its own retention time."""
    requests.commit([(TOPIC, [(0, 5, "")])])
    requests.commit([(TOPIC, [(1, 6, "")])], version=3, retention_ms=1)


def only_own_times(requests):
    """Commit only offsets with their own retention time: the group is gone at the first check."""
    requests.commit([(TOPIC, [(0, 5, ""), (1, 6, "")])], version=2, retention_ms=1)


def pending(requests):
    """An open transaction keeps an offset that has expired, and the group."""
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit([(TOPIC, [(0, 5, ""), (1, 6, "")])], version=4, retention_ms=1)
    requests.commit_in_transaction(producer, [(TOPIC, [(0, 7, "")])])


def only_pending(requests):
    """Leave a transaction open; only its offsets keep the group."""
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer)


def no_offsets(requests):
    """Begin to join: the group only gives out a member id."""
    requests.join(session_ms=SESSION_MS)


def members(requests):
    """Members without offsets."""
    first = requests.enter(session_ms=SESSION_MS).member_id
    requests.sync(first, 1, [(first, b"A")])


def members_gone(requests):
    """Offsets of a group are as old as its emptiness, those with a time of their own as old as that."""
    first = requests.enter().member_id
    requests.sync(first, 1, [(first, b"A")])
    requests.commit([(TOPIC, [(0, 5, "")])], member_id=first, generation=1)
    requests.commit([(TOPIC, [(1, 6, "")])], member_id=first, generation=1, version=4, retention_ms=1)
    requests.leave((first, None))


def _consumer(requests, protocols, protocol_type="consumer"):
    first = requests.enter(protocols=protocols, protocol_type=protocol_type, session_ms=SESSION_MS).member_id
    requests.sync(first, 1, [(first, b"A")], protocol_type=protocol_type)
    requests.commit([(TOPIC, [(0, 5, "")]), (f"{TOPIC}-2", [(0, 6, "")])], member_id=first, generation=1)
    rows = [(TOPIC, [(1, 7, "")]), (f"{TOPIC}-2", [(1, 8, "")])]
    requests.commit(rows, member_id=first, generation=1, version=4, retention_ms=1)


def consumers(requests):
    """Join as a consumer: only offsets of topics without a subscription expire."""
    _consumer(requests, [("range", subscription(TOPIC))])


def consumers_of_whom_one_cannot_tell(requests):
    """Nothing expires."""
    _consumer(requests, [("range", b"sub")])


def workers(requests):
    """Nothing expires: they are no consumers."""
    _consumer(requests, [("range", b"sub")], "connect")


def joining(requests):
    """In a rebalance nothing expires, though the members be known to read something else."""
    _consumer(requests, [("range", subscription("other"))])
    requests.wait_for("Stable", 1)
    requests.post_join(protocols=[("range", subscription("other"))], session_ms=SESSION_MS, version=3)
    requests.wait_for("PreparingRebalance", 2)


SCRIPTS = [
    own_times,
    only_own_times,
    pending,
    only_pending,
    no_offsets,
    members,
    members_gone,
    consumers,
    consumers_of_whom_one_cannot_tell,
    workers,
    joining,
]


def look(requests):
    requests.tell("waited")
    requests.describe()
    requests.fetch(None)
    requests.read_log(ordered=False)


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory):
    """Return the lines of both brokers for each script. All start together and are checked soon and a minute later."""
    brokers, all_requests = [], {}
    try:
        for target in ("ottla", "apache"):
            brokers.append(TARGETS[target](tmp_path_factory.mktemp(target) / "broker", OVERRIDES).start())
            bootstrap = prepare(brokers[-1].bootstrap)
            for script in SCRIPTS:
                requests = GroupRequests(bootstrap, script.__name__.replace("_", "-"), TOPIC)
                all_requests.setdefault(script, []).append(requests)
                if script is SCRIPTS[0]:
                    requests.create_topic(f"{TOPIC}-2")
                script(requests)
        for wait_s in (LOOKS_S, RETENTION_S):
            time.sleep(wait_s)
            for pair in all_requests.values():
                for requests in pair:
                    look(requests)
        yield {script: [requests.lines for requests in pair] for script, pair in all_requests.items()}
    finally:
        for pair in all_requests.values():
            for requests in pair:
                requests.close()
        for broker in brokers:
            broker.stop()


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_offsets_and_groups_expire_as_in_kafka(transcripts, script):
    ours, theirs = transcripts[script]
    differences = [
        (step, our_line, their_line)
        for step, (our_line, their_line) in enumerate(zip(ours, theirs, strict=True))
        if our_line != their_line
    ]
    assert not differences, "\n".join(f"{step}: {us}\n{' ' * 4}{they}" for step, us, they in differences)
