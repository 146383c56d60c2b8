"""Metadata of the cluster that stay as they were at one moment, as those of a broker that lags behind. pure"""

from ottla.broker.cluster.image import MetadataImage


class FrozenMetadata:
    """The metadata from which a broker answers Metadata and FindCoordinator while it is frozen."""

    def __init__(self, image: MetadataImage, stopped_ids: set[int]) -> None:
        frozen = MetadataImage()
        for topic in image.topics.values():
            frozen.add_topic(topic.copy())
        self.topics, self.topics_by_id, self.leader_of = frozen.topics, frozen.topics_by_id, frozen.leader_of
        self.stopped_ids = {*stopped_ids}
