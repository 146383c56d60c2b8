"""AlterUserScramCredentials 0: set and delete the SCRAM credentials of users. free

The client sends the password salted and hashed. The stored values can verify a login, but not make one. A user that is
named twice, even for two mechanisms, is not altered: DUPLICATE_RESOURCE. The changes are durable before they are
answered. Source: `ScramControlManager.alterCredentials`.

Stricter than Apache Kafka 4.3.1: a user that could never log in is not created, because no client can send its name, or
because its salted password has not the size of the mechanism.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Final

from ottla.broker.api.authorization import ALTER_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import with_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.controller import SCRAM_CREDENTIALS
from ottla.broker.cluster.features import METADATA_FEATURE
from ottla.broker.costs import CREDENTIAL_US, ROW_US
from ottla.broker.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    credential,
    name_can_log_in,
)
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import (
    RemoveUserScramCredentialRecord,
    SecurityRecord,
    UserScramCredentialRecord,
)

_METADATA_VERSION: Final = 11
"""`MetadataVersion.isScramSupported`: 3.5-IV2."""
_CHANGED_AT_ONCE: Final = 1_000
_TWICE: Final = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
_UNKNOWN: Final = ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
_ABSENT: Final = ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
_REFUSAL: Final = ApiError(ALTER_CLUSTER.error, MESSAGES[ALTER_CLUSTER.error])
_TOO_OLD: Final = ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
_FINE: Final = ApiError()

_Row = tuple[bool, Any]
"""Whether the row deletes a credential, and the row of the request."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Alter each user's credentials; one row for each user, in the order of the request."""
    body = request.body
    rows = chain(((True, row) for row in body.deletions), ((False, row) for row in body.upsertions))
    first, twice = await index_rows(broker.turns, rows, lambda each: str(each[1].name))
    outcomes: dict[str, ApiError] = dict.fromkeys(first, _FINE)
    if not broker.may(request, ALTER_CLUSTER):
        outcomes = dict.fromkeys(first, _REFUSAL)
    elif broker.cluster.image.features.get(METADATA_FEATURE, 0) < _METADATA_VERSION:
        outcomes = dict.fromkeys(first, _TOO_OLD)
    else:
        await _alter(broker, [*first.values()], twice, outcomes)
    return await with_rows(broker, request, "results", ((name, *outcome) for name, outcome in outcomes.items()))


async def _alter(broker: Broker, rows: Sequence[_Row], twice: Collection[str], outcomes: dict[str, ApiError]) -> None:
    """Alter the credentials in parts, and set the outcome of each row when it is durable."""
    part: Sequence[_Row] = ()

    async def decide() -> Sequence[SecurityRecord]:
        records: list[SecurityRecord] = []
        for is_deletion, row in part:
            decided = _problem(row) or (_deletion(broker, row) if is_deletion else _upsertion(row))
            if isinstance(decided, ApiError):
                outcomes[row.name] = decided
            elif row.name in twice:
                outcomes[row.name] = _TWICE
            else:
                records.append(decided)
            await broker.turns.spend(ROW_US + CREDENTIAL_US)
        return records

    for start in range(0, len(rows), _CHANGED_AT_ONCE):
        part = rows[start : start + _CHANGED_AT_ONCE]
        try:
            await broker.cluster.controller.change_security((SCRAM_CREDENTIALS,), decide)
        except OSError as failed:
            for _, row in rows[start:]:
                if not outcomes[row.name].error:
                    outcomes[row.name] = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failed))
            return


def _problem(row: Any) -> ApiError | None:
    if not row.name:
        return _unacceptable("Username must not be empty")
    return None if row.mechanism in SCRAM_MECHANISMS else _UNKNOWN


def _deletion(broker: Broker, row: Any) -> RemoveUserScramCredentialRecord | ApiError:
    if (row.name, row.mechanism) not in broker.cluster.image.scram_credentials:
        return _ABSENT
    return RemoveUserScramCredentialRecord(row.name, row.mechanism)


def _upsertion(row: Any) -> UserScramCredentialRecord | ApiError:
    mechanism = ScramMechanism(row.mechanism)
    if row.iterations < MIN_ITERATIONS:
        return _unacceptable("Too few iterations")
    if row.iterations > MAX_ITERATIONS:
        return _unacceptable("Too many iterations")
    if not name_can_log_in(row.name):
        return _unacceptable("Username must be ASCII: no client could log in with another one")
    if len(row.salted_password) != mechanism.hash_bytes:
        return _unacceptable(f"A salted password of {mechanism.mechanism_name} has {mechanism.hash_bytes} bytes")
    return credential(row.name, mechanism, bytes(row.salt), bytes(row.salted_password), row.iterations)


def _unacceptable(why: str) -> ApiError:
    return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
