"""Logging in with tokens on real sockets: an issuer's key set in a file and at a URL, and unsigned tokens."""

import contextlib
import http.server
import json
import sys
import threading
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

sys.path.insert(0, str(Path(__file__).parent))

from logged_in import Login, refusal
from served import serving

from ottla.cli.main import main

KEY = RSAKey.generate_key(2048, {"kid": "first"})
OTHER = RSAKey.generate_key(2048, {"kid": "second"})
INVALID = '{"status":"invalid_token"}'
ISSUER, AUDIENCE = "https://issuer.example", "ottla"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


def token(key=KEY, **changed):
    """Return a token that is valid for an hour from now on."""
    now_s = int(time.time())
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 3600} | changed
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


def key_set(*keys):
    return json.dumps(KeySet([*keys]).as_dict(private=False)).encode()


@contextlib.contextmanager
def serve_oauth(directory, *flags):
    """Yield the address of a listener that accepts tokens."""
    fixed = ("listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=OAUTHBEARER")
    with serving(directory, 1, *fixed, *flags) as ((_, _, port),):
        yield f"127.0.0.1:{port}"


def checked_with(url):
    return (
        f"sasl.oauthbearer.jwks.endpoint.url={url}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("oauth")


@pytest.fixture(scope="module")
def address(directory):
    file = directory / "keys.json"
    file.write_bytes(key_set(KEY))
    with serve_oauth(directory, *checked_with(file.as_uri())) as address:
        yield address


def with_token(made):
    return Login("OAUTHBEARER", token=lambda: made)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [token(aud="other"), token(iss="other"), token(OTHER)],
    ids=["of another audience", "of another issuer", "by another key"],
)
def test_an_invalid_token_is_refused_and_never_logged(address, directory, made):
    assert refusal(address, with_token(made)) == INVALID
    log = (directory / "log").read_text()
    assert "the token is refused" in log
    assert all(piece not in log for piece in made.split(".") if len(piece) > 20)


@pytest.mark.slow
def test_keys_at_a_url_may_be_published_late_and_replaced(tmp_path):
    content = [b"not yet"]

    class Keys(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content[0])

        def log_message(self, *about):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Keys) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        often = [f"sasl.oauthbearer.jwks.endpoint.{name}=50" for name in ("refresh.ms", "retry.backoff.ms")]
        try:
            with serve_oauth(tmp_path, *checked_with(url), *often) as address:
                assert refusal(address, with_token(token())) == INVALID
                for key in (KEY, OTHER):
                    content[0] = key_set(key)
                    until_let_in(address, token(key))
        finally:
            server.shutdown()
            thread.join()


def until_let_in(address, made):
    """Log in as soon as the broker has the keys."""
    for _ in range(600):
        if not refusal(address, with_token(made)):
            return
        time.sleep(0.05)
    raise AssertionError("nobody is let in")


@pytest.mark.slow
def test_unsigned_tokens_are_accepted_only_with_their_option(tmp_path, address):
    parts = (b'{"alg":"none"}', b'{"sub":"alice","exp":%d}' % (time.time() + 3600), b"")
    made = ".".join(urlsafe_b64encode(each).decode().rstrip("=") for each in parts)
    assert refusal(address, with_token(made)) == INVALID
    key = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    with serve_oauth(tmp_path, f"{key}={UNSECURED}") as unsecured:
        assert refusal(unsecured, with_token(made)) == ""
    assert "as any user" in (tmp_path / "log").read_text()


def client_properties(directory, *lines):
    path = directory / "client.properties"
    path.write_text("\n".join(["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", *lines]))
    return path


def ask_orphans(address, path):
    return CliRunner().invoke(main, ["txn", "orphans", "-b", address, "--command-config", str(path)])


@pytest.mark.parametrize(
    "line", ["sasl.oauthbearer.token.command=cat {file}", "sasl.oauthbearer.token.endpoint.url={uri}"]
)
def test_a_command_logs_in_with_a_token(address, tmp_path, line):
    file = tmp_path / "token"
    path = client_properties(tmp_path, line.format(file=file, uri=file.as_uri()))
    file.write_text(token() + "\n")
    assert ask_orphans(address, path).exit_code == 0
    file.write_text(token(OTHER) + "\n")
    told = ask_orphans(address, path)
    assert told.exit_code == 2 and INVALID in told.stderr
    assert all(part not in told.output for part in file.read_text().split(".") if len(part) > 20)
    file.write_text("")
    told = ask_orphans(address, path)
    assert told.exit_code == 2 and "has no token" in told.stderr and len(told.stderr.splitlines()) == 1
