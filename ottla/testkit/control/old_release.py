"""Imitation of an older Kafka release: its API versions, without features that it did not have. free

Clients that choose by the broker's API versions (transactions V2, verification, topic ids) choose as with that release.
The broker still behaves as the newest release, and does not support versions that Kafka 4 removed.
"""

from collections.abc import Mapping
from dataclasses import replace

from ottla.broker.api import api_versions
from ottla.broker.api.context import Api, Broker
from ottla.broker.api.request import Reply, Request
from ottla.broker.api.table import TABLE, list_versions
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.releases import has_transaction_version, latest_versions


def table_of(release: str) -> Mapping[int, Api]:
    """Return the API table of that release. Raises ValueError for an unknown release."""
    latest = latest_versions(release)
    table = {
        key: replace(api, max_version=min(api.max_version, latest[key]))
        for key, api in TABLE.items()
        if key in latest and latest[key] >= api.min_version
    }
    served, named = list_versions(table), has_transaction_version(release)

    async def handle(broker: Broker, request: Request) -> Reply:
        return api_versions.answer(broker, request, served, broker.cluster.image.features if named else {})

    key = ApiKey.API_VERSIONS.value
    return table | {key: table[key].with_handler(handle)}
