"""Key sets: the keys that check a token, and the keys that are left out."""

import json
import warnings

import pytest
from joserfc.jwk import RSAKey

from ottla.broker.security.keys import MOST_KEYS, parse_keys, read_head, verified_claims
from ottla.broker.security.oauth import TokenRefused
from tests.unit.broker.security.tokens import EC, RSA, SECRET, claims, key_set, part, sign


def found(content):
    return [(key.key_id, sorted(key.algorithms)) for key in parse_keys(content)]


def test_keys_check_the_algorithms_of_their_kind():
    of_rsa = ["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"]
    assert found(key_set(RSA, EC)) == [("rsa", of_rsa), ("ec", ["ES256"])]
    assert found(key_set(RSA, alg="RS256", use="sig", key_ops=["verify"])) == [("rsa", ["RS256"])]


def test_unusable_keys_in_a_key_set_are_ignored():
    strange = [{"kty": "new"}, {"kty": "RSA", "n": "x"}, {"kty": "EC", "crv": "P-1"}, 1, {}, {"kty": ["RSA"]}]
    content = json.dumps({"keys": [*strange, *json.loads(key_set(SECRET, RSA))["keys"]]}).encode()
    assert [name for name, _ in found(content)] == ["rsa"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": []}',
        b"[" * 100_000,
        b"\xff",
        key_set(SECRET),
        key_set(RSA, use="enc"),
        key_set(RSA, key_ops=["encrypt"]),
        key_set(RSA, alg="RSA-OAEP"),
        json.dumps({"keys": [{}] * (MOST_KEYS + 1)}).encode(),
    ],
)
def test_a_key_set_without_a_key_for_signatures_is_refused(content):
    with pytest.raises(ValueError):
        parse_keys(content)


def test_a_short_rsa_key_is_ignored():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = RSAKey.generate_key(1024, {"kid": "short"})
    assert [name for name, _ in found(key_set(short, RSA))] == ["rsa"]


def test_a_private_key_in_the_set_is_kept_as_a_public_one():
    content = json.dumps({"keys": [RSA.as_dict(private=True)]}).encode()
    (key,) = parse_keys(content)
    assert not key.key.is_private


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS256"), (EC, "ES256")],
    ids=lambda each: str(each)[:5],
)
def test_a_signature_is_checked(key, algorithm):
    token = sign(key=key, algorithm=algorithm)
    head = read_head(token)
    assert head == (algorithm, key.kid)
    (kept,) = parse_keys(key_set(key))
    assert verified_claims(token, head, kept) == claims()
    for at in (5, len(token) // 2, -5):
        changed = "A" if token[at] != "A" else "B"
        broken = token[:at] + changed + token[at:][1:]
        with pytest.raises(TokenRefused):
            verified_claims(broken, read_head(broken), kept)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        f"{part([1])}.{part({})}.AAAA",
        f"{part({})}.{part({})}.AAAA",
        f"{part({'alg': 1})}.{part({})}.AAAA",
        f"{part({'alg': None})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 7})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'kid': ['x']})}.{part({})}.AAAA",
        f"{part({'alg': 'RS256', 'x': 'y' * 5_000})}.{part({})}.AAAA",
        f"{part(b'[' * 2_000)}.{part({})}.AAAA",
        f"{part(b'{' * 9)}.{part({})}.AAAA",
    ],
)
def test_a_malformed_token_is_refused(token):
    with pytest.raises(TokenRefused):
        read_head(token)
