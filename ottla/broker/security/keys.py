"""Keys of key sets (JWKS), and the check of a token's signature with them. pure

joserfc does the checks. It is an extra, and is imported only if a listener needs it. Symmetric keys are always ignored,
because a key that can check their signatures can also make them. A key checks only the algorithms of its own kind, so
an attacker cannot have a public key used as a shared secret.
"""

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.security.oauth import TokenRefused

if TYPE_CHECKING:
    from joserfc.jwk import Key

MOST_KEYS: Final = 100
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_ALGORITHMS: Final = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
}
_RSA_BITS: Final = range(2_048, 6_144 + 1)
"""Allowed lengths of RSA keys. Shorter keys can be broken; joserfc does not read the signatures of longer ones."""
_BITS_OF_BASE64: Final = 6
_HEADER_BYTES_MOST: Final = 4_096


class VerificationKey(NamedTuple):
    """Key with its name, which may be empty, and the algorithms that it may check."""

    key_id: str
    algorithms: frozenset[str]
    key: "Key"


class Head(NamedTuple):
    """Header of a token whose signature is not checked yet."""

    algorithm: str
    key_id: str


def parse_keys(content: bytes) -> tuple[VerificationKey, ...]:
    """Return the keys of a set that can check tokens. Raises ValueError if the content is not a key set."""
    try:
        found = json.loads(content)
        given = found["keys"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise ValueError("it is not a key set (a JSON object with keys)") from None
    if not isinstance(given, list) or len(given) > MOST_KEYS:
        raise ValueError(f"it is not a key set of at most {MOST_KEYS} keys")
    keys = [key for each in given if isinstance(each, dict) and (key := _parse_key(each)) is not None]
    if not keys:
        raise ValueError("it has no key that checks signatures, of RSA (2,048 bits or more) or an elliptic curve")
    return tuple(keys)


def _parse_key(given: dict[str, Any]) -> VerificationKey | None:
    """Return the key; None if it is not for checking signatures, or not safe."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, RSAKey

    kind = given.get("kty")
    algorithms = _ALGORITHMS.get((str(kind), given.get("crv") if kind == "EC" else None), frozenset())
    if given.get("alg") is not None:
        algorithms = algorithms.intersection({str(given["alg"])})
    operations = given.get("key_ops")
    is_for_checks = given.get("use") in (None, "sig") and (operations is None or "verify" in operations)
    if not algorithms or not is_for_checks:
        return None
    if kind == "RSA" and len(str(given.get("n"))) * _BITS_OF_BASE64 < _RSA_BITS.start:
        return None  # joserfc would warn about it
    names = ("kty", "n", "e", "crv", "x", "y")
    try:
        key = JWKRegistry.import_key({name: str(given[name]) for name in names if name in given})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAKey) and key.public_key.key_size not in _RSA_BITS:
        return None
    key_id = given.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else "", algorithms, key)


def read_head(token: str) -> Head:
    """Return the header of a token. Raises TokenRefused."""
    from joserfc import jws
    from joserfc.errors import JoseError

    try:
        header = jws.extract_compact(token.encode(), registry=_registry(None)).headers()
    except (JoseError, ValueError, TypeError, RecursionError):
        raise TokenRefused("it is not a JWT") from None
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or not algorithm.isascii() or not isinstance(key_id, str):
        raise TokenRefused("its header is not the header of a JWT")
    return Head(algorithm, key_id)


def verified_claims(token: str, head: Head, key: VerificationKey) -> dict[str, Any]:
    """Return the claims of a token after checking its signature with the key. Raises TokenRefused."""
    from joserfc import jwt
    from joserfc.errors import BadSignatureError, JoseError

    try:
        return jwt.decode(token, key.key, registry=_registry(head.algorithm)).claims
    except BadSignatureError:
        raise TokenRefused("its signature does not match the key that it names") from None
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise TokenRefused(f"it is not a JWT: {type(error).__name__}") from None


def _registry(algorithm: str | None) -> Any:
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=None if algorithm is None else [algorithm], strict_check_header=False)
    registry.max_header_length = _HEADER_BYTES_MOST
    return registry
