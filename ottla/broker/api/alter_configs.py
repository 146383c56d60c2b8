"""AlterConfigs 0-2: replace the configs of resources; configs that are not given return to the inherited value. free

Version notes: 2 is flexible. IncrementalAlterConfigs replaces this API (KIP-339), but older clients still send it.
"""

from typing import Any

from ottla.broker.api.altering import Resource, answer
from ottla.broker.api.context import Broker
from ottla.broker.api.request import Reply, Request
from ottla.broker.config.altered import replace
from ottla.broker.costs import READ_CONFIG_US
from ottla.broker.turns import Turns


async def handle(broker: Broker, request: Request) -> Reply:
    """Change each resource, or only check the changes when `validate_only`."""
    return await answer(broker, request, _resource)


async def _resource(turns: Turns, resource: Any) -> Resource:
    names: list[str] = []
    without_value: list[str] = []
    given: dict[str, str] = {}
    for config in resource.configs:
        names.append(config.name)
        if config.value is None:
            without_value.append(config.name)
        else:
            given[config.name] = config.value
        await turns.spend(READ_CONFIG_US)
    return Resource(
        resource.resource_type,
        resource.resource_name,
        names,
        without_value,
        "",
        lambda family, own: replace(family, own, given),
    )
