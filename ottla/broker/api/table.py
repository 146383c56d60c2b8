"""The served APIs: the only list of APIs, versions and handlers. frozen

Produce is advertised from version 0 although 0-2 are refused, because librdkafka derives feature support from it
(KAFKA-18659).
"""

from collections.abc import Mapping
from typing import Final

from ottla.broker.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    altering,
    api_versions,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
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
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from ottla.broker.api.context import Api
from ottla.protocol.api_keys import ApiKey

_APIS: Final = (
    Api(ApiKey.PRODUCE, 3, 13, produce.handle, produce.NEEDS),
    Api(ApiKey.FETCH, 4, 12, fetch.handle, fetch.NEEDS),
    Api(ApiKey.LIST_OFFSETS, 1, 11, list_offsets.handle, list_offsets.NEEDS),
    Api(ApiKey.METADATA, 0, 12, metadata.handle, metadata.NEEDS),
    Api(ApiKey.OFFSET_COMMIT, 2, 9, offset_commit.handle, offset_commit.NEEDS),
    Api(ApiKey.OFFSET_FETCH, 1, 8, offset_fetch.handle, offset_fetch.NEEDS),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, find_coordinator.handle, find_coordinator.NEEDS),
    Api(ApiKey.JOIN_GROUP, 0, 9, join_group.handle, join_group.NEEDS),
    Api(ApiKey.HEARTBEAT, 0, 4, heartbeat.handle, heartbeat.NEEDS),
    Api(ApiKey.LEAVE_GROUP, 0, 5, leave_group.handle, leave_group.NEEDS),
    Api(ApiKey.SYNC_GROUP, 0, 5, sync_group.handle, sync_group.NEEDS),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 5, describe_groups.handle, describe_groups.NEEDS),
    Api(ApiKey.LIST_GROUPS, 0, 4, list_groups.handle, list_groups.NEEDS),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, sasl_handshake.handle, ()),
    Api(ApiKey.API_VERSIONS, 0, 4, api_versions.handle, ()),
    Api(ApiKey.CREATE_TOPICS, 2, 7, create_topics.handle, create_topics.NEEDS),
    Api(ApiKey.DELETE_TOPICS, 1, 6, delete_topics.handle, delete_topics.NEEDS),
    Api(ApiKey.DELETE_RECORDS, 0, 2, delete_records.handle, delete_records.NEEDS),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, init_producer_id.handle, init_producer_id.NEEDS),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, offset_for_leader_epoch.handle, offset_for_leader_epoch.NEEDS),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, add_partitions_to_txn.handle, add_partitions_to_txn.NEEDS),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, add_offsets_to_txn.handle, add_offsets_to_txn.NEEDS),
    Api(ApiKey.END_TXN, 0, 5, end_txn.handle, end_txn.NEEDS),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, write_txn_markers.handle, write_txn_markers.NEEDS),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, txn_offset_commit.handle, txn_offset_commit.NEEDS),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, describe_acls.handle, describe_acls.NEEDS),
    Api(ApiKey.CREATE_ACLS, 1, 3, create_acls.handle, create_acls.NEEDS),
    Api(ApiKey.DELETE_ACLS, 1, 3, delete_acls.handle, delete_acls.NEEDS),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, describe_configs.handle, describe_configs.NEEDS),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, alter_configs.handle, altering.NEEDS),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, describe_log_dirs.handle, describe_log_dirs.NEEDS),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, create_partitions.handle, create_partitions.NEEDS),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, sasl_authenticate.handle, ()),
    Api(ApiKey.DELETE_GROUPS, 0, 2, delete_groups.handle, delete_groups.NEEDS),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, incremental_alter_configs.handle, altering.NEEDS),
    Api(ApiKey.OFFSET_DELETE, 0, 0, offset_delete.handle, offset_delete.NEEDS),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, describe_client_quotas.handle, describe_client_quotas.NEEDS),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, alter_client_quotas.handle, alter_client_quotas.NEEDS),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        describe_user_scram_credentials.handle,
        describe_user_scram_credentials.NEEDS,
    ),
    Api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        alter_user_scram_credentials.handle,
        alter_user_scram_credentials.NEEDS,
    ),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, update_features.handle, update_features.NEEDS),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, describe_cluster.handle, describe_cluster.NEEDS),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, describe_producers.handle, describe_producers.NEEDS),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, describe_transactions.handle, describe_transactions.NEEDS),
    Api(ApiKey.LIST_TRANSACTIONS, 0, list_transactions.LAST_VERSION, list_transactions.handle, list_transactions.NEEDS),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, consumer_group_heartbeat.handle, ()),
)
_ADVERTISED_FROM: Final = {ApiKey.PRODUCE: 0}

TABLE: Final = {api.key.value: api for api in _APIS}
"""APIs by plain numbers, as in the header of each request."""


def list_versions(table: Mapping[int, Api] = TABLE) -> list[tuple[int, int, int]]:
    """Return (API key, lowest, highest version) of every API, as ApiVersions lists them."""
    return [(api.key, _ADVERTISED_FROM.get(api.key, api.min_version), api.max_version) for api in table.values()]
