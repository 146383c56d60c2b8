"""SaslHandshake 0-1: a client chooses its login mechanism. free

Version notes: after 0 tokens are frames of their own, after 1 they are in SaslAuthenticate (KIP-152). A client that has
logged in, or uses a listener without login, gets ILLEGAL_SASL_STATE, except when its session ends and it may log in
again (KIP-368).
"""

from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.deadline import sleep
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Begin a login. A mechanism that is not enabled gets UNSUPPORTED_SASL_MECHANISM, and the connection is closed."""
    authenticator = request.session.authenticator
    if authenticator is None:
        return encode_reply(request, error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    error, reason = authenticator.handshake(request.body.mechanism, request.api_version)
    if reason:
        request.forget_body()
        await sleep(broker.turns, broker.clock, broker.config.connection_failed_authentication_delay_ms)
    mechanisms = [] if error == ErrorCode.ILLEGAL_SASL_STATE else [*authenticator.names]
    return encode_reply(request, error_code=error, mechanisms=mechanisms)._replace(closes=reason)
