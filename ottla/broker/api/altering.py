"""What AlterConfigs and IncrementalAlterConfigs share: checks of the request, and the change itself. free

Topics, this broker, the brokers of the cluster ("") and groups have configs that change while the broker runs. Source:
`ConfigAdminManager.preprocess`, `ConfigurationControlManager`, `ControllerConfigurationValidator` of Kafka 4.3.1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.cluster.names import topic_name_problem
from ottla.broker.config.altered import BROKER_FAMILY, GROUP_FAMILY, TOPIC_FAMILY, Altered, Family
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.metadata_records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, ConfigRecord

RESOURCES_PER_TURN = 20
_FAMILIES = {TOPIC_RESOURCE: TOPIC_FAMILY, BROKER_RESOURCE: BROKER_FAMILY, GROUP_RESOURCE: GROUP_FAMILY}
_OTHER_RESOURCES = {8: "Broker loggers", 16: "Client metrics"}
"""Resource types of Kafka whose configs are not served (`ConfigResource.Type`)."""


class Resource(NamedTuple):
    """One resource of the request: its configs' names, those that need a value and have none, what else is wrong, and
    what becomes of the configs that it has."""

    kind: int
    name: str
    config_names: Sequence[str]
    without_value: Sequence[str]
    problem: str
    decide: Callable[[Family, Mapping[str, str]], Altered]


class Outcome(NamedTuple):
    """What is answered for one resource."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def answer(broker: Broker, request: Request, resources: Sequence[Resource]) -> Reply:
    """Change the resources, or only check the changes when `validate_only`; a row each, in order."""
    outcomes = await _alter(broker, resources, request.body.validate_only)
    response, version = codec.response_class(request.api_key), request.api_version
    rows = [
        response.AlterConfigsResourceResponse(
            version=version,
            error_code=outcome.error,
            error_message=outcome.message,
            resource_type=resource.kind,
            resource_name=resource.name,
        )
        for resource, outcome in zip(resources, outcomes, strict=True)
    ]
    return response(version=version, throttle_time_ms=0, responses=rows)


async def _alter(broker: Broker, resources: Sequence[Resource], validate_only: bool) -> list[Outcome]:
    """Change the configs of each resource, all of them or none of one resource; an outcome each, in order."""
    times = Counter((resource.kind, resource.name) for resource in resources)
    outcomes: list[Outcome] = []
    for start in range(0, len(resources), RESOURCES_PER_TURN):
        if start:
            await broker.turns.pause()
        some = resources[start : start + RESOURCES_PER_TURN]
        refusals = [
            Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if times[resource.kind, resource.name] > 1
            else _refuse(broker, resource)
            for resource in some
        ]
        outcomes += _commit(broker, zip(some, refusals, strict=True), validate_only)
    return outcomes


def _refuse(broker: Broker, resource: Resource) -> Outcome | None:
    """Why the request for this resource is none, before any of its values is looked at."""
    if len(set(resource.config_names)) < len(resource.config_names):
        return Outcome(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if resource.without_value:
        return Outcome(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(resource.without_value)}")
    if resource.problem:
        return Outcome(ErrorCode.INVALID_REQUEST, resource.problem)
    if resource.kind == TOPIC_RESOURCE:
        return None if resource.name else Outcome(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if resource.kind == BROKER_RESOURCE:
        return _refuse_broker(broker.cluster.node_id, resource.name)
    if resource.kind == GROUP_RESOURCE:
        return None if resource.name else Outcome(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if resource.kind in _OTHER_RESOURCES:
        return Outcome(ErrorCode.INVALID_REQUEST, f"{_OTHER_RESOURCES[resource.kind]} have no configs here")
    return Outcome(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.kind}")


def _refuse_broker(node_id: int, name: str) -> Outcome | None:
    if name and not name.removeprefix("-").isdecimal():
        return Outcome(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name and int(name) != node_id:
        return Outcome(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    return None


def _commit(broker: Broker, asked: Iterable[tuple[Resource, Outcome | None]], validate_only: bool) -> Iterable[Outcome]:
    """Decide, log, apply, in one step, so that nobody deletes a topic in between."""
    outcomes: list[Outcome] = []
    records: list[ConfigRecord] = []
    for resource, outcome in asked:
        if outcome is None:
            outcome, altered = _decide(broker, resource)
            records += [ConfigRecord(resource.kind, resource.name, key, value) for key, value in altered.items()]
        outcomes.append(outcome)
    if records and not validate_only:
        try:
            broker.cluster.alter_configs(records)
        except OSError as failure:
            failed = Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            return [outcome if outcome.error else failed for outcome in outcomes]
    return outcomes


def _decide(broker: Broker, resource: Resource) -> tuple[Outcome, dict[str, str | None]]:
    own = broker.cluster.image.configs_of(resource.kind, resource.name)
    values, problem, error = resource.decide(_FAMILIES[resource.kind], own or {})
    name_problem = topic_name_problem(resource.name) if resource.kind == TOPIC_RESOURCE else None
    if name_problem is not None:
        return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, name_problem), {}
    if problem:
        return Outcome(error, problem), {}
    if own is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist."), {}
    return Outcome(), values
