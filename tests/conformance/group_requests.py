"""Raw group requests against one broker, and a transcript of the answers that does not depend on the broker.

Member ids are drawn by the broker: the transcript calls them m1, m2, ... in the order in which they are handed out.
"""

import re
import time

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.internal_topics.offsets_records import (
    OffsetKey,
    decode_group_value,
    decode_offset_value,
    read_offsets_key,
)
from ottla.protocol.records import iter_records
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

OFFSETS = "__consumer_offsets"
TIMEOUT_S = 20
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RANGE = [("range", b"sub")]
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def request(api_key, /, **fields):
    return codec.request_class(api_key)(**fields)


def part(api_key, path, /, **fields):
    """A nested struct of a request, by its path."""
    holder = codec.request_class(api_key)
    for step in path.split("."):
        holder = getattr(holder, step)
    return holder(**fields)


class GroupRequests:
    """A broker, a group, and the transcript so far. `topic` has two partitions."""

    def __init__(self, bootstrap, group, topic):
        self.group, self.topic, self.lines = group, topic, []
        self._bootstrap, self._names, self._open = bootstrap, {"": ""}, []
        self.main = self.connect()
        self._wait_for_loading()

    def connect(self, client_id="client"):
        host, _, port = self._bootstrap.rpartition(":")
        connection = BlockingConnection(host, int(port), client_id=client_id, timeout_s=TIMEOUT_S)
        self._open.append(connection)
        return connection

    def close(self):
        for connection in self._open:
            connection.close()

    def tell(self, label, *values):
        self.lines.append((label, *values))

    def name(self, member_id):
        if member_id not in self._names:
            if not UUID.search(member_id or "no id"):
                return member_id
            self._names[member_id] = f"m{len(self._names)} {UUID.sub('#', member_id)}"
        return self._names[member_id]

    def wait_for(self, state, members):
        """Until DescribeGroups shows it: requests on other connections have taken effect then."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            (row,) = self.main.send(request(ApiKey.DESCRIBE_GROUPS, groups=[self.group]), 5).groups
            if (row.group_state, len(row.members)) == (state, members):
                return
            assert time.monotonic() < deadline, (row.group_state, len(row.members), state, members)
            time.sleep(0.01)

    # -- membership -----------------------------------------------------------------------------------------------

    def post_join(self, member_id="", instance=None, version=9, protocols=RANGE, connection=None, **more):
        connection = connection or self.connect()
        rows = [
            part(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol", name=name, metadata=data) for name, data in protocols
        ]
        connection.post(
            request(
                ApiKey.JOIN_GROUP,
                group_id=more.get("group", self.group),
                session_timeout_ms=more.get("session_ms", 30_000),
                rebalance_timeout_ms=more.get("rebalance_ms", 30_000),
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=more.get("protocol_type", "consumer"),
                protocols=rows,
            ),
            version,
        )
        return connection

    def read_join(self, connection, label="join"):
        reply = connection.receive()
        members = sorted((self.name(m.member_id), m.group_instance_id, bytes(m.metadata)) for m in reply.members)
        self.tell(
            label,
            ErrorCode(reply.error_code).name,
            self.name(reply.member_id),
            ("generation", reply.generation_id),
            (reply.protocol_type, reply.protocol_name),
            ("leader", self.name(reply.leader), bool(reply.skip_assignment)),
            members,
        )
        return reply

    def join(self, member_id="", instance=None, version=9, label="join", **more):
        return self.read_join(self.post_join(member_id, instance, version, **more), f"{label} v{version}")

    def enter(self, **more):
        """Join as a dynamic member with the id that the broker hands out."""
        asked = self.join(**more)
        return self.join(asked.member_id, **more)

    def post_sync(self, member_id, generation, given=(), instance=None, version=5, connection=None, **more):
        connection = connection or self.connect()
        connection.post(
            request(
                ApiKey.SYNC_GROUP,
                group_id=more.get("group", self.group),
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=more.get("protocol_type", "consumer"),
                protocol_name=more.get("protocol", "range"),
                assignments=[
                    part(ApiKey.SYNC_GROUP, "SyncGroupRequestAssignment", member_id=other, assignment=data)
                    for other, data in given
                ],
            ),
            version,
        )
        return connection

    def read_sync(self, connection, label="sync"):
        reply = connection.receive()
        self.tell(
            label, ErrorCode(reply.error_code).name, (reply.protocol_type, reply.protocol_name), bytes(reply.assignment)
        )

    def sync(self, member_id, generation, given=(), instance=None, version=5, **more):
        self.read_sync(self.post_sync(member_id, generation, given, instance, version, **more), f"sync v{version}")

    def heartbeat(self, member_id, generation, instance=None, version=4, group=None):
        reply = self.main.send(
            request(
                ApiKey.HEARTBEAT,
                group_id=self.group if group is None else group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
            ),
            version,
        )
        self.tell(f"heartbeat v{version}", ErrorCode(reply.error_code).name)

    def leave(self, *who, version=5, group=None):
        """`who` are (member id, instance id)."""
        group = self.group if group is None else group
        if version < 3:
            message = request(ApiKey.LEAVE_GROUP, group_id=group, member_id=who[0][0])
        else:
            rows = [
                part(ApiKey.LEAVE_GROUP, "MemberIdentity", member_id=member_id, group_instance_id=instance)
                for member_id, instance in who
            ]
            message = request(ApiKey.LEAVE_GROUP, group_id=group, members=rows)
        reply = self.main.send(message, version)
        rows = [
            (self.name(m.member_id), m.group_instance_id, ErrorCode(m.error_code).name) for m in reply.members or ()
        ]
        self.tell(f"leave v{version}", ErrorCode(reply.error_code).name, rows)

    # -- looking --------------------------------------------------------------------------------------------------

    def describe(self, *groups, version=5, operations=False):
        reply = self.main.send(
            request(
                ApiKey.DESCRIBE_GROUPS, groups=list(groups or [self.group]), include_authorized_operations=operations
            ),
            version,
        )
        for row in reply.groups:
            members = sorted(
                (
                    *(self.name(m.member_id), m.group_instance_id, m.client_id, m.client_host),
                    *(bytes(m.member_metadata), bytes(m.member_assignment)),
                )
                for m in row.members
            )
            self.tell(
                f"describe v{version}",
                ErrorCode(row.error_code).name,
                (row.group_id, row.group_state, row.protocol_type, row.protocol_data),
                sorted(row.authorized_operations or ()),
                members,
            )

    def list(self, *states, version=4):
        message = (
            request(ApiKey.LIST_GROUPS, states_filter=list(states)) if version >= 4 else request(ApiKey.LIST_GROUPS)
        )
        reply = self.main.send(message, version)
        rows = [(row.protocol_type, row.group_state) for row in reply.groups if row.group_id == self.group]
        self.tell(f"list v{version} {states}", ErrorCode(reply.error_code).name, rows)

    def read_log(self, *, ordered=True):
        """Every record of the group in `__consumer_offsets`, tombstones as None, markers left out; no times.

        Kafka's order of what one request or one look removes is that of its hash tables: not `ordered`.
        """
        message = request(ApiKey.METADATA, topics=[part(ApiKey.METADATA, "MetadataRequestTopic", name=OFFSETS)])
        (topic,) = self.main.send(message, 8).topics
        partition = coordinator_partition(self.group, len(topic.partitions))
        rows = []
        log = self._read(OFFSETS, partition)
        for position, header in iter_batches(log):
            if header.is_control:
                continue
            for record in iter_records(log[position : position + header.size_bytes], header):
                key = read_offsets_key(record.key)
                if key is not None and key.group == self.group:
                    rows.append((*key[1:], header.is_transactional, self._told_value(key, record.value)))
        self.tell("logged", rows if ordered else sorted(rows, key=repr))

    def _read(self, topic, partition):
        """The log of a partition up to its high watermark."""
        found, offset = b"", 0
        while True:
            holder = part(
                ApiKey.FETCH,
                "FetchTopic.FetchPartition",
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
            )
            row = part(ApiKey.FETCH, "FetchTopic", topic=topic, partitions=[holder])
            message = request(ApiKey.FETCH, replica_id=-1, min_bytes=0, max_bytes=1 << 20, topics=[row])
            (answer,) = self.main.send(message, 4).responses[0].partitions
            assert not answer.error_code, ErrorCode(answer.error_code)
            if not answer.records:
                return memoryview(found)
            found += bytes(answer.records)
            offset = max(header.next_offset for _, header in iter_batches(memoryview(found)))

    def _told_value(self, key, value):
        if value is None:
            return None
        if isinstance(key, OffsetKey):
            told = decode_offset_value(value)
            return told.offset, told.leader_epoch, told.metadata, told.expire_ms != -1
        told = decode_group_value(value)
        members = sorted((self.name(m.member_id), m.group_instance_id, m.assignment) for m in told.members)
        leader = None if told.leader is None else self.name(told.leader)
        return told.protocol_type, told.generation, told.protocol, leader, members

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit(self, rows=None, member_id="", generation=-1, instance=None, version=9, group=None, retention_ms=-1):
        """`rows` are (topic, [(partition, offset, metadata)])."""
        holder = "OffsetCommitRequestTopic"
        topics = [
            part(
                ApiKey.OFFSET_COMMIT,
                holder,
                name=topic,
                partitions=[
                    part(
                        ApiKey.OFFSET_COMMIT,
                        f"{holder}.OffsetCommitRequestPartition",
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                    for index, offset, metadata in partitions
                ],
            )
            for topic, partitions in rows or [(self.topic, [(0, 5, "m")])]
        ]
        reply = self.main.send(
            request(
                ApiKey.OFFSET_COMMIT,
                group_id=self.group if group is None else group,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=instance,
                retention_time_ms=retention_ms,
                topics=topics,
            ),
            version,
        )
        self._tell_rows(f"commit v{version}", reply.topics)

    def commit_in_transaction(self, producer, rows=None, caller=(-1, "", None), version=3, group=None):
        """`producer` is (transactional id, producer id, epoch), `caller` (generation, member id, instance id)."""
        holder = "TxnOffsetCommitRequestTopic"
        topics = [
            part(
                ApiKey.TXN_OFFSET_COMMIT,
                holder,
                name=topic,
                partitions=[
                    part(
                        ApiKey.TXN_OFFSET_COMMIT,
                        f"{holder}.TxnOffsetCommitRequestPartition",
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                    for index, offset, metadata in partitions
                ],
            )
            for topic, partitions in rows or [(self.topic, [(0, 7, "")])]
        ]
        reply = self.main.send(
            request(
                ApiKey.TXN_OFFSET_COMMIT,
                transactional_id=producer[0],
                group_id=self.group if group is None else group,
                producer_id=producer[1],
                producer_epoch=producer[2],
                generation_id=caller[0],
                member_id=caller[1],
                group_instance_id=caller[2],
                topics=topics,
            ),
            version,
        )
        self._tell_rows(f"commit in transaction v{version}", reply.topics)

    def _tell_rows(self, label, topics):
        rows = [
            (topic.name, row.partition_index, ErrorCode(row.error_code).name)
            for topic in topics
            for row in topic.partitions
        ]
        self.tell(label, sorted(rows))

    def fetch(self, topics="asked", version=8, stable=False, group=None):
        """`topics` are (topic, [partition]), or None for all."""
        group = self.group if group is None else group
        asked = [(self.topic, [0, 1])] if topics == "asked" else topics
        holder = "OffsetFetchRequestGroup.OffsetFetchRequestTopics" if version >= 8 else "OffsetFetchRequestTopic"
        rows = None
        if asked is not None:
            rows = [part(ApiKey.OFFSET_FETCH, holder, name=name, partition_indexes=list(p)) for name, p in asked]
        if version >= 8:
            row = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=group, topics=rows)
            (reply,) = self.main.send(request(ApiKey.OFFSET_FETCH, groups=[row], require_stable=stable), 8).groups
        else:
            message = request(ApiKey.OFFSET_FETCH, group_id=group, topics=rows, require_stable=stable)
            reply = self.main.send(message, version)
        found = [
            (
                *(topic.name, row.partition_index, ErrorCode(row.error_code).name),
                *(row.committed_offset, row.committed_leader_epoch, row.metadata),
            )
            for topic in reply.topics
            for row in topic.partitions
        ]
        self.tell(f"fetch v{version} stable={stable}", ErrorCode(reply.error_code).name, sorted(found))

    def delete_offsets(self, topics=None, group=None):
        """`topics` are (topic, [partition])."""
        asked = [(self.topic, [0, 1])] if topics is None else topics
        holder = "OffsetDeleteRequestTopic"
        rows = [
            part(
                ApiKey.OFFSET_DELETE,
                holder,
                name=name,
                partitions=[
                    part(ApiKey.OFFSET_DELETE, f"{holder}.OffsetDeleteRequestPartition", partition_index=index)
                    for index in partitions
                ],
            )
            for name, partitions in asked
        ]
        message = request(ApiKey.OFFSET_DELETE, group_id=self.group if group is None else group, topics=rows)
        reply = self.main.send(message, 0)
        self.tell("delete offsets", ErrorCode(reply.error_code).name)
        self._tell_rows("delete offsets", reply.topics)

    def delete_group(self, *groups, version=2):
        """Groups by name, the requests's own without one."""
        reply = self.main.send(request(ApiKey.DELETE_GROUPS, groups_names=list(groups or [self.group])), version)
        rows = sorted((row.group_id, ErrorCode(row.error_code).name) for row in reply.results)
        self.tell(f"delete group v{version}", rows)

    # -- transactions ---------------------------------------------------------------------------------------------

    def producer(self):
        """A new producer; its transactional id is the group's name."""
        transactional_id = self.group
        self._find_coordinator(transactional_id)
        message = request(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while (reply := self.main.send(message, 4)).error_code in LOADING:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        self.tell("init", ErrorCode(reply.error_code).name)
        return transactional_id, reply.producer_id, reply.producer_epoch

    def _find_coordinator(self, key):
        message = request(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=[key])
        self._until(lambda: not self.main.send(message, 4).coordinators[0].error_code)

    def add_offsets(self, producer):
        message = request(
            ApiKey.ADD_OFFSETS_TO_TXN,
            transactional_id=producer[0],
            producer_id=producer[1],
            producer_epoch=producer[2],
            group_id=self.group,
        )
        # A transaction that has just ended may still be writing its markers.
        deadline = time.monotonic() + TIMEOUT_S
        while (reply := self.main.send(message, 3)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.tell("add offsets", ErrorCode(reply.error_code).name)

    def end(self, producer, committed):
        message = request(
            ApiKey.END_TXN,
            transactional_id=producer[0],
            producer_id=producer[1],
            producer_epoch=producer[2],
            committed=committed,
        )
        self.tell("end", committed, ErrorCode(self.main.send(message, 3).error_code).name)
        self.wait_until_stable()

    def create_topic(self, name):
        topic = part(ApiKey.CREATE_TOPICS, "CreatableTopic", name=name, num_partitions=2, replication_factor=1)
        (row,) = self.main.send(request(ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=10_000), 5).topics
        self.tell("create topic", ErrorCode(row.error_code).name)
        message = request(ApiKey.METADATA, topics=[part(ApiKey.METADATA, "MetadataRequestTopic", name=name)])
        self._until(lambda: not self.main.send(message, 8).topics[0].error_code)

    def delete_topic(self, name):
        (row,) = self.main.send(request(ApiKey.DELETE_TOPICS, topic_names=[name], timeout_ms=10_000), 5).responses
        self.tell("delete topic", ErrorCode(row.error_code).name)
        row = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=self.group, topics=None)
        fetch = request(ApiKey.OFFSET_FETCH, groups=[row])
        self._until(lambda: name not in [topic.name for topic in self.main.send(fetch, 8).groups[0].topics])

    def _until(self, is_so):
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _wait_for_loading(self):
        row = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=self.group, topics=None)
        fetch = request(ApiKey.OFFSET_FETCH, groups=[row])
        self._until(lambda: self.main.send(fetch, 8).groups[0].error_code not in LOADING)

    def wait_until_stable(self):
        """Until the marker has reached the group's offsets."""
        holder = "OffsetFetchRequestGroup.OffsetFetchRequestTopics"
        topic = part(ApiKey.OFFSET_FETCH, holder, name=self.topic, partition_indexes=[0, 1])
        row = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=self.group, topics=[topic])
        message = request(ApiKey.OFFSET_FETCH, groups=[row], require_stable=True)
        self._until(
            lambda: not any(p.error_code for t in self.main.send(message, 8).groups[0].topics for p in t.partitions)
        )
