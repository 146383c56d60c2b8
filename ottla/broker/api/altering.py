"""Common parts of AlterConfigs and IncrementalAlterConfigs: checks of the request, and the change. free

Topics, this broker, the brokers of the cluster ("") and groups have configs that change while the broker runs. Source:
`ConfigAdminManager.preprocess`, `ConfigurationControlManager`, `ControllerConfigurationValidator` of Kafka 4.3.1.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.broker.api.authorization import ALTER_CONFIGS, refuse_configs
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import with_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.config.altered import TOPIC_FAMILY, Altered, Family, broker_family, group_family
from ottla.broker.config.dynamic import CLUSTER_RESOURCE, cluster_problem, has_effect, in_force
from ottla.broker.config.listener_options import of_listener
from ottla.broker.costs import CHANGE_US, DECIDE_CONFIG_US, READ_KEYSTORES_US
from ottla.broker.turns import Handler, Turns
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
)
from ottla.protocol.topic_names import detect_invalid_topic

_OTHER_RESOURCES: Final = {BROKER_LOGGER_RESOURCE: "Broker loggers", CLIENT_METRICS_RESOURCE: "Client metrics"}
"""Resource types of Kafka whose configs are not served (`ConfigResource.Type`)."""


class Resource(NamedTuple):
    """A resource of the request: its config names, those without a required value, any other problem, and a function
    that decides the change of its configs."""

    kind: int
    name: str
    config_names: Sequence[str]
    without_value: Sequence[str]
    problem: str
    decide: Callable[[Family, Mapping[str, str]], Altered]


Read = Callable[[Turns, Any], Handler[Resource]]
"""Reads a row of the request, in turns, because it may have 16,384 configs."""


async def answer(broker: Broker, request: Request, read: Read) -> Reply:
    """Change the resources, or only check the changes when `validate_only`; a row each, in order."""
    rows, validate_only = request.body.resources, request.body.validate_only
    _, twice = await index_rows(broker.turns, rows, _named_by)
    outcomes: list[ApiError] = []
    try:
        await broker.cluster.controller.in_parts(
            rows, _lock_name, lambda part: _alter(broker, request, part, read, twice, validate_only, outcomes)
        )
    except OSError as failure:
        failed = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        outcomes += [ApiError()] * (len(rows) - len(outcomes))
        outcomes = [outcome if outcome.error else failed for outcome in outcomes]
    answers = ((*outcome, *_named_by(row)) for row, outcome in zip(rows, outcomes, strict=True))
    return await with_rows(broker, request, "responses", answers)


def _named_by(row: Any) -> tuple[int, str]:
    return row.resource_type, row.resource_name


def _lock_name(row: Any) -> str:
    kind, name = _named_by(row)
    return name if kind == TOPIC_RESOURCE else f"configs/{kind}/{name}"


async def _alter(
    broker: Broker,
    request: Request,
    rows: Sequence[Any],
    read: Read,
    twice: Container[tuple[int, str]],
    validate_only: bool,
    outcomes: list[ApiError],
) -> None:
    """Log the configs of each resource, all or none of a resource. `outcomes` get one entry each, in order."""
    for row in rows:
        if _named_by(row) in twice:
            outcome = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            outcome, records = _decide(broker, request, await read(broker.turns, row))
            broker.turns.charge(len(records) * DECIDE_CONFIG_US)
            if records and not validate_only:
                await broker.cluster.controller.alter_configs(records)
        outcomes.append(outcome)
        await broker.turns.spend(CHANGE_US)


def _check_resource(broker: Broker, resource: Resource) -> ApiError | None:
    """Return the reason why the request for this resource is invalid, before its values are checked, or None."""
    invalid = ErrorCode.INVALID_REQUEST
    if len(set(resource.config_names)) < len(resource.config_names):
        return ApiError(invalid, "Error due to duplicate config keys")
    if resource.without_value:
        return ApiError(invalid, f"Null value not supported for : {', '.join(resource.without_value)}")
    if resource.problem:
        return ApiError(invalid, resource.problem)
    if resource.kind == BROKER_RESOURCE:
        return _refuse_broker(broker, resource)
    if resource.kind not in ALTER_CONFIGS:
        return ApiError(invalid, f"Unknown resource type {resource.kind}")
    return None


def _refuse_kind(resource: Resource) -> ApiError | None:
    """Return the reason why no client can change configs of this resource, or None."""
    invalid = ErrorCode.INVALID_REQUEST
    if resource.kind == TOPIC_RESOURCE and not resource.name:
        return ApiError(invalid, "Default topic resources are not allowed.")
    if resource.kind == GROUP_RESOURCE and not resource.name:
        return ApiError(invalid, "Default group resources are not allowed.")
    if resource.kind in _OTHER_RESOURCES:
        return ApiError(invalid, f"{_OTHER_RESOURCES[resource.kind]} have no configs in Ottla")
    return None


def _refuse_broker(broker: Broker, resource: Resource) -> ApiError | None:
    name, node_id = resource.name, broker.cluster.node_id
    if name and not name.removeprefix("-").isdecimal():
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name and int(name) != node_id:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    if name and len(broker.brokers) > 1 and any(map(has_effect, resource.config_names)):
        return ApiError(ErrorCode.INVALID_REQUEST, "The brokers are one process: change the cluster's default instead")
    return None


def _decide(broker: Broker, request: Request, resource: Resource) -> tuple[ApiError, list[ConfigRecord]]:
    refused = (
        _check_resource(broker, resource)
        or refuse_configs(broker, request, ALTER_CONFIGS, resource.kind, resource.name)
        or _refuse_kind(resource)
    )
    if refused is not None:
        return refused, []
    own = broker.cluster.image.configs_of(resource.kind, resource.name)
    values, problem, error = resource.decide(_family(broker, resource.kind), own or {})
    name_problem = detect_invalid_topic(resource.name) if resource.kind == TOPIC_RESOURCE else None
    if name_problem is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, name_problem), []
    if problem:
        return ApiError(error, problem), []
    if (resource.kind, resource.name) == (BROKER_RESOURCE, CLUSTER_RESOURCE) and (problem := cluster_problem(values)):
        return ApiError(ErrorCode.INVALID_REQUEST, problem), []
    if resource.kind == BROKER_RESOURCE and any(of_listener(key) for key in values):
        problem = _tls_problem(broker, resource.name, {**(own or {}), **values})
        if problem:
            return ApiError(ErrorCode.INVALID_REQUEST, problem), []
    if own is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist."), []
    return ApiError(), [ConfigRecord(resource.kind, resource.name, key, value) for key, value in values.items()]


def _family(broker: Broker, kind: int) -> Family:
    if kind == TOPIC_RESOURCE:
        return TOPIC_FAMILY
    return broker_family(broker.config) if kind == BROKER_RESOURCE else group_family(broker.config)


def _tls_problem(broker: Broker, name: str, values: Mapping[str, str | None]) -> str:
    """Return the reason why the listeners cannot use these configs, or an empty string. With unusable configs
    clients could not connect any more."""
    broker.turns.charge(READ_KEYSTORES_US)
    node_id, image = broker.cluster.node_id, broker.cluster.image
    configs = {**image.broker_configs, name: {key: value for key, value in values.items() if value is not None}}
    return broker.tls_problem(in_force(broker.config.static or broker.config, node_id, configs))
