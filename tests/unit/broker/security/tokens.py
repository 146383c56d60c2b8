"""An issuer of tokens: its keys, its key set, and signed tokens."""

import json
from base64 import urlsafe_b64encode
from typing import NamedTuple

from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER = RSAKey.generate_key(2048, {"kid": "other"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
SECRET = OctKey.import_key("a secret of two hundred and fifty six bits", {"kid": "secret"})


class Kind(NamedTuple):
    """A key and an algorithm."""

    key: object
    algorithm: str


def claims(**changed):
    """Return the claims of a valid token. A value of None leaves a claim out."""
    good = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S - 10, "exp": NOW_S + 600, "scope": "write"}
    return {name: value for name, value in (good | changed).items() if value is not None}


def sign(said=None, key=RSA, algorithm="RS256", **header):
    """Return a signed token."""
    header = {"alg": algorithm, "kid": key.kid} | header
    header = {name: value for name, value in header.items() if value is not None}
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    payload = json.dumps(claims() if said is None else said)  # escapes all that is not ASCII
    return jws.serialize_compact({"typ": "JWT"} | header, payload, key, registry=registry)


def part(value):
    """Return a part of a token, from JSON or bytes."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(content).decode().rstrip("=")


def encode_token(said, **header):
    """Return a token without a signature."""
    return f"{part({'alg': 'none'} | header)}.{part(said)}."


def key_set(*keys, **changed):
    """Return the keys as a JWKS server does. `changed` is set in each key."""
    return json.dumps({"keys": [key.as_dict(private=False) | changed for key in keys]}).encode()
