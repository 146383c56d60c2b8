"""The partition mutation quota of CreateTopics, CreatePartitions and DeleteTopics. pure

Source: `ControllerMutationQuotaManager.newQuotaFor` of Kafka 4.3.1, KIP-599.
"""

from typing import Final

from ottla.broker.api.context import Request
from ottla.broker.quotas.managers import ControllerMutationQuota
from ottla.protocol.errors import ApiError, ErrorCode

QUOTA_EXCEEDED: Final = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def mutation_quota(request: Request, first_strict_version: int) -> ControllerMutationQuota | None:
    """Return the quota of the request, or None without a limit. Older versions know no error for it and are only
    throttled."""
    if request.quota is None:
        return None
    return request.quota.controller_mutation(strict=request.api_version >= first_strict_version)
