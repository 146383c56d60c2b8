"""A broker in memory with a topic, and members of the consumer protocol that send it heartbeats."""

from uuid import UUID

from ottla.broker.assembly import Assembly
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.memory_broker import MemoryBroker

INTERVAL_MS = 1_000.0
"""`group.consumer.assignment.interval.ms`."""


class Member:
    """A member of a group, which sends heartbeats."""

    def __init__(self, broker, member_id, group="g", **fields):
        self.broker = broker
        self.fixed = {"group_id": group, "member_id": member_id, "instance_id": None, "rack_id": None, **fields}

    def beat(self, epoch, owned=None, *, version=1, **fields):
        """Send a heartbeat that says nothing new, and return the reply."""
        owned = None if owned is None else [self.broker.topic_of(*owned)] if owned else []
        known = {
            "member_epoch": epoch,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "server_assignor": None,
            "topic_partitions": owned,
        }
        if version >= 1:
            known["subscribed_topic_regex"] = None
        return self.broker.call(K.CONSUMER_GROUP_HEARTBEAT, version, **{**self.fixed, **known, **fields})

    def join(self, names=("t",), **fields):
        return self.beat(0, [], **{"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [*names], **fields})


class GroupBroker(MemoryBroker):
    """A broker with the topic `t` of 4 partitions."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.create_topic("t", 4)
        self.call(K.FIND_COORDINATOR, 2, key="g", key_type=0)
        self.advance(100.0)

    def restart(self):
        """Start again on the same files, after a kill."""
        self.link = None
        self.assembly.close()
        self.assembly = Assembly(self.assembly.config, self.clock, self.disk, self.turns)
        self.advance(100.0)

    def topic_of(self, *partitions):
        topic_id = UUID(bytes=self.assembly.broker.cluster.topics["t"].topic_id)
        return {"topic_id": topic_id, "partitions": [*partitions]}


def read_assignment(reply):
    """Return (error, epoch, partitions of the answer; None: unchanged)."""
    assigned = reply.assignment
    partitions = (
        None if assigned is None else sorted(i for topic in assigned.topic_partitions for i in topic.partitions)
    )
    return E(reply.error_code), reply.member_epoch, partitions
