"""Messages and versions that kafka-python lacks, from Kafka's schemas. Its own have the same metaclass. pure"""

import sys
from collections.abc import Callable
from typing import Any, Final

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage

_NULLABLE: Final = {"type": "string", "nullableVersions": "3+", "default": "null"}


def _keep(fields: list[dict[str, Any]]) -> None:
    """Change nothing."""


def _raise(versions: str, change: Callable[[list[dict[str, Any]]], None] = _keep) -> Any:
    """Return the patch that raises a schema of kafka-python to the versions of Kafka 4.4.0."""

    def patch(cls: object, schema: dict[str, Any]) -> dict[str, Any]:
        change(schema["fields"])
        return schema | {"validVersions": versions}

    return classmethod(patch)


def _add_cluster(fields: list[dict[str, Any]]) -> None:
    fields.append(_NULLABLE | {"name": "ClusterId", "versions": "5+"})
    fields.append({"name": "NodeId", "type": "int32", "versions": "5+", "default": -1})


def _add_message(fields: list[dict[str, Any]]) -> None:
    fields[-1]["fields"].append(_NULLABLE | {"name": "ErrorMessage", "versions": "3+"})


def _add_topic_ids(fields: list[dict[str, Any]]) -> None:
    rows = fields[-1]["fields"]
    rows[0]["versions"] = "0-5"
    rows.insert(1, {"name": "TopicId", "type": "uuid", "versions": "6+"})


class ApiVersionsRequest(ApiMessage):
    """KIP-1242."""

    json_patch = _raise("0-5", _add_cluster)


class ApiVersionsResponse(ApiMessage):
    """KIP-1242."""

    json_patch = _raise("0-5")


class DeleteGroupsRequest(ApiMessage):
    """KIP-1331."""

    json_patch = _raise("0-3")


class DeleteGroupsResponse(ApiMessage):
    """KIP-1331."""

    json_patch = _raise("0-3", _add_message)


class TxnOffsetCommitRequest(ApiMessage):
    """KIP-1319. Kafka 4.4.0 calls the generation `GenerationIdOrMemberEpoch`."""

    json_patch = _raise("0-6", _add_topic_ids)


class TxnOffsetCommitResponse(ApiMessage):
    """KIP-1319."""

    json_patch = _raise("0-6", _add_topic_ids)


# A class of a response registers itself, but the library's clients need the library's: register that again if it is
# loaded. Otherwise it replaces ours when it is loaded.
for _module, _name in (
    ("metadata.api_versions", "ApiVersionsResponse"),
    ("admin.groups", "DeleteGroupsResponse"),
    ("producer.transaction", "TxnOffsetCommitResponse"),
):
    if _library := sys.modules.get(f"kafka.protocol.{_module}"):
        ResponseClassRegistry.register_response_class(getattr(_library, _name))
