"""Logins without a connection."""

import pytest

from ottla.broker.security.mechanism import SaslFailed


def answer(server, token):
    """Return the answer of the broker to this token. Evaluating it must not wait."""
    handler = server.evaluate(token)
    try:
        handler.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def refusal(server, token):
    """Return the SaslFailed that this token raises."""
    with pytest.raises(SaslFailed) as failed:
        answer(server, token)
    assert not server.complete
    return failed.value
