"""Members of the consumer protocol (KIP-848) against one broker, and a transcript that does not depend on the broker.

Topic ids are told as names. What the uniform assignor gives is told as numbers of partitions: which ones depends on
the order of hash tables in Kafka.
"""

import re
import time
from itertools import groupby
from uuid import UUID

from group_requests import OFFSETS, GroupRequests, part, request

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    CurrentAssignment,
    MemberMetadata,
    ResolvedRegularExpression,
    TargetAssignment,
    TargetAssignmentMetadata,
    decode_consumer_group_value,
    read_consumer_group_key,
)
from ottla.protocol.internal_topics.offsets_records import GroupKey, read_offsets_key
from ottla.protocol.records import iter_records
from tests.subscriptions import parse_assignment

GROUP_RESOURCE, SET_CONFIG = 32, 0
ANY_ORDER = ("TARGET_ASSIGNMENT_MEMBER", "REGULAR_EXPRESSION")
RESOLVE_TIMEOUT_S = 30
DRAWN_ID = re.compile(r"[A-Za-z0-9_-]{22}")
TOPIC_CHANGE_S = 0.5
OWN = "own"


class ConsumerGroupRequests(GroupRequests):
    """A broker, a group, and the transcript so far. The topics `a` of 6 and `b` of 2 partitions are the group's own."""

    is_exact = True

    def __init__(self, bootstrap, group):
        self.a, self.b = topics_of(group)
        self._topic_names = {}
        super().__init__(bootstrap, group, self.a)
        self.refresh_topics()

    def refresh_topics(self):
        """Learn the ids of the topics that exist now."""
        rows = [part(ApiKey.METADATA, "MetadataRequestTopic", name=name) for name in self._known_topics()]
        for topic in self.main.send(request(ApiKey.METADATA, topics=rows), 10).topics:
            if not topic.error_code:
                self._topic_names[UUID(str(topic.topic_id))] = topic.name

    def _known_topics(self):
        return [self.a, self.b, f"{self.group}-later"]

    def topic_id(self, name):
        return next((topic_id for topic_id, known in self._topic_names.items() if known == name), UUID(int=7))

    def topic_name(self, topic_id):
        return self._topic_names.get(UUID(str(topic_id)), "unknown")

    def name(self, member_id):
        if member_id and DRAWN_ID.fullmatch(member_id):
            return self._names.setdefault(member_id, f"m{len(self._names)} #")
        return super().name(member_id)

    def show(self, assignment):
        """Partitions by topic name; their number if the assignor is free to choose."""
        rows = sorted((name, sorted(partitions)) for name, partitions in assignment.items())
        return rows if self.is_exact else [(name, len(partitions)) for name, partitions in rows if partitions]

    # -- changes of topics and configs ----------------------------------------------------------------------------

    def add_partitions(self, topic, count):
        row = part(ApiKey.CREATE_PARTITIONS, "CreatePartitionsTopic", name=topic, count=count, assignments=None)
        (reply,) = self.main.send(request(ApiKey.CREATE_PARTITIONS, topics=[row], timeout_ms=10_000), 1).results
        self.tell("add partitions", ErrorCode(reply.error_code).name)
        time.sleep(TOPIC_CHANGE_S)

    def create_later(self):
        """Create the topic that members may have waited for; it has two partitions."""
        self.create_topic(f"{self.group}-later")
        time.sleep(TOPIC_CHANGE_S)
        self.refresh_topics()

    def delete_topic(self, name):
        super().delete_topic(name)
        time.sleep(TOPIC_CHANGE_S)

    def configure(self, **configs):
        """Set configs of the group; `_` stands for a dot."""
        holder = "AlterConfigsResource"
        rows = [
            part(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                f"{holder}.AlterableConfig",
                name=name.replace("_", "."),
                config_operation=SET_CONFIG,
                value=value,
            )
            for name, value in configs.items()
        ]
        row = part(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            holder,
            resource_type=GROUP_RESOURCE,
            resource_name=self.group,
            configs=rows,
        )
        (reply,) = self.main.send(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[row]), 1).responses
        self.tell("configure", ErrorCode(reply.error_code).name, reply.error_message)
        time.sleep(TOPIC_CHANGE_S)

    # -- looking --------------------------------------------------------------------------------------------------

    def describe_consumer_group(self, *groups, version=1):
        message = request(
            ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=list(groups or [self.group]), include_authorized_operations=False
        )
        for row in self.main.send(message, version).groups:
            members = sorted(self._told_member(member, version) for member in row.members)
            self.tell(
                f"describe consumer group v{version}",
                *(ErrorCode(row.error_code).name, row.error_message, row.group_id, row.group_state),
                *(row.group_epoch, row.assignment_epoch, row.assignor_name, members),
            )

    def _told_member(self, member, version):
        return (
            *(self.name(member.member_id), member.instance_id or "", member.rack_id or "", member.member_epoch),
            *(member.client_id, member.client_host, sorted(member.subscribed_topic_names)),
            *(member.subscribed_topic_regex, self._told_rows(member.assignment)),
            *(self._told_rows(member.target_assignment), member.member_type if version else None),
        )

    def _told_rows(self, assignment):
        return self.show({row.topic_name: row.partitions for row in assignment.topic_partitions})

    def describe_as_classic(self, version=6):
        (row,) = self.main.send(request(ApiKey.DESCRIBE_GROUPS, groups=[self.group]), version).groups
        message = row.error_message if version >= 6 else None
        state = (row.group_state, row.protocol_type, row.protocol_data, len(row.members))
        self.tell(f"describe v{version}", ErrorCode(row.error_code).name, message, *state)

    def list_types(self, states=(), types=()):
        message = request(ApiKey.LIST_GROUPS, states_filter=list(states), types_filter=list(types))
        reply = self.main.send(message, 5)
        rows = [
            (row.protocol_type, row.group_state, row.group_type) for row in reply.groups if row.group_id == self.group
        ]
        self.tell(f"list v5 {states} {types}", ErrorCode(reply.error_code).name, rows)

    def fetch_as(self, member_id=None, epoch=-1, topics=((0, 1),), version=9):
        """OffsetFetch of a member; `topics` are the partitions of `a`, or None for everything."""
        rows = None
        if topics is not None:
            holder = "OffsetFetchRequestGroup.OffsetFetchRequestTopics"
            rows = [part(ApiKey.OFFSET_FETCH, holder, name=self.a, partition_indexes=list(p)) for p in topics]
        fields = {"group_id": self.group, "topics": rows, "member_id": member_id, "member_epoch": epoch}
        row = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", **fields)
        (reply,) = self.main.send(request(ApiKey.OFFSET_FETCH, groups=[row], require_stable=False), version).groups
        found = sorted(
            (topic.name, row.partition_index, ErrorCode(row.error_code).name, row.committed_offset)
            for topic in reply.topics
            for row in topic.partitions
        )
        self.tell(f"fetch v{version} as {self.name(member_id)} {epoch}", ErrorCode(reply.error_code).name, found)

    def read_sync(self, connection, label="sync"):
        """Record the assignment as partitions, and return them by topic."""
        reply = connection.receive()
        assigned = _parse_assignment(bytes(reply.assignment))
        told = self.show(assigned) if isinstance(assigned, dict) else assigned
        self.tell(label, ErrorCode(reply.error_code).name, (reply.protocol_type, reply.protocol_name), told)
        return None if reply.error_code or not isinstance(assigned, dict) else assigned

    def sync(self, member_id, generation, given=(), instance=None, version=5, **more):
        sent = self.post_sync(member_id, generation, given, instance, version, **more)
        return self.read_sync(sent, f"sync v{version}")

    def _told_value(self, key, value):
        """Leave out which of several members leads: it depends on a hash table."""
        told = super()._told_value(key, value)
        if value is None or not isinstance(key, GroupKey):
            return told
        *head, leader, members = told
        rows = [(member_id, instance, _parse_assignment(content)) for member_id, instance, content in members]
        return *head, leader if len(members) < 2 else "one of them", rows

    def read_records(self, ordered=True):
        """Every record of the group in `__consumer_offsets`; no times, of hashes whether there is one.

        Targets and expressions that follow each other are sorted: Kafka writes them in the order of a hash table.
        Without `ordered`, records of each kind are sorted: they are those of an upgrade or a downgrade.
        """
        rows = [row for record in self._iter_records() if (row := self._told_record(record))]
        for kind, some in groupby(rows, key=lambda row: row[0]):
            for row in sorted(some, key=repr) if kind in ANY_ORDER or not ordered else some:
                self.tell("logged", *row)

    def await_resolutions(self, count):
        """Wait until the log has this number of records of resolved expressions of the group."""
        wanted, deadline = (
            (ConsumerGroupRecordType.REGULAR_EXPRESSION, self.group),
            time.monotonic() + RESOLVE_TIMEOUT_S,
        )
        while True:
            keys = [read_consumer_group_key(record.key) for record in self._iter_records() if record.value is not None]
            if sum(key is not None and key[:2] == wanted for key in keys) >= count:
                return
            assert time.monotonic() < deadline, f"{self.group}: no resolved expression"
            time.sleep(0.05)

    def _iter_records(self):
        message = request(ApiKey.METADATA, topics=[part(ApiKey.METADATA, "MetadataRequestTopic", name=OFFSETS)])
        (topic,) = self.main.send(message, 8).topics
        log = self._read(OFFSETS, coordinator_partition(self.group, len(topic.partitions)))
        for position, header in iter_batches(log):
            if not header.is_control:
                yield from iter_records(log[position : position + header.size_bytes], header)

    def _told_record(self, record):
        key = read_consumer_group_key(record.key)
        if key is not None and key.group == self.group:
            value = record.value and decode_consumer_group_value(key.record_type, record.value)
            return key.record_type.name, self.name(key.name), self._told_consumer_value(value)
        classic = read_offsets_key(record.key)
        if classic is None or classic.group != self.group:
            return None
        return (*classic[1:], self._told_value(classic, record.value))

    def _told_consumer_value(self, value):
        match value:
            case None:
                return None
            case ConsumerGroupMetadata(epoch, metadata_hash):
                return epoch, "hash" if metadata_hash else "no hash"
            case TargetAssignmentMetadata(epoch, timestamp_ms):
                return epoch, "time" if timestamp_ms else "no time"
            case MemberMetadata():
                return list(value)
            case TargetAssignment(partitions):
                return self.show(self._name_topics(partitions))
            case CurrentAssignment(epoch, previous, state, assigned, pending):
                return epoch, previous, state, self._show_partitions(assigned), self._show_partitions(pending)
            case ResolvedRegularExpression(topics):
                return sorted(topics)
        raise AssertionError(value)

    def _name_topics(self, assignment):
        return {self.topic_name(UUID(bytes=bytes(topic_id))): rows for topic_id, rows in assignment.items()}

    def _show_partitions(self, owned):
        rows = sorted(self._name_topics(owned).items())
        return [(name, sorted(epochs.items() if self.is_exact else epochs.values())) for name, epochs in rows]


class Member:
    """A member, which remembers its epoch and what it was given last."""

    def __init__(self, requests, member_id, *names, instance=None, rack=None, assignor=None):
        self.requests, self.member_id = requests, member_id
        self.names = list(names or (requests.a,))
        self.fixed = {"instance_id": instance, "rack_id": rack, "server_assignor": assignor}
        self.epoch, self.owned = 0, {}

    def beat(self, owned=None, epoch=None, version=1, **fields):
        """A heartbeat. `owned` is None (left out), OWN (what it was given last) or partitions by topic name."""
        requests = self.requests
        told = self.owned if owned == OWN else owned
        rows = told and [
            part(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                "TopicPartitions",
                topic_id=requests.topic_id(name),
                partitions=list(partitions),
            )
            for name, partitions in told.items()
        ]
        sent = {
            "group_id": requests.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch if epoch is None else epoch,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": None if told is None else rows or [],
            **self.fixed,
            **fields,
        }
        if version == 0:
            del sent["subscribed_topic_regex"]
        reply = requests.main.send(request(ApiKey.CONSUMER_GROUP_HEARTBEAT, **sent), version)
        self._tell(f"{requests.name(self.member_id)} heartbeat v{version} epoch {sent['member_epoch']}", reply)
        return reply

    def _tell(self, label, reply):
        requests = self.requests
        assigned = None
        if reply.assignment is not None:
            rows = reply.assignment.topic_partitions
            assigned = {requests.topic_name(row.topic_id): list(row.partitions) for row in rows}
        if not reply.error_code:
            self.epoch, self.member_id = reply.member_epoch, reply.member_id
            self.owned = self.owned if assigned is None else assigned
        message = reply.error_message
        if reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            message = message[: message.rindex("expression: ")]  # the rest has the words of each library
        requests.tell(
            label,
            *(ErrorCode(reply.error_code).name, message, requests.name(reply.member_id)),
            *(reply.member_epoch, reply.heartbeat_interval_ms, None if assigned is None else requests.show(assigned)),
        )

    def join(self, **fields):
        return self.beat({}, 0, **{"rebalance_timeout_ms": 30_000, "subscribed_topic_names": self.names, **fields})

    def leave(self, epoch=-1, **fields):
        return self.beat(None, epoch, **fields)

    def subscribe(self, *names, **fields):
        return self.beat(subscribed_topic_names=list(names), **fields)


def _parse_assignment(content):
    """Return the partitions of an assignment by topic, or the bytes if they are none."""
    try:
        return parse_assignment(content) if content else content
    except ProtocolError:
        return content


def topics_of(group):
    return f"{group}-a", f"{group}-b"
