"""What is served: the only list of APIs, versions and handlers. frozen

Produce is advertised from version 0 although 0-2 are refused, because librdkafka reads feature support from it
(KAFKA-18659).
"""

from collections.abc import Mapping
from typing import Final

from ottla.broker.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_heartbeat,
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
from ottla.protocol.api_keys import ApiKey

_APIS: Final = (
    Api(ApiKey.PRODUCE, 3, 13, produce.handle),
    Api(ApiKey.FETCH, 4, 12, fetch.handle),
    Api(ApiKey.LIST_OFFSETS, 1, 11, list_offsets.handle),
    Api(ApiKey.METADATA, 0, 12, metadata.handle),
    Api(ApiKey.OFFSET_COMMIT, 2, 9, offset_commit.handle),
    Api(ApiKey.OFFSET_FETCH, 1, 8, offset_fetch.handle),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, find_coordinator.handle),
    Api(ApiKey.JOIN_GROUP, 0, 9, join_group.handle),
    Api(ApiKey.HEARTBEAT, 0, 4, heartbeat.handle),
    Api(ApiKey.LEAVE_GROUP, 0, 5, leave_group.handle),
    Api(ApiKey.SYNC_GROUP, 0, 5, sync_group.handle),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 5, describe_groups.handle),
    Api(ApiKey.LIST_GROUPS, 0, 4, list_groups.handle),
    Api(ApiKey.API_VERSIONS, 0, 4, api_versions.handle),
    Api(ApiKey.CREATE_TOPICS, 2, 7, create_topics.handle),
    Api(ApiKey.DELETE_TOPICS, 1, 6, delete_topics.handle),
    Api(ApiKey.DELETE_RECORDS, 0, 2, delete_records.handle),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, init_producer_id.handle),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, offset_for_leader_epoch.handle),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, add_partitions_to_txn.handle),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, add_offsets_to_txn.handle),
    Api(ApiKey.END_TXN, 0, 5, end_txn.handle),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, write_txn_markers.handle),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, txn_offset_commit.handle),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, describe_configs.handle),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, alter_configs.handle),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, describe_log_dirs.handle),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, create_partitions.handle),
    Api(ApiKey.DELETE_GROUPS, 0, 2, delete_groups.handle),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, incremental_alter_configs.handle),
    Api(ApiKey.OFFSET_DELETE, 0, 0, offset_delete.handle),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, update_features.handle),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, describe_cluster.handle),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, describe_producers.handle),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, describe_transactions.handle),
    Api(ApiKey.LIST_TRANSACTIONS, 0, list_transactions.LAST_VERSION, list_transactions.handle),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, consumer_group_heartbeat.handle),
)
_ADVERTISED_FROM: Final = {ApiKey.PRODUCE: 0}

TABLE: Final = {api.key.value: api for api in _APIS}
"""By plain numbers: each request is looked up with the one in its header."""


def advertised(table: Mapping[int, Api] = TABLE) -> list[tuple[int, int, int]]:
    """(API key, lowest, highest version) of every API, as ApiVersions lists them."""
    return [(api.key, _ADVERTISED_FROM.get(api.key, api.min_version), api.max_version) for api in table.values()]
