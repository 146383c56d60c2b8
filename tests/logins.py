"""Every way into a broker: each listener protocol with each SASL mechanism, as options of clients and a broker."""

import json
import ssl
import time
from functools import cached_property
from typing import NamedTuple

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "in wonderland"
AUDIENCE, ISSUER = "ottla", "https://issuer.example"
MODULES = "org.apache.kafka.common.security."
_DAY_S = 86_400


class Way(NamedTuple):
    """A listener's protocol, and the mechanism if it asks for a login."""

    protocol: str
    mechanism: str = ""

    @property
    def name(self):
        return "-".join(filter(None, self)).lower().replace("_", "-")


WAYS = [
    Way("PLAINTEXT"),
    Way("SSL"),
    *(Way(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Keys:
    """The issuer's key, which signs tokens."""

    @cached_property
    def _key(self):
        from joserfc.jwk import RSAKey

        return RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})

    def jwks(self):
        """Return the key set by which a broker checks tokens."""
        return json.dumps({"keys": [self._key.as_dict(private=False)]})

    def token(self):
        from joserfc import jwt

        now_s = int(time.time())
        claims = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + _DAY_S, "scope": "all"}
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self._key)


def options(certificates, jwks_file):
    """Return the options of a broker with all ways in. Clients of a listener without SASL are ANONYMOUS."""
    found = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks_file}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{USER};User:ANONYMOUS",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        entry = f'{MODULES}plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        found[f"{prefix}.plain.sasl.jaas.config"] = entry
    return found


def of_kafka_python(way, address, certificates, keys):
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self):
            return keys.token()

    config = {"bootstrap_servers": address, "security_protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        config["ssl_cafile"] = certificates.ca
    if way.mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": way.mechanism, "sasl_oauth_token_provider": Provider()}
    elif way.mechanism:
        config |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD, "sasl_mechanism": way.mechanism}
    return config


def of_aiokafka(way, address, certificates, keys):
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self):
            return keys.token()

    config = {"bootstrap_servers": address, "security_protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        config["ssl_context"] = ssl.create_default_context(cafile=certificates.ca)
    if way.mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": way.mechanism, "sasl_oauth_token_provider": Provider()}
    elif way.mechanism:
        config |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD, "sasl_mechanism": way.mechanism}
    return config


def of_confluent(way, address, certificates, keys):
    config = {"bootstrap.servers": address, "security.protocol": way.protocol.lower()}
    if way.protocol.endswith("SSL"):
        config["ssl.ca.location"] = str(certificates.ca)
    if way.mechanism == "OAUTHBEARER":
        config |= {"sasl.mechanisms": way.mechanism, "oauth_cb": lambda _: (keys.token(), time.time() + _DAY_S)}
    elif way.mechanism:
        config |= {"sasl.mechanisms": way.mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return config


def of_java(way, certificates, token_file):
    """Return a Java client's options without the address. The JVM must be allowed to read the token's file."""
    config = {"security.protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.ca)}
    if way.mechanism:
        config["sasl.mechanism"] = way.mechanism
    login = f'username="{USER}" password="{PASSWORD}"'
    if way.mechanism == "OAUTHBEARER":
        module = f"{MODULES}oauthbearer.OAuthBearerLoginModule required;"
        handler = f"{MODULES}oauthbearer.OAuthBearerLoginCallbackHandler"
        retriever = f"{MODULES}oauthbearer.FileJwtRetriever"
        config |= {"sasl.jaas.config": module, "sasl.login.callback.handler.class": handler}
        config |= {
            "sasl.oauthbearer.jwt.retriever.class": retriever,
            "sasl.oauthbearer.token.endpoint.url": f"file://{token_file}",
        }
    elif way.mechanism == "PLAIN":
        config["sasl.jaas.config"] = f"{MODULES}plain.PlainLoginModule required {login};"
    elif way.mechanism:
        config["sasl.jaas.config"] = f"{MODULES}scram.ScramLoginModule required {login};"
    return config


def make_user(address):
    """Create the SCRAM user, through a client that has the right."""
    from kafka import KafkaAdminClient
    from kafka.admin import UserScramCredentialUpsertion

    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):  # a request may name a user once
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, mechanism, PASSWORD)])
    finally:
        admin.close()
