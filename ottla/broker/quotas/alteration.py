"""Decide a change of the quotas of one entity. pure

Source: `ClientQuotaControlManager`, `QuotaConfig` of Kafka 4.3.1; the error texts are Kafka's. Stricter than Kafka: NaN
is refused, and so is a host name instead of an address, which Kafka looks up in the DNS.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.broker.quotas.connection_rates import normal_address
from ottla.broker.quotas.limits import CLIENT_ID, IP, USER
from ottla.broker.quotas.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import ClientQuotaRecord, QuotaEntity

Entity = Mapping[str, str | None]
"""Names by type; None is the default."""

_ANY: Final = ("DOUBLE", float("inf"))
_LONG: Final = ("LONG", float(2**63 - 1))
_INT: Final = ("INT", float(2**31 - 1))
_OF_CLIENTS: Final = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: _ANY,
    CONTROLLER_MUTATION_RATE: _ANY,
}
_OF_ADDRESSES: Final = {CONNECTION_CREATION_RATE: _INT}
_LARGEST_REMAINDER: Final = 1e-6


def _quota_entity(entity: Entity) -> QuotaEntity:
    """Return the entity as records have it: pairs sorted by type."""
    return tuple(sorted(entity.items()))


def decide(
    entity: Entity, ops: Sequence[tuple[str, float | None]], current: Mapping[str, float]
) -> ApiError | list[ClientQuotaRecord]:
    """Return the records for the changes `ops`, which are (key, value or None to remove it), or an error.

    After an error no quota of the entity is changed.
    """
    seen: set[str] = set()
    for key, _ in ops:
        if key in seen:
            return _refusal(f"Duplicate quota key {key} not updating quota for this entity {_format_entity(entity)}")
        seen.add(key)
    problem = _entity_problem(entity)
    if problem:
        return _refusal(problem)
    kinds = _OF_ADDRESSES if IP in entity else _OF_CLIENTS
    where = _quota_entity(entity)
    records = []
    for key, value in ops:
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(where, key, 0.0, True))
            continue
        problem = _value_problem(kinds, key, value)
        if problem:
            return _refusal(problem)
        if current.get(key) != value:
            records.append(ClientQuotaRecord(where, key, value, False))
    return records


def named_twice(entity: Entity) -> ApiError:
    """Return the error for an entity that occurs twice in one request."""
    return _refusal(f"Ignoring duplicate entity {_format_entity(entity)}")


def _format_entity(entity: Entity) -> str:
    """Format an entity like Java's `ClientQuotaEntity.toString`."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    return f"ClientQuotaEntity(entries={{{entries}}})"


def _refusal(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _entity_problem(entity: Entity) -> str:
    if not entity:
        return "Invalid empty client quota entity"
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if IP not in entity:
        return ""
    if len(entity) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    address = entity[IP]
    if address is not None and not normal_address(address):
        return f"{address} is not a valid IP or resolvable host."
    return ""


def _value_problem(kinds: Mapping[str, tuple[str, float]], key: str, value: float) -> str:
    if key not in kinds:
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    kind, most = kinds[key]
    if kind == "DOUBLE":
        return ""
    if value > most:
        return f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}."
    if value % 1.0 > _LARGEST_REMAINDER:
        return f"{key} cannot be a fractional value."
    return ""
