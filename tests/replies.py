"""What a handler has answered, for tests that call one."""

from ottla.protocol import codec


def message_of(reply, api_key, version):
    """The message of an encoded reply, decoded strictly."""
    framed = b"".join(reply.buffers)
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    return codec.decode_response(api_key, version, framed[4:])[1]
