"""Metadata of the cluster that stay as they were at one moment, as those of a broker that lags behind. pure"""

from ottla.broker.cluster.image import MetadataImage, TopicImage
from ottla.protocol.internal_topics.metadata_records import NO_LEADER


class FrozenMetadata:
    """The metadata from which a broker answers Metadata and FindCoordinator while it is frozen."""

    def __init__(self, image: MetadataImage, stopped_ids: set[int]) -> None:
        self.stopped_ids = {*stopped_ids}
        self.topics = {name: _copy(topic) for name, topic in image.topics.items()}
        self.topics_by_id = {topic.topic_id: topic for topic in self.topics.values()}

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """Return the id of the broker that led the partition, and its epoch; (-1, -1) if there was none."""
        known = self.topics.get(topic)
        if known is None or not 0 <= index < known.partition_count:
            return NO_LEADER, -1
        return known.registrations[index].leader, known.leader_epochs[index]


def _copy(topic: TopicImage) -> TopicImage:
    return TopicImage(topic.name, topic.topic_id, [*topic.leader_epochs], [*topic.registrations], {**topic.configs})
