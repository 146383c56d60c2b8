"""SaslAuthenticate 0-2: the tokens of a login, and tokens that are frames of their own. free

Version notes: 1 adds the session lifetime (KIP-368), 2 is flexible. A refused client gets its error after
`connection.failed.authentication.delay.ms`, whatever the reason is, and the connection is closed.
"""

from struct import Struct
from typing import Final

from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Close, Encoded, Reply, Request
from ottla.broker.deadline import sleep
from ottla.broker.security.mechanism import SaslFailed
from ottla.broker.security.sasl import Authenticator
from ottla.broker.security.session import Session
from ottla.protocol.errors import ErrorCode

_SIZE: Final = Struct(">i")
_LATE: Final = "SaslAuthenticate request received after successful authentication"


async def handle(broker: Broker, request: Request) -> Reply:
    """Check one token. SASL_AUTHENTICATION_FAILED if it is refused, ILLEGAL_SASL_STATE after the login."""
    session = request.session
    authenticator = session.authenticator
    if authenticator is None or authenticator.has_ended:
        return encode_reply(
            request,
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message=_LATE,
            auth_bytes=b"",
            session_lifetime_ms=0,
        )
    token = bytes(request.body.auth_bytes)
    request.forget_body()
    began_ms = broker.clock.monotonic_ms()
    try:
        answer, lifetime_ms = await _authenticate(session, authenticator, token)
    except SaslFailed as failed:
        await _let_wait(broker, began_ms)
        return encode_reply(
            request,
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=failed.message,
            auth_bytes=b"",
            session_lifetime_ms=0,
        )._replace(closes=_reason(failed))
    return encode_reply(request, error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)


async def handle_token(broker: Broker, session: Session, authenticator: Authenticator, token: bytes) -> Reply:
    """Check one token that is a frame of its own, as its answer is (SaslHandshake 0). A failure has no answer."""
    began_ms = broker.clock.monotonic_ms()
    try:
        answer, _ = await _authenticate(session, authenticator, token)
    except SaslFailed as failed:
        await _let_wait(broker, began_ms)
        return Close(f"SaslAuthenticate: {_reason(failed)}")
    return Encoded([_SIZE.pack(len(answer)) + answer])


async def _authenticate(session: Session, authenticator: Authenticator, token: bytes) -> tuple[bytes, int]:
    """Check a token. The session gets the principal of a complete login."""
    answer, lifetime_ms = await authenticator.authenticate(token)
    session.principal = authenticator.principal or session.principal
    return answer, lifetime_ms


async def _let_wait(broker: Broker, began_ms: float) -> None:
    """Wait for the rest of the delay, counted from the begin of the token, so that the time does not reveal the
    reason."""
    passed_ms = broker.clock.monotonic_ms() - began_ms
    left_ms = broker.config.connection_failed_authentication_delay_ms - passed_ms
    await sleep(broker.turns, broker.clock, max(0.0, left_ms))


def _reason(failed: SaslFailed) -> str:
    return f"Failed authentication: {failed.reason}"
