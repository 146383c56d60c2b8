"""ApiVersions 0-4: what is served, and the finalized features. free

Version notes: 3 is flexible, names the client software and carries features; 4 lists supported features whose minimum
is 0. A version above the range is answered by `dispatch.py` with body v0 and UNSUPPORTED_VERSION (KIP-511). Produce
is listed from 0 although 0-2 are refused, because librdkafka gates features on it (KAFKA-18659).
"""

import re

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.cluster.features import SUPPORTED_FEATURES
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

API_VERSIONS = 18
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


async def handle(broker: Broker, request: Request) -> Reply:
    """List the served APIs; INVALID_REQUEST for a malformed software name or version."""
    version = request.api_version
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.body.client_software_name)
        and _SOFTWARE.fullmatch(request.body.client_software_version)
    ):
        return codec.response_class(API_VERSIONS)(version=version, error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return _answer(broker, version)


def _answer(broker: Broker, version: int) -> Reply:
    response = codec.response_class(API_VERSIONS)
    fields = {}
    if version >= 3:
        fields = {
            "supported_features": [
                response.SupportedFeatureKey(version=version, name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
                if low > 0 or version >= 4
            ],
            "finalized_features_epoch": broker.cluster.metadata_offset,
            "finalized_features": [
                response.FinalizedFeatureKey(
                    version=version, name=name, max_version_level=level, min_version_level=level
                )
                for name, level in broker.cluster.image.features.items()
            ],
        }
    return response(
        version=version,
        error_code=ErrorCode.NONE,
        api_keys=[_row(api, version) for api in _served()],
        throttle_time_ms=0,
        **fields,
    )


def _row(api: tuple[int, int, int], version: int) -> Reply:
    key, low, high = api
    return codec.response_class(API_VERSIONS).ApiVersion(
        version=version, api_key=key, min_version=low, max_version=high
    )


def _served() -> list[tuple[int, int, int]]:
    from ottla.broker.api.table import advertised  # the table imports every handler, this one too

    return advertised()
