"""An older Kafka imitated: its versions of each API, and no feature that it did not have. free

What clients choose by the versions of a broker (transactions V2, the way of verification, topic ids) they choose as on
that release. The rules of the broker stay those of the newest; versions that Kafka 4 has given up are not spoken.
"""

from collections.abc import Mapping

from ottla.broker.api import api_versions
from ottla.broker.api.context import Api, Broker, Reply, Request
from ottla.broker.api.table import TABLE, advertised
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.releases import has_transaction_version, latest_versions


def table_of(release: str) -> Mapping[int, Api]:
    """The APIs as that release has them; ValueError for one that is not known."""
    latest = latest_versions(release)
    table = {
        key: api._replace(max_version=min(api.max_version, latest[key]))
        for key, api in TABLE.items()
        if key in latest and latest[key] >= api.min_version
    }
    served, named = advertised(table), has_transaction_version(release)

    async def handle(broker: Broker, request: Request) -> Reply:
        return api_versions.answer(broker, request, served, broker.cluster.image.features if named else {})

    key = ApiKey.API_VERSIONS.value
    return table | {key: table[key]._replace(handle=handle)}
