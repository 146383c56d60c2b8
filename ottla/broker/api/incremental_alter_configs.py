"""IncrementalAlterConfigs 0-1: set, delete, append and subtract single configs of topics, brokers and groups. free

Version notes: 1 is flexible.
"""

from typing import Any

from ottla.broker.api.altering import Resource, answer
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.config.altered import Change, Operation, alter

_OPERATIONS = frozenset(Operation)


async def handle(broker: Broker, request: Request) -> Reply:
    """Change each resource, or only check the changes when `validate_only`."""
    return await answer(broker, request, [_resource(asked) for asked in request.body.resources])


def _resource(asked: Any) -> Resource:
    configs = asked.configs
    unknown = [config.config_operation for config in configs if config.config_operation not in _OPERATIONS]
    return Resource(
        asked.resource_type,
        asked.resource_name,
        [config.name for config in configs],
        [config.name for config in configs if config.value is None and config.config_operation != Operation.DELETE],
        f"Unknown operations type {unknown[0]}" if unknown else "",
        lambda family, own: alter(
            family, own, [Change(config.name, Operation(config.config_operation), config.value) for config in configs]
        ),
    )
