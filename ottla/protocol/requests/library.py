"""The modules of kafka-python that have the messages of each API, imported without the rest of the library. free

The clients take longer to import than all messages, and the messages of one module a tenth of all.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

from ottla.deferred import defer_package

_PACKAGES: Final = ("kafka", *(f"kafka.protocol.{name}" for name in ("admin", "consumer", "metadata", "producer")))
SHARED: Final = ("kafka.errors", "kafka.protocol.schemas", "kafka.protocol.api_message")
"""Modules that the messages of all APIs need."""
_MODULES: Final = {
    "consumer.fetch": "Fetch",
    "consumer.group": "OffsetCommit OffsetFetch OffsetDelete JoinGroup SyncGroup Heartbeat LeaveGroup",
    "consumer.offsets": "ListOffsets OffsetForLeaderEpoch",
    "metadata.find_coordinator": "FindCoordinator",
    "metadata.metadata": "Metadata",
    "producer.produce": "Produce",
    "producer.transaction": "InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers",
    "sasl": "SaslHandshake SaslAuthenticate",
    "admin.acl": "DescribeAcls CreateAcls DeleteAcls",
    "admin.client_quotas": "DescribeClientQuotas AlterClientQuotas",
    "admin.cluster": "AlterReplicaLogDirs DescribeLogDirs DescribeQuorum UpdateFeatures DescribeCluster",
    "admin.configs": "DescribeConfigs AlterConfigs IncrementalAlterConfigs ListConfigResources",
    "admin.groups": "DescribeGroups ListGroups",
    "admin.topics": "CreateTopics DeleteTopics DeleteRecords CreatePartitions ElectLeaders AlterPartitionReassignments "
    "ListPartitionReassignments DescribeTopicPartitions",
    "admin.transactions": "DescribeProducers DescribeTransactions ListTransactions",
    "admin.users": "DescribeUserScramCredentials AlterUserScramCredentials",
}
_OURS: Final = {
    "ottla.protocol.messages": "ApiVersions DeleteGroups TxnOffsetCommit",
    "ottla.protocol.messages.consumer_groups": "ConsumerGroupHeartbeat ConsumerGroupDescribe",
}
_MODULE_OF: Final = {
    title: module
    for module, titles in (_OURS | {f"kafka.protocol.{name}": titles for name, titles in _MODULES.items()}).items()
    for title in titles.split()
}


def import_module_of_library(name: str) -> ModuleType:
    """Import a module of kafka-python, or Ottla's own messages, without the rest of the library."""
    for package in _PACKAGES:
        defer_package(package)
    return import_module(name)


def import_messages(title: str) -> ModuleType:
    """Import the module with the messages of an API, by the API's title."""
    return import_module_of_library(_MODULE_OF[title])
