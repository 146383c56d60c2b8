"""Tokens without a signature, with the options of Kafka's validator of unsecured tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.oauth import unsecured_settings
from ottla.broker.security.oauth import Checked, TokenRefused
from ottla.broker.security.unsecured import UnsecuredTokens
from tests.unit.broker.security.tokens import NOW_MS, NOW_S, claims, encode_token, part, sign


def check(token, **options):
    """Check the token. Return its principal and expiry as `Checked`. Raises TokenRefused."""
    given = {f"unsecuredValidator{name}": text for name, text in options.items()}
    handler = UnsecuredTokens(unsecured_settings(given), lambda: NOW_MS).check(token)
    with pytest.raises(StopIteration) as stop:
        handler.send(None)
    return stop.value.value


def catch_refusal(token, **options):
    with pytest.raises(TokenRefused) as refusal:
        check(token, **options)
    return refusal.value


@pytest.mark.parametrize("said", [{"sub": "alice", "exp": NOW_S + 600}, claims(), claims(scope=["write"])])
def test_a_valid_token_is_accepted_with_its_sub_and_exp(said):
    assert check(encode_token(said)) == Checked("alice", (NOW_S + 600) * 1000)


def test_options_set_the_claim_names_the_required_scope_and_clock_skew():
    options = {"PrincipalClaimName": "user", "ScopeClaimName": "may", "RequiredScope": "read write"}
    assert check(encode_token(claims(user="bob", may="write read more")), **options).name == "bob"
    assert check(encode_token(claims(user="bob", may=["write", "read"])), **options).name == "bob"
    assert check(encode_token(claims(exp=NOW_S - 1)), AllowableClockSkewMs="1001").name == "alice"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (claims(sub=None), "it has no sub"),
        (claims(sub=" "), "it has no sub"),
        (claims(sub=1), "it has no sub"),
        (claims(sub="\ud800x"), "its sub is not valid Unicode"),
        (claims(exp=None), "it has no exp"),
        (claims(exp="x"), "its exp is not a time"),
        (claims(exp=NOW_S), "it has expired"),
        (claims(iat=NOW_S + 1), "it was issued in the future"),
        (claims(exp=NOW_S + 10, iat=NOW_S + 10), "it was issued in the future"),
    ],
)
def test_a_token_with_invalid_claims_is_refused_with_the_reason(said, why):
    assert catch_refusal(encode_token(said)).reason == why


def test_a_scope_that_lacks_is_named():
    refusal = catch_refusal(encode_token(claims(scope="read")), RequiredScope="read write")
    assert (refusal.reason, refusal.scope) == ("it lacks a scope", "[read, write]")


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        sign(),
        sign().rpartition(".")[0] + ".",
        encode_token(claims()) + "x",
        encode_token(claims()).rstrip("."),
        encode_token(claims(), alg="RS256"),
        encode_token([1]),
        f"{part([1])}.{part(claims())}.",
        f"{part(b'[' * 40_000)}.{part(claims())}.",
        f"{part(b'9' * 5_000)}.{part(claims())}.",
        "é.é.",
    ],
)
def test_other_tokens_are_refused(token):
    assert catch_refusal(token).reason


_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.text(max_size=9))


@given(st.dictionaries(st.sampled_from(["sub", "exp", "iat", "scope"]), _VALUES))
def test_random_claims_are_accepted_only_with_a_sub_and_a_later_exp(changed):
    try:
        checked = check(encode_token(claims(**changed)))
    except TokenRefused as refusal:
        assert refusal.reason
    else:
        assert checked.name == changed.get("sub", "alice").strip() != ""
        assert checked.expires_at_ms > NOW_MS
