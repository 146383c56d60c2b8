"""The served APIs: versions and rights of each. Its handler is in the module of the same name. frozen

A module of a handler has `async def handle(broker, request)`. It also has `report_rows` if the errors of its rows are
reported, not only counted. It is imported when it is first used: after the start (`late_modules.py`), or earlier with
the first request.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.broker.api.authorization import (
    ACT_AS_BROKER,
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_CONFIGS,
    ALTER_OR_ACT,
    ALTER_TOPIC,
    CLUSTER_ACTION,
    CREATE_ANY_TOPIC,
    CREATE_TOPIC,
    DELETE_ANY_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_ID,
    DESCRIBE_TOPIC,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    SEE_CLUSTER,
    SEE_GROUP,
    SEE_ID,
    SEE_TOPIC,
    SEE_TOPIC_CONFIGS,
    TWO_PHASE_COMMIT_ID,
    WRITE_ANY_TOPIC,
    WRITE_ID,
    WRITE_TOPIC,
)
from ottla.broker.api.context import Api
from ottla.broker.api.operations import TOPIC_NEEDS
from ottla.broker.config import Config
from ottla.broker.pattern import AVAILABLE
from ottla.protocol.api_keys import ApiKey

_ALTER_CONFIGS: Final = tuple(dict.fromkeys(ALTER_CONFIGS.values()))
_LIST_TRANSACTIONS_LAST: Final = 2 if AVAILABLE else 1
"""Version 2 has patterns."""

_APIS: Final = (
    Api(ApiKey.PRODUCE, 3, 13, (WRITE_ID, WRITE_TOPIC), advertised_from=0),
    Api(ApiKey.FETCH, 4, 18, (READ_TOPIC, CLUSTER_ACTION)),
    Api(ApiKey.LIST_OFFSETS, 1, 11, (DESCRIBE_TOPIC,)),
    Api(
        ApiKey.METADATA,
        0,
        13,
        (DESCRIBE_TOPIC, SEE_TOPIC, CREATE_ANY_TOPIC, CREATE_TOPIC, DESCRIBE_CLUSTER, *TOPIC_NEEDS),
    ),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, (READ_GROUP, READ_TOPIC)),
    Api(ApiKey.OFFSET_FETCH, 1, 10, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, (DESCRIBE_GROUP, DESCRIBE_ID, CLUSTER_ACTION)),
    Api(ApiKey.JOIN_GROUP, 0, 9, (READ_GROUP,)),
    Api(ApiKey.HEARTBEAT, 0, 4, (READ_GROUP,)),
    Api(ApiKey.LEAVE_GROUP, 0, 5, (READ_GROUP,)),
    Api(ApiKey.SYNC_GROUP, 0, 5, (READ_GROUP,)),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, (DESCRIBE_GROUP,)),
    Api(ApiKey.LIST_GROUPS, 0, 5, (SEE_CLUSTER, SEE_GROUP)),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1),
    Api(ApiKey.API_VERSIONS, 0, 5),
    Api(ApiKey.CREATE_TOPICS, 2, 7, (CREATE_ANY_TOPIC, CREATE_TOPIC, SEE_TOPIC_CONFIGS)),
    Api(ApiKey.DELETE_TOPICS, 1, 6, (DELETE_ANY_TOPIC, DESCRIBE_TOPIC, DELETE_TOPIC)),
    Api(ApiKey.DELETE_RECORDS, 0, 2, (DELETE_TOPIC,)),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        0,
        5,
        (WRITE_ID, TWO_PHASE_COMMIT_ID, IDEMPOTENT_WRITE, WRITE_ANY_TOPIC),
        unstable_version=6,
    ),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, (ACT_AS_BROKER, DESCRIBE_TOPIC)),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, (WRITE_ID, WRITE_TOPIC, CLUSTER_ACTION)),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, (WRITE_ID, READ_GROUP)),
    Api(ApiKey.END_TXN, 0, 5, (WRITE_ID,)),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, (ALTER_OR_ACT, CLUSTER_ACTION)),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 6, (WRITE_ID, READ_GROUP, READ_TOPIC)),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, (DESCRIBE_CLUSTER,)),
    Api(ApiKey.CREATE_ACLS, 1, 3, (ALTER_CLUSTER,)),
    Api(ApiKey.DELETE_ACLS, 1, 3, (ALTER_CLUSTER,)),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, tuple(dict.fromkeys(DESCRIBE_CONFIGS.values()))),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, _ALTER_CONFIGS),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, (ALTER_CLUSTER,)),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, (DESCRIBE_CLUSTER,)),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, (ALTER_TOPIC,)),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2),
    Api(ApiKey.DELETE_GROUPS, 0, 3, (DELETE_GROUP,)),
    Api(ApiKey.ELECT_LEADERS, 0, 2, (ALTER_CLUSTER,)),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, _ALTER_CONFIGS),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, (ALTER_CLUSTER,)),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, (DESCRIBE_CLUSTER,)),
    Api(ApiKey.OFFSET_DELETE, 0, 0, (DELETE_GROUP, READ_TOPIC)),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, (DESCRIBE_CLUSTER_CONFIGS,)),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, (ALTER_CLUSTER_CONFIGS,)),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, (DESCRIBE_CLUSTER,)),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, (ALTER_CLUSTER,)),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, (DESCRIBE_CLUSTER,)),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, (ALTER_CLUSTER,)),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, (DESCRIBE_CLUSTER,)),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, (READ_TOPIC,)),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, (DESCRIBE_ID, SEE_TOPIC)),
    Api(ApiKey.LIST_TRANSACTIONS, 0, _LIST_TRANSACTIONS_LAST, (SEE_ID,)),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, (READ_GROUP, DESCRIBE_TOPIC)),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, (DESCRIBE_GROUP, DESCRIBE_TOPIC)),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, (DESCRIBE_CLUSTER_CONFIGS,)),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, (DESCRIBE_TOPIC, SEE_TOPIC, *TOPIC_NEEDS)),
)

TABLE: Final = {api.key.value: api for api in _APIS}
"""APIs by plain numbers, as in the header of each request."""


def served_table(config: Config) -> Mapping[int, Api]:
    """Return the APIs that a broker serves, with unstable versions if its configuration enables them."""
    if not config.unstable_api_versions_enable:
        return TABLE
    return {
        key: api if api.unstable_version is None else replace(api, max_version=api.unstable_version)
        for key, api in TABLE.items()
    }


def list_versions(table: Mapping[int, Api] = TABLE) -> list[tuple[int, int, int]]:
    """Return (API key, lowest, highest version) of every API, as ApiVersions lists them."""
    return [
        (api.key, api.min_version if api.advertised_from is None else api.advertised_from, api.max_version)
        for api in table.values()
    ]
