"""Steps that ask the coordinator of a group."""

from differential.asking import Asker, code, own_error, partition_rows

from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

OFFSET_FETCH, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, TXN_OFFSET_COMMIT = 9, 11, 13, 14, 28


class GroupSteps(Asker):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._members = {}
        self._waiting = []

    def _join(self, step):
        """[code, generation, code of SyncGroup]. Another member that has to come first is not waited for."""
        request = codec.request_class(JOIN_GROUP)
        member_id, _ = self._members.get(step["member"], ("", -1))
        fields = {
            "group_id": self._name(step["group"]),
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "group_instance_id": step["instance"],
            "protocol_type": "consumer",
            "protocols": [request.JoinGroupRequestProtocol(name="range", metadata=b"")],
        }
        reply = self._ask_to_join(member_id, fields, step["wait"])
        if reply is None:
            return ["waits"]
        self._members[step["member"]] = (reply.member_id, reply.generation_id)
        if reply.error_code or not step["sync"]:
            return [code(reply), reply.generation_id]
        synced = self._ask(
            SYNC_GROUP,
            3,
            own_error,
            group_id=fields["group_id"],
            generation_id=reply.generation_id,
            member_id=reply.member_id,
            group_instance_id=step["instance"],
            assignments=[],
        )
        return [code(reply), reply.generation_id, code(synced)]

    def _ask_to_join(self, member_id, fields, wait):
        request = codec.request_class(JOIN_GROUP)
        connection = self._connection if wait else self._connect()
        reply = None
        if not member_id and not fields["group_instance_id"]:
            # The first answer is a member id only (KIP-394).
            reply = self._ask(JOIN_GROUP, 5, own_error, member_id="", **fields)
            if reply.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                return reply
            member_id = reply.member_id
        connection.post(request(member_id=member_id, **fields), 5)
        if wait:
            return connection.receive()
        self._waiting.append(connection)
        return None

    def _leave(self, step):
        member_class = codec.request_class(LEAVE_GROUP).MemberIdentity
        member_id, _ = self._members.get(step["member"], ("", -1))
        members = [member_class(member_id=member_id, group_instance_id=None)]
        return code(self._ask(LEAVE_GROUP, 3, own_error, group_id=self._name(step["group"]), members=members))

    def _txn_offset_commit(self, step):
        topic_class = codec.request_class(TXN_OFFSET_COMMIT).TxnOffsetCommitRequestTopic
        rows = {}
        for partition, offset in step["offsets"]:
            topic, index = self._place(partition)
            row = topic_class.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=step["leader_epoch"],
                committed_metadata=step["metadata"],
            )
            rows.setdefault(topic, []).append(row)
        generation, member = step["generation"], step["member"]
        if step.get("of"):
            member, generation = self._members[step["of"]]
            generation += step["shift"]
        reply = self._ask(
            TXN_OFFSET_COMMIT,
            step["version"],
            lambda reply: {row.error_code for row in partition_rows(reply)},
            transactional_id=self._name(self._handles[step["who"]].id),
            group_id=self._name(step["group"]),
            generation_id=generation,
            member_id=member,
            group_instance_id=step["instance"],
            topics=[topic_class(name=name, partitions=partitions) for name, partitions in rows.items()],
            **self._row(step),
        )
        return sorted([row.partition_index, code(row)] for row in partition_rows(reply))

    def _offset_fetch(self, step):
        request_class = codec.request_class(OFFSET_FETCH)
        group, version, topics = self._name(step["group"]), step["version"], self._topics(step["partitions"])
        if version >= 8:
            group_class = request_class.OffsetFetchRequestGroup
            topic_class = group_class.OffsetFetchRequestTopics
            asked = [topic_class(name=name, partition_indexes=p) for name, p in topics.items()]
            fields = {"groups": [group_class(group_id=group, topics=asked)]}
        else:
            topic_class = request_class.OffsetFetchRequestTopic
            asked = [topic_class(name=name, partition_indexes=p) for name, p in topics.items()]
            fields = {"group_id": group, "topics": asked}
        body = _first_group if version >= 8 else _itself
        reply = body(
            self._ask(
                OFFSET_FETCH,
                version,
                lambda reply: {body(reply).error_code or 0, *(row.error_code for row in partition_rows(body(reply)))},
                require_stable=step["stable"],
                **fields,
            )
        )
        rows = sorted(
            [row.partition_index, code(row), row.committed_offset, row.committed_leader_epoch, row.metadata]
            for row in partition_rows(reply)
        )
        return [ErrorCode(reply.error_code or 0).name, rows]


def _first_group(reply):
    return reply.groups[0]


def _itself(reply):
    return reply
