"""Replies of handlers, decoded for tests that call a handler."""

from ottla.protocol.requests import codec


def message_of(reply, api_key, version):
    """Return the message of an encoded reply, decoded strictly."""
    framed = b"".join(reply.buffers)
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    return codec.decode_response(api_key, version, framed[4:])[1]
