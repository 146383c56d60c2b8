"""IncrementalAlterConfigs 0-1: set, delete, append and subtract single configs of topics, brokers and groups. free

Version notes: 1 is flexible.
"""

from typing import Any, Final

from ottla.broker.api.altering import Resource, answer
from ottla.broker.api.context import Broker
from ottla.broker.api.request import Reply, Request
from ottla.broker.config.altered import Change, Operation, alter
from ottla.broker.costs import READ_CONFIG_US
from ottla.broker.turns import Turns

_OPERATIONS: Final = {operation.value: operation for operation in Operation}


async def handle(broker: Broker, request: Request) -> Reply:
    """Change each resource, or only check the changes when `validate_only`."""
    return await answer(broker, request, _resource)


async def _resource(turns: Turns, resource: Any) -> Resource:
    changes: list[Change] = []
    without_value: list[str] = []
    problem = ""
    for config in resource.configs:
        operation = _OPERATIONS.get(config.config_operation)
        if operation is None:
            problem = problem or f"Unknown operations type {config.config_operation}"
            operation = Operation.SET
        if config.value is None and operation is not Operation.DELETE:
            without_value.append(config.name)
        changes.append(Change(config.name, operation, config.value))
        await turns.spend(READ_CONFIG_US)
    return Resource(
        resource.resource_type,
        resource.resource_name,
        [change.name for change in changes],
        without_value,
        problem,
        lambda family, own: alter(family, own, changes),
    )
