"""SaslHandshake 0-1: a client says by which mechanism it logs in. free

Version notes: behind 0 come tokens as frames of their own, behind 1 SaslAuthenticate (KIP-152). Who has logged in, or
comes where nobody logs in, gets ILLEGAL_SASL_STATE, unless its session ends and it may log in anew (KIP-368).
"""

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import encoded
from ottla.broker.deadline import sleep
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Begin a login; UNSUPPORTED_SASL_MECHANISM for a mechanism that is not enabled, then the connection ends."""
    authenticator = request.session.authenticator
    if authenticator is None:
        return encoded(request, error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    error, reason = authenticator.handshake(request.body.mechanism, request.api_version)
    if reason:
        request.forget_body()
        await sleep(broker.turns, broker.clock, broker.config.connection_failed_authentication_delay_ms)
    mechanisms = [] if error is ErrorCode.ILLEGAL_SASL_STATE else [*authenticator.names]
    return encoded(request, error_code=error, mechanisms=mechanisms)._replace(closes=reason)
