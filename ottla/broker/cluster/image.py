"""The image of `__cluster_metadata-0`: topics, configs, features, producer ids, ACLs, SCRAM users, quotas. pure

Only `MetadataImage.apply` changes it, live and in recovery, so the image always equals a replay of the log.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.protocol.internal_topics.kraft_records import ControlRecord
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    Ids,
    Ints,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.topic_names import unify_collision_chars
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset({TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC})
CONFIGURED: Final = frozenset({TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE})
"""Resource types whose configs are used; configs of other types are skipped."""
# `DirectoryId`: unassigned, lost, migrating, and others to come.
RESERVED_DIRECTORY_IDS: Final = 100


_ELR: Final = ("eligible_leader_replicas", "last_known_elr")


class PartitionRegistration(NamedTuple):
    """Location of a partition: node ids, and the id of each replica's log directory (empty: not known).

    The other fields are for Apache Kafka only: our snapshots contain them unchanged from Kafka's own records. The
    leader epoch is in the topic. Source: Kafka's class of this name.
    """

    leader: int
    replicas: Ints
    directories: Ids
    isr: Ints = ()
    removing_replicas: Ints = ()
    adding_replicas: Ints = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: Ints | None = None
    last_known_elr: Ints | None = None

    @classmethod
    def of(cls, record: PartitionRecord) -> "PartitionRegistration":
        return cls(*(getattr(record, name) for name in cls._fields))

    def merge(self, record: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the registration after a change. None, leader -2 and recovery state -1 mean "unchanged"."""
        unchanged = {"leader": NO_LEADER_CHANGE, "leader_recovery_state": -1}
        changes = {name: getattr(record, name) for name in self._fields}
        changes = {name: value for name, value in changes.items() if value != unchanged.get(name)}
        # An empty ELR is none.
        return self._replace(**changes | {name: changes[name] or None for name in _ELR if name in changes})

    def may_be_at(self, node_id: int, directory_id: bytes) -> bool:
        """Return whether the record allows that a replica of that node is in that log directory."""
        if node_id not in self.replicas:
            return False
        if not directory_id or len(self.directories) != len(self.replicas):
            return True
        found = self.directories[self.replicas.index(node_id)]
        return found == directory_id or int.from_bytes(found, "big") < RESERVED_DIRECTORY_IDS


UNREGISTERED: Final = PartitionRegistration(NO_LEADER, (), ())


@dataclass(slots=True)
class TopicImage:
    """A topic with partitions 0..n-1: `leader_epochs[i]` and `registrations[i]` are those of partition i."""

    name: str
    topic_id: bytes
    leader_epochs: list[int] = field(default_factory=list)
    registrations: list[PartitionRegistration] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def partition_count(self) -> int:
        return len(self.leader_epochs)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of partition 0 (`ReplicationControlManager.createPartitions`)."""
        return max(1, len(self.registrations[0].replicas))

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def copy(self) -> "TopicImage":
        """Return a topic that later changes of this one do not affect."""
        return TopicImage(self.name, self.topic_id, [*self.leader_epochs], [*self.registrations], {**self.configs})


@dataclass(slots=True)
class MetadataImage:
    """Result of replaying the metadata log. `next_producer_id` is the first id after the last reserved block."""

    topics: dict[str, TopicImage] = field(default_factory=dict)
    topics_by_id: dict[bytes, TopicImage] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: dict[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    """ACL entries by id."""
    scram_credentials: dict[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    """SCRAM credentials by user and mechanism."""
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    """Quotas by entity, whose pairs are sorted by type. The quotas of an entity are never changed in place."""
    passed_over: list[bytes] = field(default_factory=list)
    """Encoded records that a single broker does not use but Apache Kafka does (brokers, tokens), in their order."""
    quorum: dict[int, ControlRecord] = field(default_factory=dict)
    """Newest control record of each type that describes the quorum: its version, its voters."""
    created_topics: int = field(default=0, compare=False)
    """The number of topics that were added so far, also of those that are deleted."""
    # Names with a dot or an underscore, by their unified form (`ReplicationControlManager.topicsWithCollisionChars`).
    _collisions: dict[str, set[str]] = field(default_factory=dict, repr=False, compare=False)
    _frozen: dict[bytes, TopicImage] = field(default_factory=dict, repr=False, compare=False)
    # All partitions with equal registrations share one object, to save memory.
    _registrations: dict[PartitionRegistration, PartitionRegistration] = field(
        default_factory=dict, repr=False, compare=False
    )

    def apply(self, record: MetadataRecord) -> None:
        """Apply one record. The caller leaves out records that a single broker does not use."""
        match record:
            case TopicRecord():
                self.add_topic(TopicImage(record.name, record.topic_id))
            case PartitionRecord():
                self._set_partition(record)
            case PartitionChangeRecord():
                self._change_partition(record)
            case ConfigRecord():
                self._set_config(record)
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case FeatureLevelRecord():
                if record.feature_level > 0:
                    self.features[record.name] = record.feature_level
                else:
                    self.features.pop(record.name, None)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case AccessControlEntryRecord():
                self.acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
            case UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record
            case RemoveUserScramCredentialRecord():
                self.scram_credentials.pop((record.name, record.mechanism), None)
            case ClientQuotaRecord():
                self._set_client_quota(record)

    def add_topic(self, topic: TopicImage) -> None:
        """Add a complete topic, with the same result as applying its records one by one."""
        self.created_topics += 1
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        key = unify_collision_chars(topic.name)
        if "_" in key:
            self._collisions.setdefault(key, set()).add(topic.name)

    def _remove_topic(self, topic_id: bytes) -> None:
        removed = self.topics_by_id.pop(topic_id, None)
        if removed is None:
            return
        del self.topics[removed.name]
        key = unify_collision_chars(removed.name)
        colliding = self._collisions.get(key, set())
        colliding.discard(removed.name)
        if not colliding:
            self._collisions.pop(key, None)

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """Return the id of the broker that leads the partition, and its epoch; (-1, -1) if there is none."""
        known = self.topics.get(topic)
        if known is None or not 0 <= index < known.partition_count:
            return NO_LEADER, NO_PARTITION_LEADER_EPOCH
        return known.registrations[index].leader, known.leader_epochs[index]

    def colliding_topic(self, name: str) -> str | None:
        """Return a topic of another name that collides with this one, or None."""
        return min(self._collisions.get(unify_collision_chars(name), set()) - {name}, default=None)

    def freeze(self) -> dict[bytes, TopicImage]:
        """Return the topics by id as they are now; later changes do not affect them until `thaw`. The caller removes
        each topic that it has read."""
        self._frozen = dict(self.topics_by_id)
        return self._frozen

    def thaw(self) -> None:
        """Release the topics that `freeze` returned."""
        self._frozen = {}

    def will_change(self, topic: TopicImage) -> None:
        """Copy a frozen topic before it is changed in place."""
        if self._frozen.get(topic.topic_id) is topic:
            self._frozen[topic.topic_id] = topic.copy()

    def _set_partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id[record.topic_id]
        self.will_change(topic)
        place = self.intern(PartitionRegistration.of(record))
        # Snapshots contain the partitions of a topic in any order.
        while len(topic.leader_epochs) <= record.partition_id:
            topic.leader_epochs.append(0)
            topic.registrations.append(UNREGISTERED)
        topic.leader_epochs[record.partition_id] = record.leader_epoch
        topic.registrations[record.partition_id] = place

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic, index = self.topics_by_id.get(record.topic_id), record.partition_id
        if topic is None:
            return
        self.will_change(topic)
        if record.leader != NO_LEADER_CHANGE:
            topic.leader_epochs[index] += 1
        topic.registrations[index] = self.intern(topic.registrations[index].merge(record))

    def intern(self, place: PartitionRegistration) -> PartitionRegistration:
        """Return the shared object of this registration."""
        return self._registrations.setdefault(place, place)

    def _set_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted(dict(record.entity).items()))
        quotas = {**self.client_quotas.get(entity, {})}
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self.client_quotas[entity] = quotas
        else:
            self.client_quotas.pop(entity, None)

    def configs_of(self, resource_type: int, name: str) -> dict[str, str] | None:
        """Return the configs that were set for a resource; None for a topic that does not exist."""
        if resource_type == TOPIC_RESOURCE:
            topic = self.topics.get(name)
            return None if topic is None else topic.configs
        return self._of_type(resource_type).get(name, {})

    def _of_type(self, resource_type: int) -> dict[str, dict[str, str]]:
        return self.broker_configs if resource_type == BROKER_RESOURCE else self.group_configs

    def _set_config(self, record: ConfigRecord) -> None:
        target = self.configs_of(record.resource_type, record.resource_name)
        if target is None:
            return
        if record.resource_type == TOPIC_RESOURCE:
            self.will_change(self.topics[record.resource_name])
        if record.value is None:
            target.pop(record.name, None)
        else:
            target[record.name] = record.value
        if record.resource_type != TOPIC_RESOURCE:
            of_type = self._of_type(record.resource_type)
            if target:
                of_type[record.resource_name] = target
            else:
                of_type.pop(record.resource_name, None)
