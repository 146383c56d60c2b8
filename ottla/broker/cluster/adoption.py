"""Take over a log directory without metadata: open its logs, then write their topics to the metadata log. shell"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.cluster.adoption_records import (
    KEEP_EVERYTHING,
    PRODUCER_ID_BLOCK,
    Contradiction,
    FoundTopic,
    adopted_configs,
    adopting_records,
    find_topics,
    highest_producer_id,
)
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.log.partition import Partition
from ottla.protocol.checkpoints import parse_directory_name
from ottla.protocol.internal_topics.metadata_records import MetadataRecord, ProducerIdsRecord
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH

log = logging.getLogger(__name__)

_LAST_BLOCK: Final = 2**63 - 1 - PRODUCER_ID_BLOCK


class Adoption:
    """Topics of the partition directories, as records for an empty metadata log. A kill changes nothing on disk."""

    def __init__(
        self,
        store: LogManager,
        new_topic_id: Callable[[], bytes],
        settings_of: Callable[[dict[str, str]], LogConfig],
        forced_configs: Mapping[str, Mapping[str, str]],
        node_id: int,
        directory_id: bytes,
    ) -> None:
        self._store = store
        self._new_topic_id = new_topic_id
        self._settings_of = settings_of
        self._forced_configs = forced_configs
        self._node_id = node_id
        self._directory_id = directory_id
        self._highest_producer_id = -1

    def records(self) -> list[MetadataRecord]:
        """Return records of all topics and used producer ids; none for a new directory. Raises LogDirectoryError."""
        places = [place for name in self._store.partition_dirs() if (place := parse_directory_name(name)) is not None]
        places = [place for place in places if place[0] != METADATA_TOPIC and self._holds_a_log(*place)]
        try:
            topics = find_topics(places, self._store.topic_id_on_disk)
        except Contradiction as problem:
            raise LogDirectoryError(str(problem)) from problem
        records: list[MetadataRecord] = []
        for topic in topics:
            records += self._adopt(topic)
        if self._highest_producer_id >= 0:
            next_block = (self._highest_producer_id // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK
            if next_block > _LAST_BLOCK:
                raise LogDirectoryError(
                    f"{self._store.directory}: producer id {self._highest_producer_id} is in use, and no block of ids "
                    f"comes after it: put back the metadata ({METADATA_TOPIC}-0), which has the next id"
                )
            records.append(ProducerIdsRecord(self._node_id, 0, next_block))
        if topics:
            kept = ", ".join(f"{key}={value}" for key, value in KEEP_EVERYTHING.items())
            log.warning(
                "The log directory has no metadata: registered the %d topics found there. Their configs are unknown, "
                "so each has %s (%s)",
                len(topics),
                kept,
                ", ".join(topic.name for topic in topics[:20]) + (", ..." if len(topics) > 20 else ""),
            )
        return records

    def _holds_a_log(self, topic: str, index: int) -> bool:
        """Return whether this is a partition directory, and not a directory of the user with a similar name."""
        names = self._store.side_files.names(f"{topic}-{index}")
        return "partition.metadata" in names or any(name.endswith(".log") for name in names)

    def _adopt(self, topic: FoundTopic) -> list[MetadataRecord]:
        topic_id = topic.topic_id or self._new_topic_id()
        configs = adopted_configs(topic.name, self._forced_configs)
        settings = self._settings_of(configs)
        epochs = {}
        for index in topic.indexes:
            partition = self._store.open_partition(topic.name, index, topic_id, NO_PARTITION_LEADER_EPOCH, settings)
            if partition.offline is not None:
                # Its leader epoch and producer ids are unknown, but must not be used again.
                raise LogDirectoryError(f"{partition.name} cannot be taken over: {partition.offline}")
            epochs[index] = partition.log.epochs.latest_epoch + 1
            partition.lead(epochs[index])
            self._look_for_producers(partition)
        return adopting_records(topic, topic_id, configs, epochs, self._node_id, self._directory_id)

    def _look_for_producers(self, partition: Partition) -> None:
        highest = max((producer.producer_id for producer in partition.producers()), default=-1)
        if partition.topic == TRANSACTION_STATE_TOPIC:
            highest = max(highest, highest_producer_id(partition.scan(0)))
        self._highest_producer_id = max(self._highest_producer_id, highest)
