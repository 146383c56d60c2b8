"""Signed tokens: their principal and expiry, refused tokens, and loading and rotation of the keys."""

import hmac
import json
import logging
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.config import Config
from ottla.broker.ports import web
from ottla.broker.security import jwks
from ottla.broker.security.jwks import MISSED_AGAIN_MS, TIMEOUT_S, Jwks, KeyFetchContext
from ottla.broker.security.oauth import Checked, TokenRefused
from ottla.broker.security.signed import SignedTokens
from ottla.broker.turns import Turns
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock
from tests.unit.broker.security.tokens import (
    AUDIENCE,
    EC,
    ISSUER,
    NOW_S,
    OTHER,
    RSA,
    SECRET,
    claims,
    encode_token,
    key_set,
    part,
    sign,
)

URL = "https://user:secret@issuer.example/keys?secret=x"
REFRESH_MS, BACKOFF_MS, BACKOFF_MAX_MS = 300_000, 100, 10_000
SKEW_S = 30


class Site:
    """The content of a URL. A fetch ends at once, or when the test calls `end`."""

    def __init__(self):
        self.content = key_set(RSA, EC)
        self.fetched = 0
        self.is_slow = False
        self._calls = []

    def start(self, call, on_end):
        self.fetched += 1
        self._calls.append((call, on_end))
        if not self.is_slow:
            self.end()

    def end(self):
        calls, self._calls = self._calls, []
        for call, on_end in calls:
            try:
                answer, failure = call(), None
            except Exception as error:
                answer, failure = None, error
            on_end(answer, failure)

    def fetch(self, url, most_bytes, timeout_s):
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


class World:
    """A broker's time, and the tokens of one listener."""

    def __init__(self, site):
        self.site = site
        self.schedule = Schedule()
        self.clock = VirtualClock(self.schedule, PortCalls(), 0.0, lambda work: work())
        self.bugs = []
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = self.turns.event
        self.around = KeyFetchContext(self.clock, self.turns, site)

    def tokens(self, **changed):
        """Return tokens that have begun to fetch their keys."""
        given = {
            "jwks_endpoint_url": URL,
            "jwks_endpoint_refresh_ms": REFRESH_MS,
            "jwks_endpoint_retry_backoff_ms": BACKOFF_MS,
            "jwks_endpoint_retry_backoff_max_ms": BACKOFF_MAX_MS,
            "clock_skew_seconds": SKEW_S,
            "expected_audience": AUDIENCE,
            "expected_issuer": ISSUER,
        }
        config = Config(**{f"sasl_oauthbearer_{name}": value for name, value in (given | changed).items()})
        self.jwks = Jwks("EXTERNAL", config, self.around)
        self.jwks.start()
        return SignedTokens(config, self.jwks, self.around)

    def begin(self, tokens, token):
        """Begin to check a token. Return a list that gets the result."""
        outcome = []
        self.turns.event(lambda: self.turns.start(tokens.check(token), outcome.append, outcome.append))
        return outcome

    def rest(self, ms=0.0):
        """Let time pass."""
        until = self.schedule.now_ms + ms
        self.schedule.at(until, lambda: None)
        while self.schedule.now_ms < until and self.schedule.run_next():
            pass

    def check(self, tokens, token):
        """Check the token. Return its principal and expiry as `Checked`. Raises TokenRefused."""
        outcome = self.begin(tokens, token)
        for _ in range(100):
            if outcome:
                break
            self.schedule.run_next()
        (found,) = outcome
        if isinstance(found, Exception):
            raise found
        return found

    def why_not(self, tokens, token):
        with pytest.raises(TokenRefused) as refused:
            self.check(tokens, token)
        return refused.value.reason


@pytest.fixture
def site(monkeypatch):
    made = Site()
    monkeypatch.setattr(jwks, "fetch", made.fetch)
    return made


@pytest.fixture
def world(site):
    made = World(site)
    yield made
    assert made.bugs == []


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "RS384"), (RSA, "PS512"), (EC, "ES256")],
    ids=lambda each: str(each)[:5],
)
def test_a_token_signed_with_rsa_or_ec_is_accepted_until_it_expires(world, key, algorithm):
    found = world.check(world.tokens(), sign(key=key, algorithm=algorithm))
    assert found == Checked("alice", (NOW_S + 600) * 1000)


@pytest.mark.parametrize(
    "said",
    [
        claims(aud=["other", AUDIENCE]),
        claims(aud=[AUDIENCE]),
        claims(scope=None),
        claims(scope=["read", "write"]),
        claims(sub=" alice "),
        claims(exp=NOW_S - SKEW_S + 1, iat=NOW_S - 100),
        claims(iat=NOW_S + SKEW_S),
        claims(nbf=NOW_S + SKEW_S),
        claims(iat=NOW_S - 0.5, exp=NOW_S + 10.5),
    ],
)
def test_valid_variants_of_the_claims_are_accepted(world, said):
    assert world.check(world.tokens(), sign(said)).name == "alice"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (claims(exp=NOW_S - SKEW_S), "it has expired"),
        (claims(exp=0, iat=0), "it has expired"),
        (claims(exp=None), "it has no exp or no iat"),
        (claims(iat=None), "it has no exp or no iat"),
        (claims(exp="soon"), "its exp is not a time"),
        (claims(exp=True), "its exp is not a time"),
        (claims(exp=-1), "its exp is not a time"),
        (claims(exp=float("nan")), "its exp is not a time"),
        (claims(nbf=[]), "its nbf is not a time"),
        (claims(iat=NOW_S + SKEW_S + 1), "it was issued in the future"),
        (claims(nbf=NOW_S + SKEW_S + 1), "it is not valid yet"),
        (claims(iat=NOW_S + 20, exp=NOW_S + 10), "it expired before it was issued"),
        (claims(iss="https://evil.example"), "it is from another issuer"),
        (claims(iss=None), "it is from another issuer"),
        (claims(iss=[ISSUER]), "it is from another issuer"),
        (claims(aud="other"), "it is for another audience"),
        (claims(aud=None), "it is for another audience"),
        (claims(aud=[]), "it is for another audience"),
        (claims(aud={AUDIENCE: 1}), "it is for another audience"),
        (claims(aud=f"{AUDIENCE},other"), "it is for another audience"),
        (claims(sub=None), "it has no sub"),
        (claims(sub=""), "it has no sub"),
        (claims(sub="  "), "it has no sub"),
        (claims(sub=7), "it has no sub"),
        (claims(sub=["alice"]), "it has no sub"),
        (claims(sub="\ud800x"), "its sub is not valid Unicode"),
        (claims(scope=""), "its scopes are not texts, or occur twice"),
        (claims(scope=["a", "a"]), "its scopes are not texts, or occur twice"),
        (claims(scope=["a", 7]), "its scopes are not texts, or occur twice"),
    ],
)
def test_a_token_with_invalid_claims_is_refused_with_the_reason(world, said, why):
    assert world.why_not(world.tokens(), sign(said)) == why


def test_a_far_end_is_an_end(world):
    assert world.check(world.tokens(), sign(claims(exp=1e300))).expires_at_ms < 1e15


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(world):
    """CVE-2015-9235: the algorithm in a header must not choose the kind of the key."""
    tokens = world.tokens()
    for public in (RSA.as_pem(private=False), RSA.as_der(private=False)):
        signing = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(claims())}"
        forged = f"{signing}.{part(hmac.digest(public, signing.encode(), 'sha256'))}"
        assert "the broker has no key for its signature: HS256 'rsa'" in world.why_not(tokens, forged)


def test_a_secret_in_the_key_set_checks_nothing(world, site):
    site.content = json.dumps({"keys": [SECRET.as_dict(private=True), *json.loads(key_set(RSA))["keys"]]}).encode()
    assert "no key" in world.why_not(world.tokens(), sign(key=SECRET, algorithm="HS256"))


@pytest.mark.parametrize(
    "token",
    [
        encode_token(claims()),
        encode_token(claims(), kid="rsa"),
        encode_token(claims(), alg="None", kid="rsa"),
        encode_token(claims(), alg="\ud800", kid="rsa"),
        sign().rpartition(".")[0] + ".",
        f"{part({'alg': 'none', 'kid': 'rsa'})}.{part(claims())}.{sign().rpartition('.')[2]}",
        f"{part({'alg': 'RS256', 'kid': 'rsa'})}.{part(claims(sub='root'))}.{sign().rpartition('.')[2]}",
        sign(key=OTHER, kid="rsa"),
        sign(key=OTHER, kid="rsa", jwk=OTHER.as_dict(private=False)),
        sign(key=OTHER, kid="rsa", jku="https://evil.example/keys"),
        sign(key=EC, algorithm="ES256", kid="rsa"),
        "x",
        "x.y.z",
        "",
    ],
)
def test_a_token_that_the_keys_do_not_prove_is_refused(world, token):
    said = world.why_not(world.tokens(), token)
    assert said.encode() and (len(token) < 3 or token not in said)


def test_a_token_without_a_key_id_is_checked_with_the_only_key_that_can(world, site):
    tokens = world.tokens()
    assert world.check(tokens, sign(kid=None)).name == "alice"
    site.content = key_set(RSA, OTHER)
    world.rest(REFRESH_MS)
    assert "no key" in world.why_not(tokens, sign(kid=None))


def test_a_key_that_is_new_is_fetched_and_its_client_waits(world, site):
    tokens = world.tokens()
    world.rest(MISSED_AGAIN_MS)
    site.content, site.is_slow = key_set(RSA, OTHER), True
    one, other = (world.begin(tokens, sign(key=OTHER)) for _ in range(2))
    known = world.begin(tokens, sign())
    world.rest(1.0)
    assert (one, other, [each.name for each in known], site.fetched) == ([], [], ["alice"], 2)
    site.end()
    world.rest(1.0)
    assert [each.name for each in one + other] == ["alice", "alice"]


def test_unknown_keys_do_not_have_the_keys_fetched_without_end(world, site):
    tokens = world.tokens()
    for number in range(100):
        assert "no key" in world.why_not(tokens, sign(key=OTHER, kid=f"{number}"))
    assert site.fetched == 1
    world.rest(MISSED_AGAIN_MS)
    for number in range(100):
        world.why_not(tokens, sign(key=OTHER, kid=f"{number}"))
    assert site.fetched == 2


def test_a_server_that_does_not_answer_lets_go_of_the_clients(world, site):
    tokens = world.tokens()
    world.rest(MISSED_AGAIN_MS)
    site.is_slow = True
    waiting = world.begin(tokens, sign(key=OTHER))
    world.rest(TIMEOUT_S * 1000 - 1)
    assert waiting == []
    world.rest(2)
    assert "no key" in waiting[0].reason
    world.rest(MISSED_AGAIN_MS)
    world.begin(tokens, sign(key=OTHER))
    assert site.fetched == 2, "one fetch at a time"
    site.end()


def test_a_client_that_hangs_up_while_it_waits_is_forgotten(world, site):
    site.is_slow = True
    tokens = world.tokens()
    activity = world.turns.start(tokens.check(sign()), pytest.fail, pytest.fail)
    activity.discard()
    assert not world.jwks._waits
    site.end()
    world.rest(1.0)


def test_keys_are_fetched_again_and_those_of_before_stay_when_that_fails(world, site, caplog):
    tokens = world.tokens()
    site.content = OSError("the server answers 500")
    world.rest(REFRESH_MS)
    assert site.fetched == 2 and world.check(tokens, sign()).name == "alice"
    assert "the server answers 500; the previous keys stay in use" in caplog.text
    assert "https://issuer.example/keys" in caplog.text and "secret" not in caplog.text
    site.content = key_set(OTHER)
    world.rest(BACKOFF_MS)
    assert "no key" in world.why_not(tokens, sign())
    assert world.check(tokens, sign(key=OTHER)).name == "alice"


def test_fetches_that_fail_are_tried_less_and_less_often(world, site):
    site.content = OSError("refused")
    tokens = world.tokens()
    assert world.why_not(tokens, sign()) == "the broker has no keys to check it with"
    world.rest(60_000)
    assert 8 < site.fetched < 16
    site.content = key_set(RSA)
    world.rest(BACKOFF_MAX_MS)
    assert world.check(tokens, sign()).name == "alice"


@pytest.mark.parametrize(
    "content", [b"", b"{}", key_set(SECRET), b"[" * 10_000, b'{"keys": [' + b"{}," * 200 + b"{}]}"]
)
def test_tokens_are_refused_when_the_key_set_has_no_usable_key(world, site, content, caplog):
    site.content = content
    tokens = world.tokens()
    assert world.why_not(tokens, sign()) == "the broker has no keys to check it with"
    assert "no client can log in with a token" in caplog.text


def test_a_stopped_key_set_is_not_fetched_again(world, site):
    world.tokens()
    world.jwks.stop()
    world.rest(2 * REFRESH_MS)
    assert site.fetched == 1


def test_options_allow_any_issuer_and_audience(world):
    open_to_all = {"expected_audience": "", "expected_issuer": ""}
    waived = {"allow_unverified_issuer": True, "allow_unverified_audience": True}
    tokens = world.tokens(**open_to_all, **waived)
    assert world.check(tokens, sign(claims(iss="x", aud="y"))).name == "alice"
    assert world.check(tokens, sign(claims(iss=None, aud=None))).name == "alice"


def test_options_name_the_subject_and_scope_claims(world):
    tokens = world.tokens(sub_claim_name="client_id", scope_claim_name="scp")
    assert world.check(tokens, sign(claims(client_id="app", scope=7, scp="a"))).name == "app"


def test_keys_are_read_from_a_file_url_and_kept_when_it_is_removed(world, monkeypatch, tmp_path):
    monkeypatch.setattr(jwks, "fetch", web.fetch)
    file = tmp_path / "key set.json"
    file.write_bytes(key_set(RSA))
    tokens = world.tokens(jwks_endpoint_url=file.as_uri())
    assert world.check(tokens, sign()).name == "alice"
    file.unlink()
    world.rest(REFRESH_MS)
    assert world.check(tokens, sign()).name == "alice"


def test_no_token_is_in_the_log(world, caplog):
    with caplog.at_level(logging.DEBUG):
        tokens = world.tokens()
        for token in (sign(), sign(key=OTHER, kid="rsa"), sign(claims(exp=1)), encode_token(claims())):
            with suppress(TokenRefused):
                world.check(tokens, token)
            assert all(piece not in caplog.text for piece in token.split(".") if len(piece) > 20)


_PARTS = st.one_of(
    st.binary(max_size=200).map(part),
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "exp"]), st.text() | st.none()).map(
        part
    ),
    st.sampled_from([*sign().split("."), part({"alg": "none"}), part({"alg": "RS256"}), "", "=", "é"]),
)


@settings(deadline=None)
@given(token=st.lists(_PARTS, max_size=5).map(".".join) | st.text(max_size=300))
def test_random_tokens_are_refused_unless_equal_to_the_signed_one(token):
    site = Site()
    site.is_slow = True
    world = World(site)
    tokens = world.tokens()
    site.content, world.jwks._keys = None, jwks.parse_keys(key_set(RSA, EC))
    outcome = world.begin(tokens, token)
    world.rest(TIMEOUT_S * 1000)
    (found,) = outcome
    assert world.bugs == []
    assert isinstance(found, TokenRefused) or token == sign()
