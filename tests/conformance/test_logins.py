"""Kafka's own tools make users and log in, by each mechanism, to our broker."""

import json
import sys
import time

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from targets import Ottla, run_tool

SECURITY = "org.apache.kafka.common.security"
OAUTH = f"{SECURITY}.oauthbearer"
ISSUER, AUDIENCE = "https://issuer.example", "ottla"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
KEY = RSAKey.generate_key(2048, {"kid": "one"})


class Secured(Ottla):
    """Ours, with a listener for logins and one without them."""

    def command(self):
        flags = [part for key, value in self.overrides.items() for part in ("--override", f"{key}={value}")]
        files = ["--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file)]
        return [sys.executable, "-m", "ottla.cli.main", "serve", *files, *flags]

    def is_ready(self):
        if not self.ready_file.exists() or self.ready_file.read_text().count("\n") < 2:
            return False
        lines = [line.removeprefix("ready ").split("://") for line in self.ready_file.read_text().split("\n")[:2]]
        self.addresses = dict(lines)
        return True


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("logins")
    keys = directory / "keys.json"

    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{SECURITY}.plain.PlainLoginModule required "
        'user_alice="in wonderland";',
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    made = Secured(directory, options).start()
    yield made
    made.stop()


def tool(name, *options, jvm=()):
    """(its exit code, its output)."""
    done = run_tool(name, *options, jvm=jvm)
    return done.returncode, done.stdout + done.stderr


def with_password(module, password):
    return f'{SECURITY}.{module} required username="alice" password="{password}";'


@pytest.fixture(scope="module")
def users(broker):
    """Alice, by both mechanisms; each in a command of its own, for Kafka alters a user once in a request."""
    where = ("--bootstrap-server", broker.addresses["PLAINTEXT"], "--entity-type", "users", "--entity-name", "alice")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        code, said = tool(
            "kafka.admin.ConfigCommand", *where, "--alter", "--add-config", f"{mechanism}=[password=in wonderland]"
        )
        assert code == 0 and "Completed updating config for user alice." in said, said
    both = "SCRAM-SHA-256=[iterations=8192,password=x],SCRAM-SHA-512=[password=x]"
    code, said = tool("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", both)
    assert "A user credential cannot be altered twice in the same request" in said


def client_properties(mechanism, directory, password):
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}"]
    if mechanism == "OAUTHBEARER":
        now_s = int(time.time())
        claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 3600}
        key = KEY if password == "in wonderland" else RSAKey.generate_key(2048, {"kid": "one"})
        token = directory / f"token-{mechanism}"
        token.write_text(jwt.encode({"alg": "RS256", "kid": "one"}, claims, key))
        lines += [
            f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}",
            f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required ;",
        ]
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        lines.append(f"sasl.jaas.config={with_password(module, password)}")
    file = directory / f"client-{mechanism}.properties"
    file.write_text("\n".join(lines) + "\n")
    return file


def make_topic(broker, mechanism, directory, password):
    file = client_properties(mechanism, directory, password)
    topic = f"made-by-{mechanism.lower()}"
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(directory / f'token-{mechanism}').as_uri()}"
    code, said = tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", broker.addresses["SASL_PLAINTEXT"], "--command-config", str(file)),
        *("--create", "--topic", topic),
        jvm=(allowed,),
    )
    return code, said, f"Created topic {topic}."


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_java_client_logs_in(broker, users, mechanism, tmp_path):
    code, said, created = make_topic(broker, mechanism, tmp_path, "in wonderland")
    assert code == 0 and created in said, said


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_java_client_reports_why_its_login_failed(broker, users, mechanism, tmp_path):
    _, said, created = make_topic(broker, mechanism, tmp_path, "wrong")
    why = {"PLAIN": "Invalid username or password", "OAUTHBEARER": '{"status":"invalid_token"}'}
    assert created not in said and "SaslAuthenticationException" in said
    assert why.get(mechanism, f"due to invalid credentials with SASL mechanism {mechanism}") in said


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_configs_describes_users_and_takes_them_away(broker):
    def configs(*options):
        where = ("--bootstrap-server", broker.addresses["PLAINTEXT"], "--entity-type", "users", "--entity-name", "bob")
        code, said = tool("kafka.admin.ConfigCommand", *where, *options)
        assert code == 0, said
        return said

    configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
    told = configs("--describe")
    assert "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192" in told
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in configs("--describe")
