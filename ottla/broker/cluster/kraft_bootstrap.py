"""Metadata of a broker as the first records of a KRaft cluster, which `ottla graduate` writes. pure

Source: `BootstrapMetadata`, `ActivationRecordsGenerator` of Kafka 4.3.1. Features come first; the first active
controller logs the records in their order. Each partition gets a new leader epoch, because Kafka now leads it.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from ottla.broker.cluster.features import METADATA_FEATURE
from ottla.broker.cluster.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    partition_on,
)
from ottla.protocol.internal_topics.security_records import ClientQuotaRecord, SecurityRecord


def bootstrap_records(
    image: MetadataImage, node_id: int, directory_id: bytes, highest_metadata_version: int
) -> list[MetadataRecord]:
    """Return features, configs, topics with this node as the only replica, producer ids, ACLs, users and quotas."""
    level = min(image.features.get(METADATA_FEATURE, highest_metadata_version), highest_metadata_version)
    records = _features_and_configs(image, image.features | {METADATA_FEATURE: level})
    for _, topic in sorted(image.topics.items()):
        records += _topic_records(topic, node_id, directory_id)
    if image.next_producer_id > 0:
        records.append(ProducerIdsRecord(node_id, 0, image.next_producer_id))
    records += security_records(image)
    return records


def security_records(image: MetadataImage) -> Iterator[SecurityRecord]:
    """Return ACLs, SCRAM users and quotas as of the call. Later changes do not affect the iterator."""
    quotas = (
        ClientQuotaRecord(entity, key, value, remove=False)
        for entity, of_entity in tuple(image.client_quotas.items())
        for key, value in of_entity.items()
    )
    return chain(tuple(image.acls.values()), tuple(image.scram_credentials.values()), quotas)


def cluster_records(image: MetadataImage, node_id: int) -> list[MetadataRecord]:
    """Return the first records of a snapshot: features, configs of brokers and groups, producer ids."""
    records = _features_and_configs(image, image.features)
    if image.next_producer_id > 0:
        records.append(ProducerIdsRecord(node_id, 0, image.next_producer_id))
    return records


def _features_and_configs(image: MetadataImage, features: Mapping[str, int]) -> list[MetadataRecord]:
    # `FeaturesImage.write`: the metadata.version is first, because it determines how the next records are read.
    in_order = sorted(features.items(), key=lambda feature: (feature[0] != METADATA_FEATURE, feature))
    records: list[MetadataRecord] = [FeatureLevelRecord(name, level) for name, level in in_order]
    for kind, of_kind in ((BROKER_RESOURCE, image.broker_configs), (GROUP_RESOURCE, image.group_configs)):
        for resource, configs in sorted(of_kind.items()):
            records += [ConfigRecord(kind, resource, key, value) for key, value in sorted(configs.items())]
    return records


def topic_and_configs(topic: TopicImage) -> list[MetadataRecord]:
    """Return the records of a topic without its partitions."""
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic.topic_id)]
    records += [ConfigRecord(TOPIC_RESOURCE, topic.name, key, value) for key, value in sorted(topic.configs.items())]
    return records


def partition_record(topic_id: bytes, index: int, leader_epoch: int, place: PartitionRegistration) -> PartitionRecord:
    """Return the record of a partition for a snapshot."""
    return PartitionRecord(index, topic_id, leader_epoch=leader_epoch, partition_epoch=0, **place._asdict())


def _topic_records(topic: TopicImage, node_id: int, directory_id: bytes) -> list[MetadataRecord]:
    records = topic_and_configs(topic)
    records += [
        partition_on((node_id,), directory_id, topic.topic_id, index, epoch + 1)
        for index, epoch in enumerate(topic.leader_epochs)
    ]
    return records
