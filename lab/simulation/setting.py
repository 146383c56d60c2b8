"""Initial state of a world: the broker's settings, its topics, and earlier transactions of its ids. free"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from lab.metadata import create_internal_topic, create_topic, next_producer_id
from lab.simulation.faults import Profile
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from ottla.broker.config import Config
from ottla.broker.log.partition import Partition
from ottla.broker.txn.end_txn_rules import V2
from ottla.broker.txn.log import encode_change
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import NO_PARTITIONS, TransactionState
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.values import MAX_PRODUCER_EPOCH, NO_TIMESTAMP

DATA_DIR: Final = "/data"
ZOOKEEPER: Final = "zk:2181/ottla"
TOPICS: Final = {"data": 2, "in": 2, "out": 2}
FACTORS: Final = {"data": 3, "in": 2, "out": 2}
"""Replication factors with several brokers."""
IN_SYNC: Final = {"data": "2"}
"""`min.insync.replicas` by topic, with several brokers."""
CODECS_OF: Final = {"data": "gzip", "in": "zstd", "out": "lz4"}
"""`compression.type` by topic, in profiles that recompress."""
KEYED: Final = "keyed"
KEYED_PARTITIONS: Final = 2
KEYED_PLACES: Final = [(KEYED, index) for index in range(KEYED_PARTITIONS)]
KEYED_CONFIGS: Final = {"cleanup.policy": "compact"}
KEYS: Final = 4
GROUP_TOPICS: Final = {"g0": 3, "g1": 2}
"""Topics of the consumer protocol's groups at the start of a run."""
GROUP: Final = "copiers"
PRODUCERS_OF: Final = ("t0", "t1")
COPIERS_OF: Final = ("copy-0", "copy-1")
LEVELS: Final = (1, V2, V2)
PRODUCER_ID_EXPIRATION_MS: Final = 2600
"""Longer than any delay in the profile that uses it, because a retry that arrives later is appended twice."""

CHECKPOINTS_MS: Final = 300
"""The interval of checkpoints in profiles with disk errors: frequent, so that their writes fail as well."""

_CONFIG: Final = Config(
    log_dirs=DATA_DIR,
    transaction_state_log_num_partitions=2,
    offsets_topic_num_partitions=1,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=500,
    connections_max_idle_ms=30_000,
)
_FORGETFUL: Final = replace(
    _CONFIG,
    transactional_id_expiration_ms=900,
    transaction_remove_expired_transaction_cleanup_interval_ms=150,
    producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
    producer_id_expiration_check_interval_ms=200,
)
_CONFIGS: Final = {
    (level, expires): replace(config, transaction_version=level)
    for level in range(V2 + 1)
    for expires, config in ((False, _CONFIG), (True, _FORGETFUL))
}
_ENDED: Final = (TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


def config_of(level: int, profile: Profile) -> Config:
    """Return the broker's settings; `level` is the `transaction.version` of a new directory."""
    config = _CONFIGS[level, profile.expires]
    if profile.disk_errors[1]:
        config = replace(config, replica_high_watermark_checkpoint_interval_ms=CHECKPOINTS_MS)
    if profile.compacts:
        config = replace(config, log_cleaner_backoff_ms=120, log_retention_check_interval_ms=200)
    if profile.flush_ms:
        config = replace(config, log_flush_interval_messages=1)
    if profile.members or profile.migrates:
        config = replace(config, group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=60)
    if profile.group_consumers:
        config = replace(
            config,
            group_consumer_session_timeout_ms=700,
            group_consumer_heartbeat_interval_ms=100,
            group_consumer_assignment_interval_ms=120,
        )
    if profile.brokers > 1:
        config = replace(config, transaction_state_log_num_partitions=3)
    if profile.zookeeper:
        config = replace(config, producer_id_manager="zookeeper", zookeeper_connect=ZOOKEEPER)
    if not profile.verification:
        return replace(config, transaction_partition_verification_enable=False)
    return config


def shrink(partition: Partition, profile: Profile) -> None:
    """Make a log roll after a few batches, and if the profile compacts be compacted as soon as possible."""
    settings = replace(partition.log.config, segment_bytes=900, index_interval_bytes=200)
    if profile.compacts and settings.cleanup_compact:
        settings = replace(
            settings,
            segment_bytes=400,
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=60,
            file_delete_delay_ms=200,
        )
        if partition.topic == CONSUMER_OFFSETS_TOPIC and profile.group_consumers:
            settings = replace(settings, segment_bytes=3000)  # a segment must hold the largest batch of a group
        if partition.topic == KEYED and partition.index:
            settings = replace(settings, cleanup_policy="compact,delete", retention_ms=1500)
    elif partition.topic in INTERNAL_TOPICS:
        return
    partition.log.config = settings


def create_topics(assembly: Assembly, profile: Profile) -> None:
    """Create all topics and the directories of their partitions."""
    cluster = assembly.broker.cluster
    for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        create_internal_topic(cluster, topic)
    for topic, count in TOPICS.items():
        configs = {"compression.type": CODECS_OF[topic]} if profile.recompresses else {}
        if profile.brokers > 1 and topic in IN_SYNC:
            configs["min.insync.replicas"] = IN_SYNC[topic]
        create_topic(cluster, topic, count, configs, min(FACTORS[topic], profile.brokers))
    if profile.compacts:
        create_topic(cluster, KEYED, KEYED_PARTITIONS, KEYED_CONFIGS)
    for topic, count in GROUP_TOPICS.items() if profile.group_consumers else ():
        create_topic(cluster, topic, count)
    for made in cluster.topics.values():
        for index in range(made.partition_count):
            cluster.partition(made.name, index)


def give_past(
    assembly: Assembly, transactional_ids: Iterable[str], lowest_epoch: int, level: int, now_ms: int, random: Random
) -> None:
    """Log an old state of each id: an epoch near the highest, with no transaction, an ended one or an open one."""
    cluster = assembly.broker.cluster
    count = cluster.topics[TRANSACTION_STATE_TOPIC].partition_count
    for transactional_id in transactional_ids:
        producer_id, epoch = next_producer_id(cluster), random.randrange(lowest_epoch, MAX_PRODUCER_EPOCH)
        status = random.choice((*_ENDED, TransactionStatus.ONGOING))
        opened = status is TransactionStatus.ONGOING
        state = TransactionState(
            producer_id,
            epoch,
            status,
            900,
            {("data", 0): None, ("data", 1): None} if opened else NO_PARTITIONS,
            NO_TIMESTAMP if status is TransactionStatus.EMPTY else now_ms,
            now_ms,
            producer_id,
            client_version=level if level >= V2 and status is not TransactionStatus.EMPTY else 0,
        )
        log = cluster.partition(TRANSACTION_STATE_TOPIC, coordinator_partition(transactional_id, count))
        assert log is not None
        log.append_own(encode_change(transactional_id, state, level, now_ms))
