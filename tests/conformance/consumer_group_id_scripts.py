"""Scripts of topic ids in commits and fetches, of the bounds of timeouts, and of requests that no client should send.

Numbers are the sections of KIP-848 in Kafka 4.3.1: static members (8), offsets (12), options (15).
"""

from uuid import UUID

from consumer_group_migration_scripts import ClassicMember
from consumer_group_requests import OWN, Member
from group_requests import OFFSETS, part, request

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.internal_topics.offsets_records import OffsetKey, decode_offset_value, read_offsets_key
from ottla.protocol.records import iter_records
from tests.subscriptions import assign

BROKER_RESOURCE, GROUP_RESOURCE = 4, 32
SET_CONFIG, DELETE_CONFIG = 0, 1
UNKNOWN, NONE = UUID(int=7), UUID(int=0)


def commit_by_id(requests, rows, member_id="", epoch=-1):
    """Commit (topic id, [(partition, offset, metadata)]) each with version 10."""
    holder = "OffsetCommitRequestTopic"
    topics = [
        part(
            ApiKey.OFFSET_COMMIT,
            holder,
            topic_id=topic_id,
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
        for topic_id, partitions in rows
    ]
    fields = {"generation_id_or_member_epoch": epoch, "member_id": member_id, "group_instance_id": None}
    reply = requests.main.send(request(ApiKey.OFFSET_COMMIT, group_id=requests.group, topics=topics, **fields), 10)
    rows = sorted(
        (name_of(requests, topic.topic_id), row.partition_index, ErrorCode(row.error_code).name)
        for topic in reply.topics
        for row in topic.partitions
    )
    requests.tell(f"commit v10 as {requests.name(member_id)} {epoch}", rows)


def fetch_by_id(requests, rows, member_id=None, epoch=-1, stable=False):
    """Fetch (topic id, [partition]) each with version 10; everything if `rows` is None."""
    holder = "OffsetFetchRequestGroup.OffsetFetchRequestTopics"
    topics = rows and [
        part(ApiKey.OFFSET_FETCH, holder, topic_id=topic_id, partition_indexes=list(indexes))
        for topic_id, indexes in rows
    ]
    fields = {"group_id": requests.group, "topics": topics, "member_id": member_id, "member_epoch": epoch}
    row = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", **fields)
    (reply,) = requests.main.send(request(ApiKey.OFFSET_FETCH, groups=[row], require_stable=stable), 10).groups
    found = sorted(
        (
            *(name_of(requests, topic.topic_id), row.partition_index, ErrorCode(row.error_code).name),
            *(row.committed_offset, row.committed_leader_epoch, row.metadata),
        )
        for topic in reply.topics
        for row in topic.partitions
    )
    label = f"fetch v10 as {requests.name(member_id)} {epoch} stable={stable}"
    requests.tell(label, ErrorCode(reply.error_code).name, found)


def name_of(requests, topic_id):
    return "none" if topic_id is None or not UUID(str(topic_id)).int else requests.topic_name(topic_id)


def read_stored_ids(requests):
    """Add topic, partition, offset and topic id of each commit in the log; None for a tombstone."""
    message = request(ApiKey.METADATA, topics=[part(ApiKey.METADATA, "MetadataRequestTopic", name=OFFSETS)])
    (topic,) = requests.main.send(message, 8).topics
    log = requests._read(OFFSETS, coordinator_partition(requests.group, len(topic.partitions)))
    for position, header in iter_batches(log):
        if header.is_control:
            continue
        for record in iter_records(log[position : position + header.size_bytes], header):
            key = read_offsets_key(record.key)
            if isinstance(key, OffsetKey) and key.group == requests.group:
                requests.tell("stored", key.topic, key.partition, record.value and _read_value(requests, record.value))


def _read_value(requests, content):
    value = decode_offset_value(content)
    return value.offset, None if value.topic_id is None else requests.topic_name(UUID(bytes=bytes(value.topic_id)))


def configure(requests, kind, name, *changes):
    """Change configs (name, value; None deletes) of a resource."""
    holder = "AlterConfigsResource"
    rows = [
        part(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            f"{holder}.AlterableConfig",
            name=config,
            config_operation=DELETE_CONFIG if value is None else SET_CONFIG,
            value=value,
        )
        for config, value in changes
    ]
    row = part(ApiKey.INCREMENTAL_ALTER_CONFIGS, holder, resource_type=kind, resource_name=name, configs=rows)
    (reply,) = requests.main.send(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[row]), 1).responses
    requests.tell(f"configure {dict(changes)}", ErrorCode(reply.error_code).name, reply.error_message)


def broker_id(requests):
    (broker,) = requests.main.send(request(ApiKey.METADATA, topics=[]), 8).brokers
    return str(broker.node_id)


# -- 12: topic ids -----------------------------------------------------------------------------------------------------


def members_commit_and_fetch_by_topic_id(requests):
    a, b = requests.topic_id(requests.a), requests.topic_id(requests.b)
    m1, m2 = (Member(requests, name, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat()
    for epoch in (2, 3, 1, 0, -1):
        commit_by_id(requests, [(a, [(0, 5, "m"), (5, 6, "")])], "m1", epoch)
    m1.beat(OWN)
    for epoch in (3, 2):
        commit_by_id(requests, [(a, [(0, 7, "")]), (b, [(0, 3, "")])], "m1", epoch)
        commit_by_id(requests, [(a, [(0, 8, ""), (4, 9, "")])], "m1", epoch)
        commit_by_id(requests, [(UNKNOWN, [(0, 1, ""), (4, 1, "")]), (a, [(0, 9, ""), (77, 1, "")])], "m1", epoch)
        commit_by_id(requests, [(NONE, [(0, 1, "")])], "m1", epoch)
        commit_by_id(requests, [(a, [(0, 10, ""), (4, 1, "x" * 5000)])], "m1", epoch)
    commit_by_id(requests, [], "m1", 3)
    commit_by_id(requests, [(a, [])], "m1", 3)
    for member_id, epoch in (("zz", 3), ("zz", -1), ("", -1), ("", 3)):
        commit_by_id(requests, [(a, [(4, 12, "")]), (UNKNOWN, [(0, 1, "")])], member_id, epoch)
    rows = [(a, [0, 4, 99]), (UNKNOWN, [0, 1]), (b, [0, 1]), (NONE, [2])]
    for member_id, epoch in (("m1", 3), ("m1", 2), ("zz", 3), (None, -1)):
        fetch_by_id(requests, rows, member_id, epoch)
        fetch_by_id(requests, None, member_id, epoch)
    fetch_by_id(requests, [(UNKNOWN, [0])], "m1", 9)
    fetch_by_id(requests, [])
    requests.fetch_as()
    read_stored_ids(requests)


def clients_without_a_group_commit_by_topic_id(requests):
    a, b = requests.topic_id(requests.a), requests.topic_id(requests.b)
    fetch_by_id(requests, [(a, [0]), (UNKNOWN, [0])])
    fetch_by_id(requests, None)
    commit_by_id(requests, [(a, [(0, 1, "")])], "m", 3)
    commit_by_id(requests, [(UNKNOWN, [(0, 1, "")])], "m", 3)
    commit_by_id(requests, [(a, [(0, 1, "m")]), (b, [(1, 2, "")])])
    fetch_by_id(requests, [(a, [0, 1]), (b, [1])])
    fetch_by_id(requests, None)
    requests.list_types()
    member = requests.enter().member_id
    requests.sync(member, 1, [(member, b"A")])
    commit_by_id(requests, [(a, [(0, 2, "")])], member, 1)
    commit_by_id(requests, [(a, [(0, 3, "")])], member, 2)
    commit_by_id(requests, [(a, [(0, 3, "")])], "who", 1)
    fetch_by_id(requests, [(a, [0])], member, 1)
    fetch_by_id(requests, [(a, [0])], "who", 7)


def commits_store_the_id_of_the_topic(requests):
    for version in (2, 5, 8, 9):
        requests.commit([(requests.a, [(version, version, "")])] if version < 6 else None, version=version)
    requests.commit([(requests.b, [(0, 4, "")])], version=4, retention_ms=3_600_000)
    commit_by_id(requests, [(requests.topic_id(requests.b), [(1, 10, "")])])
    producer = requests.producer()
    requests.add_offsets(producer)
    requests.commit_in_transaction(producer, [(requests.a, [(1, 7, "")])])
    fetch_by_id(requests, [(requests.topic_id(requests.a), [0, 1])], stable=True)
    requests.end(producer, True)
    fetch_by_id(requests, [(requests.topic_id(requests.a), [0, 1])])
    fetch_by_id(requests, None)
    read_stored_ids(requests)


def a_topic_is_deleted_and_made_again(requests):
    requests.create_later()
    later = f"{requests.group}-later"
    before = requests.topic_id(later)
    requests.commit([(later, [(0, 5, "")]), (requests.a, [(0, 6, "")])])
    commit_by_id(requests, [(before, [(1, 7, "")])])
    requests.delete_topic(later)
    fetch_by_id(requests, [(before, [0, 1])])
    commit_by_id(requests, [(before, [(0, 8, "")])])
    fetch_by_id(requests, None)
    requests.fetch_as(topics=None)
    del requests._topic_names[before]
    requests.create_later()
    after = requests.topic_id(later)
    fetch_by_id(requests, [(before, [0]), (after, [0, 1])])
    commit_by_id(requests, [(before, [(0, 9, "")]), (after, [(0, 1, "")])])
    fetch_by_id(requests, [(before, [0]), (after, [0, 1])])
    fetch_by_id(requests, None)
    requests.fetch_as(topics=None)


def transactions_with_every_generation(requests):
    m1, m2 = (Member(requests, name, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    m1.beat()
    m1.beat(OWN)
    m2.beat({})
    producer = requests.producer()
    requests.add_offsets(producer)
    for generation in (-(2**31), -2, -1, 0, 2, 3, 4, 2**31 - 1):
        for member_id in ("", "m1", "zz"):
            for instance_id in (None, "i"):
                caller = (generation, member_id, instance_id)
                requests.commit_in_transaction(producer, [(requests.a, [(0, 7, "")])], caller)
    rows = [(requests.a, [(0, 8, ""), (4, 1, "x" * 5000)])]
    requests.commit_in_transaction(producer, rows, (2, "m1", None))
    requests.commit_in_transaction(producer, [("no-such-topic", [(0, 1, "")]), *rows], (2, "m1", None))
    requests.commit_in_transaction(producer, [(requests.a, [(0, 8, ""), (77, 1, "")])], (2, "m1", None))
    requests.commit_in_transaction(producer, [(requests.b, [(0, 1, "")])], (2, "m1", None))
    requests.end(producer, False)
    fetch_by_id(requests, None)


# -- 15: bounds --------------------------------------------------------------------------------------------------------


def configs_of_a_group_have_bounds(requests):
    m = Member(requests, "m")
    m.join()
    for name, values in (
        ("session", ("44999", "45000", "60000", "60001", "2147483647")),
        ("heartbeat", ("4999", "5000", "15000", "15001", "1")),
        ("assignment", ("0", "15000", "15001")),
    ):
        key = f"consumer.{name}.{'timeout' if name == 'session' else 'interval'}.ms"
        for value in values:
            configure(requests, GROUP_RESOURCE, requests.group, (key, value))
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    configure(requests, GROUP_RESOURCE, requests.group, (session, "1"), (heartbeat, "1"))
    configure(
        requests, GROUP_RESOURCE, requests.group, (session, "50000"), ("consumer.assignment.interval.ms", "99999")
    )
    configure(requests, GROUP_RESOURCE, requests.group, (session, "99999"), (heartbeat, "99999"))
    configure(requests, GROUP_RESOURCE, requests.group, ("no.such.config", "1"), (session, "1"))
    configure(requests, GROUP_RESOURCE, requests.group, (heartbeat, "7000"))
    requests.configure(consumer_heartbeat_interval_ms="6000")
    m.beat()
    configure(requests, GROUP_RESOURCE, requests.group, (heartbeat, None), (session, None))
    requests.configure(consumer_assignment_interval_ms="0")
    m.beat()


def options_of_a_running_broker_have_bounds(requests):
    for name in ("", broker_id(requests)):
        for value in ("15001", "2147483647"):
            configure(requests, BROKER_RESOURCE, name, ("group.consumer.assignment.interval.ms", value))
        for key in ("group.consumer.min.assignment.interval.ms", "group.consumer.max.session.timeout.ms"):
            configure(requests, BROKER_RESOURCE, name, (key, "5"))


# -- requests that no client should send -------------------------------------------------------------------------------


def heartbeats_with_every_epoch(requests):
    s = Member(requests, "s", instance="i", assignor="range")
    m = Member(requests, "m", assignor="range")
    s.join()
    m.join()
    for epoch in (0, 1, 2, 3, 4, 2**31 - 1, -1, -2, -3, -(2**31)):
        for member_id in ("zz", "m"):
            for instance_id in (None, "i", "j"):
                if (member_id, epoch) != ("m", -1) or instance_id is not None:
                    _stray(requests, member_id, instance_id, epoch)
    requests.describe_consumer_group()
    s.beat(OWN)
    m.beat(OWN)


def _stray(requests, member_id, instance_id, epoch):
    """Send a heartbeat of a member that may be none; one that would join has no partitions."""
    stray = Member(requests, member_id, instance=instance_id, assignor="range")
    stray.beat({} if epoch == 0 else None, epoch, rebalance_timeout_ms=30_000, subscribed_topic_names=[requests.a])
    requests.describe_consumer_group()


def a_static_id_is_taken_twice(requests):
    first, second = (Member(requests, name, instance="i", assignor="range") for name in ("s1", "s2"))
    first.join()
    second.join()
    first.join()
    second.beat(epoch=2)
    first.leave(-2)
    second.join()
    first.beat()
    first.join()
    first.leave(-2)
    first.leave(-1)
    second.leave(-2)
    second.leave(-2)
    first.join()
    second.beat()
    requests.commit([(requests.a, [(0, 1, "")])], "s2", 2)
    requests.commit([(requests.a, [(0, 1, "")])], "s1", 2)
    requests.describe_consumer_group()


def a_member_never_acknowledges_a_revocation(requests):
    m1, m2 = (Member(requests, name, assignor="range") for name in ("m1", "m2"))
    m1.join()
    m2.join()
    for owned in (None, {requests.a: list(range(6))}, {requests.a: [5]}, {requests.a: [5, 5, 99]}, None):
        m1.beat(owned)
        m2.beat({})
    m1.beat({requests.a: [0, 1, 2]})
    m2.beat({})
    requests.describe_consumer_group()


def a_static_member_changes_its_protocol_and_back_without_an_epoch(requests):
    old = ClassicMember(requests, "", "i1")
    old.join({})
    old.sync(given=[(old.member_id, assign(**{requests.a: [0, 1]}))])  # as if the rest were withheld
    new = Member(requests, "m1", instance="i1", assignor="range")
    new.join()
    requests.describe_consumer_group()
    again = ClassicMember(requests, "", "i1")
    again.join({})
    requests.list_types()
    again.sync()
    again.beat()
    requests.describe_as_classic()
    requests.read_records(ordered=False)


SCRIPTS = [
    members_commit_and_fetch_by_topic_id,
    clients_without_a_group_commit_by_topic_id,
    commits_store_the_id_of_the_topic,
    a_topic_is_deleted_and_made_again,
    transactions_with_every_generation,
    configs_of_a_group_have_bounds,
    options_of_a_running_broker_have_bounds,
    heartbeats_with_every_epoch,
    a_static_id_is_taken_twice,
    a_static_member_changes_its_protocol_and_back_without_an_epoch,
    a_member_never_acknowledges_a_revocation,
]
