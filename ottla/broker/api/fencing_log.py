"""Log a request that is answered with a fencing error. free"""

import logging
from typing import Any, Final

from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.FENCED_INSTANCE_ID))
# Fields that identify the sender. All APIs use these names.
_SENDER_FIELDS: Final = (
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "group_id",
    "group_instance_id",
    "member_id",
)


def log_fenced(broker: Broker, request: Request, error_code: int) -> None:
    """Count and log a fenced request with its producer or member. `init_producer_id.py` logs more for its own API."""
    broker.metrics.fenced += 1
    if request.api_key == ApiKey.INIT_PRODUCER_ID or not log.isEnabledFor(logging.INFO):
        return
    sender = sender_fields(request.body)
    described = "".join(f", {name} {str(value)[:100]}" for name, value in sender.items())
    log.info(
        "Fenced client %(client_id).100s at %(peer)s: %(api)s answered %(error)s%(told)s",
        request.about
        | sender
        | {"group": sender.get("group_id"), "error": ErrorCode(error_code).name, "told": described},
    )


def sender_fields(body: Any) -> dict[str, Any]:
    """Return the fields of a request that identify its sender: transactional id, producer, group and member, if
    present."""
    # In AddPartitionsToTxn of clients these fields have other names.
    sender = {name: getattr(body, name, getattr(body, f"v3_and_below_{name}", None)) for name in _SENDER_FIELDS}
    return {name: value for name, value in sender.items() if value not in (None, "")}
