"""AlterConfigs 0-2: give resources exactly these configs; others go back to what is inherited. free

Version notes: 2 is flexible. Deprecated by IncrementalAlterConfigs (KIP-339), and still what older clients send.
"""

from typing import Any

from ottla.broker.api.altering import Resource, answer
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.config.altered import replace


async def handle(broker: Broker, request: Request) -> Reply:
    """Change each resource, or only check the changes when `validate_only`."""
    return await answer(broker, request, [_resource(asked) for asked in request.body.resources])


def _resource(asked: Any) -> Resource:
    configs = asked.configs
    return Resource(
        asked.resource_type,
        asked.resource_name,
        [config.name for config in configs],
        [config.name for config in configs if config.value is None],
        "",
        lambda family, own: replace(family, own, {config.name: config.value for config in configs}),
    )
