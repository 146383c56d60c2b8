"""What is served: the only list of APIs, versions and handlers. frozen

Produce is advertised from version 0 although 0-2 are refused, because librdkafka reads feature support from it
(KAFKA-18659).
"""

from typing import Final

from ottla.broker.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from ottla.broker.api.context import Api

_APIS: Final = (
    Api(0, "Produce", 3, 13, produce.handle),
    Api(1, "Fetch", 4, 12, fetch.handle),
    Api(2, "ListOffsets", 1, 11, list_offsets.handle),
    Api(3, "Metadata", 0, 12, metadata.handle),
    Api(8, "OffsetCommit", 2, 9, offset_commit.handle),
    Api(9, "OffsetFetch", 1, 8, offset_fetch.handle),
    Api(10, "FindCoordinator", 0, 6, find_coordinator.handle),
    Api(11, "JoinGroup", 0, 9, join_group.handle),
    Api(12, "Heartbeat", 0, 4, heartbeat.handle),
    Api(13, "LeaveGroup", 0, 5, leave_group.handle),
    Api(14, "SyncGroup", 0, 5, sync_group.handle),
    Api(15, "DescribeGroups", 0, 5, describe_groups.handle),
    Api(16, "ListGroups", 0, 4, list_groups.handle),
    Api(18, "ApiVersions", 0, 4, api_versions.handle),
    Api(19, "CreateTopics", 2, 7, create_topics.handle),
    Api(20, "DeleteTopics", 1, 6, delete_topics.handle),
    Api(21, "DeleteRecords", 0, 2, delete_records.handle),
    Api(22, "InitProducerId", 0, 5, init_producer_id.handle),
    Api(23, "OffsetForLeaderEpoch", 2, 4, offset_for_leader_epoch.handle),
    Api(24, "AddPartitionsToTxn", 0, 5, add_partitions_to_txn.handle),
    Api(25, "AddOffsetsToTxn", 0, 4, add_offsets_to_txn.handle),
    Api(26, "EndTxn", 0, 5, end_txn.handle),
    Api(27, "WriteTxnMarkers", 1, 2, write_txn_markers.handle),
    Api(28, "TxnOffsetCommit", 0, 5, txn_offset_commit.handle),
    Api(32, "DescribeConfigs", 1, 4, describe_configs.handle),
    Api(33, "AlterConfigs", 0, 2, alter_configs.handle),
    Api(35, "DescribeLogDirs", 1, 4, describe_log_dirs.handle),
    Api(37, "CreatePartitions", 0, 3, create_partitions.handle),
    Api(42, "DeleteGroups", 0, 2, delete_groups.handle),
    Api(44, "IncrementalAlterConfigs", 0, 1, incremental_alter_configs.handle),
    Api(47, "OffsetDelete", 0, 0, offset_delete.handle),
    Api(57, "UpdateFeatures", 0, 2, update_features.handle),
    Api(60, "DescribeCluster", 0, 1, describe_cluster.handle),
    Api(61, "DescribeProducers", 0, 0, describe_producers.handle),
    Api(65, "DescribeTransactions", 0, 0, describe_transactions.handle),
    Api(66, "ListTransactions", 0, list_transactions.LAST_VERSION, list_transactions.handle),
)
_ADVERTISED_FROM: Final = {0: 0}

TABLE: Final = {api.key: api for api in _APIS}


def advertised() -> list[tuple[int, int, int]]:
    """(API key, lowest, highest version) of every API, as ApiVersions lists them."""
    return [(api.key, _ADVERTISED_FROM.get(api.key, api.min_version), api.max_version) for api in _APIS]
