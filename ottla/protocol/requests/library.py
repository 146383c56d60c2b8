"""The modules of kafka-python that have the messages of each API, imported without the rest of the library. free

The clients take longer to import than all messages, and the messages of one module a tenth of all.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

from ottla.deferred import defer_package

_PACKAGES: Final = ("kafka", *(f"kafka.protocol.{name}" for name in ("admin", "consumer", "metadata", "producer")))
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
_MODULE_OF: Final = {
    title: f"kafka.protocol.{module}" for module, titles in _MODULES.items() for title in titles.split()
}


def import_library() -> None:
    """Import what the messages of all APIs need."""
    for name in _PACKAGES:
        defer_package(name)
    import_module("kafka.protocol.api_message")


def import_messages(title: str) -> ModuleType:
    """Import the module with the messages of an API, by the API's title: the library's, or Ottla's own."""
    import_library()
    return import_module(_MODULE_OF[title])
