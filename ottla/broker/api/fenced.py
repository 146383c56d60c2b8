"""Who was fenced: a line about whoever another has taken the place of. free"""

import logging
from typing import Any, Final

from ottla.broker.api.context import Request
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.FENCED_INSTANCE_ID))
# What a request says of its sender, if it does: the names are those of every API.
_SAID: Final = ("transactional_id", "producer_id", "producer_epoch", "group_id", "group_instance_id", "member_id")


def tell_fenced(request: Request, error_code: int) -> None:
    """The client, and what it says that it is. Of InitProducerId more is known, and told where it is."""
    if request.api_key == ApiKey.INIT_PRODUCER_ID or not log.isEnabledFor(logging.INFO):
        return
    said = [(name, _said(request.body, name)) for name in _SAID]
    log.info(
        "Fenced client %.100s at %s: %s answered %s%s",
        *(request.client_id, request.peer, ApiKey(request.api_key).title, ErrorCode(error_code).name),
        "".join(f", {name} {str(value)[:100]}" for name, value in said if value not in (None, "")),
    )


def _said(body: Any, name: str) -> Any:
    # AddPartitionsToTxn of a client has another name for each.
    return getattr(body, name, getattr(body, f"v3_and_below_{name}", None))
