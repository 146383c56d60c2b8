"""Offsets of aiokafka: sent with their membership (KIP-447), fetched with the errors of the group. shell

aiokafka 0.13 and 0.14 send TxnOffsetCommit in version 0, with the group id alone. The broker accepts these offsets from
any client, also from a consumer whose partitions have another owner already. Version 3 has the member and the
generation, which the broker checks.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final

from aiokafka import errors
from aiokafka.client import CoordinationType
from aiokafka.producer.sender import TxnOffsetCommitHandler
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.struct import Schema
from aiokafka.protocol.transaction import TxnOffsetCommitRequest_v0
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, TaggedFields

from ottla.protocol.errors import ErrorCode

_API_KEY: Final = 28


class FencedInstanceIdError(errors.BrokerResponseError):
    """Another consumer has the group.instance.id. aiokafka has no class for it."""

    errno = ErrorCode.FENCED_INSTANCE_ID.value
    message = "FENCED_INSTANCE_ID"


# The consumer lost its membership, the producer stays usable: as in TxnOffsetCommitHandler of TransactionManager.
_OUTDATED: Final = {
    ErrorCode.ILLEGAL_GENERATION.value: errors.IllegalGenerationError,
    ErrorCode.UNKNOWN_MEMBER_ID.value: errors.UnknownMemberIdError,
    ErrorCode.REBALANCE_IN_PROGRESS.value: errors.RebalanceInProgressError,
    ErrorCode.FENCED_INSTANCE_ID.value: FencedInstanceIdError,
}


class Membership(str):
    """A group id with the member and the generation of the offsets."""

    __slots__ = ("generation_id", "instance_id", "member_id")

    generation_id: int
    member_id: str
    instance_id: str | None

    @classmethod
    def of(cls, group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> "Membership":
        membership = cls(group_id)
        membership.generation_id, membership.member_id = generation_id, member_id
        membership.instance_id = instance_id
        return membership


class TxnOffsetCommitResponse_v3(Response):
    API_KEY = _API_KEY
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(("partition_index", Int32), ("error_code", Int16), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class TxnOffsetCommitRequest_v3(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = _API_KEY
    API_VERSION = 3
    RESPONSE_TYPE = TxnOffsetCommitResponse_v3
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("group_id", CompactString("utf-8")),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", CompactString("utf-8")),
        ("group_instance_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("committed_offset", Int64),
                        ("committed_leader_epoch", Int32),
                        ("committed_metadata", CompactString("utf-8")),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Request(Request[TxnOffsetCommitRequest_v0 | TxnOffsetCommitRequest_v3]):
    """TxnOffsetCommit in version 3, or in version 0 for brokers before Kafka 2.5, which do not check the member."""

    API_KEY = _API_KEY

    def __init__(self, manager: Any, membership: Membership, offsets: dict[Any, Any]) -> None:
        self._manager, self._membership = manager, membership
        self._rows: defaultdict[str, list[Any]] = defaultdict(list)
        for tp, offset in sorted(offsets.items()):
            self._rows[tp.topic].append((tp.partition, offset.offset, offset.metadata))

    def build(self, request_struct_class: Any) -> Any:
        manager, membership = self._manager, self._membership
        head = manager.transactional_id, str(membership), manager.producer_id, manager.producer_epoch
        if request_struct_class is TxnOffsetCommitRequest_v0:
            return request_struct_class(*head, list(self._rows.items()))
        topics: list[Any] = [
            (topic, [(number, offset, -1, metadata, {}) for number, offset, metadata in rows], {})
            for topic, rows in self._rows.items()
        ]
        member = membership.generation_id, membership.member_id, membership.instance_id
        return request_struct_class(*head, *member, topics, {})


class _Handler(TxnOffsetCommitHandler):
    def create_request(self) -> _Request:
        return _Request(self._sender._txn_manager, self._group_id, self._offsets)

    def handle_response(self, response: Any) -> Any:
        if response.API_VERSION == 3:
            rows = [(topic, [row[:2] for row in partitions]) for topic, partitions, _ in response.topics]
            response = SimpleNamespace(errors=rows)
        for code in (code for _, partitions in response.errors for _, code in partitions):
            if code in _OUTDATED:
                self._sender._txn_manager.error_transaction(_OUTDATED[code]())
                return None
        return super().handle_response(response)


def sends_offsets(sender: Any) -> Callable[[dict[Any, Any], Membership], Awaitable[None]]:
    """Return the replacement of a sender's `_do_txn_offset_commit`."""

    async def send(offsets: dict[Any, Any], membership: Membership) -> None:
        try:
            node_id = await sender._find_coordinator(CoordinationType.GROUP, membership)
        except errors.GroupAuthorizationFailedError as refusal:
            sender._txn_manager.error_transaction(refusal)
            return
        await _Handler(sender, offsets, membership).do(node_id)

    return send


def report_group_errors(coordinator: Any) -> None:
    """Make a consumer's coordinator raise an error of the whole group in the answer about committed offsets.

    aiokafka checks only the errors of partitions, and an answer with a group error has no partitions. Without this
    change no offset seems to be committed, and the consumer restarts at the position of `auto_offset_reset`. The change
    is permanent, because the consumer fetches committed offsets at each rebalance too.
    """
    if not hasattr(coordinator, "_send_req") or "_send_req" in vars(coordinator):
        return
    send = coordinator._send_req

    async def send_req(request: Any) -> Any:
        response = await send(request)
        if isinstance(request, OffsetFetchRequest) and (code := getattr(response, "error_code", 0)):
            rows = [(topic, [(number, -1, "", code) for number in numbers]) for topic, numbers in request._partitions]
            return SimpleNamespace(topics=rows)
        return response

    coordinator._send_req = send_req
