"""Bytes that a client sends before its login, valid and then corrupted: frames, SASL tokens, TLS records."""

import base64
import json
import ssl
import struct

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "alice-secret"
EXTREMES = (0, 1, 4, 127, 128, 255, 256, 32767, 32768, 524_287, 524_288, 524_289, 2**31 - 1, 2**31, 2**32 - 1)


def encode(body):
    return struct.pack(">i", len(body)) + body


def header(key, version, flexible, client_id="fuzz"):
    raw = client_id.encode()
    return struct.pack(">hhih", key, version, 7, len(raw)) + raw + (b"\0" if flexible else b"")


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def compact(data):
    return varint(len(data) + 1) + data


def api_versions(version=3):
    if version < 3:
        return encode(header(API_VERSIONS, version, False))
    return encode(header(API_VERSIONS, version, True) + compact(b"fuzz") + compact(b"1.0") + b"\0")


def handshake(mechanism, version=1):
    name = mechanism.encode()
    return encode(header(HANDSHAKE, version, False) + struct.pack(">h", len(name)) + name)


def authenticate(token, version=2):
    if version < 2:
        return encode(header(AUTHENTICATE, version, False) + struct.pack(">i", len(token)) + token)
    return encode(header(AUTHENTICATE, version, True) + compact(token) + b"\0")


def metadata(topic):
    """Return a Metadata request that would create the topic."""
    name = topic.encode()
    return encode(header(3, 4, False) + struct.pack(">ih", 1, len(name)) + name + b"\1")


def produce(topic):
    name = topic.encode()
    body = struct.pack(">hhiih", -1, -1, 1000, 1, len(name)) + name + struct.pack(">iii", 1, 0, -1)
    return encode(header(0, 3, False) + body)


def plain_login(user=USER, password=PASSWORD, authzid=""):
    return f"{authzid}\0{user}\0{password}".encode()


def first_token(chance, mechanism):
    """Return a first token of any mechanism: valid or almost valid."""
    user = chance.choice((USER, "nobody", "", "a" * chance.choice(EXTREMES[:9]), "=2C=3D", "=", "Žižka", "\u202eecila"))
    if mechanism == "PLAIN":
        parts = [chance.choice(("", "", USER, "bob")), user, chance.choice((PASSWORD, "", "x" * 5000))]
        return "\0".join(parts[: chance.choice((3, 3, 3, 2, 1))]).encode()
    if mechanism.startswith("SCRAM"):
        gs2 = chance.choice(("n,,", "n,,", "y,,", "p=tls-unique,,", "n,a=bob,", "", ",", "q,,"))
        nonce = chance.choice(("fyko+d2lbbFgONRv9qkxdawL", "", ",", "\0", "n" * 9000))
        more = chance.choice(("", "", ",tokenauth=true", ",m=x", "," * 1000))
        return f"{gs2}n={user},r={nonce}{more}".encode()
    token = jwt(chance) if chance.random() < 0.8 else chance.choice(("", "..", "a.b.c", "x" * 100_000))
    middle = chance.choice(("", "", "", "traceId=1\x01", "=\x01", "auth=Bearer y\x01", "\x01" * 100))
    return (
        f"{chance.choice(('n,,', 'n,,', 'n,,', 'n,a=bob,', 'y,,', ''))}\x01auth=Bearer {token}\x01{middle}\x01".encode()
    )


def jwt(chance):
    """Return a token without a valid signature."""
    head = {
        "alg": chance.choice(("none", "HS256", "RS256", "ES256", "", None, 7)),
        "kid": chance.choice(("one", "two", "", None)),
    }
    claims = {"sub": chance.choice((USER, "", None, ["x"])), "iat": 0, "exp": chance.choice((0, 2**40, -1, "x", 1e308))}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, claims)]
    return ".".join([*parts, chance.choice(("", "c2ln", "!"))])


def second_token(chance, challenge):
    """Return the token after the server's first SCRAM message."""
    fields = dict(part.partition("=")[::2] for part in challenge.decode("utf-8", "replace").split(","))
    nonce = chance.choice((fields.get("r", ""), fields.get("r", ""), "other", fields.get("r", "") + "x"))
    binding = chance.choice(("biws", "biws", "eSws", "", "!"))
    proof = base64.b64encode(chance.randbytes(chance.choice((32, 64, 0, 31, 1000)))).decode()
    return f"c={binding},r={nonce},p={proof}".encode()


def hello(chance):
    """Return the first flight of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if chance.random() < 0.3:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        wrapped.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without an answer")


def spoil_bytes(chance, data):
    """Return the data with bytes flipped, removed or doubled, or with a wrong length field."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 10))):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del out[at : at + chance.choice((1, 2, 4, 16, 10_000))]
        elif kind == 2:
            out[at:at] = chance.randbytes(chance.choice((1, 2, 4, 16, 1000)))
        elif kind == 3:
            out[at:at] = out[at : at + chance.choice((1, 4, 40))]
        elif kind == 4:
            out[at : at + 4] = struct.pack(">I", chance.choice(EXTREMES))
        else:
            out[:4] = struct.pack(">I", chance.choice(EXTREMES))
    return bytes(out)
