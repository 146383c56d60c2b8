"""A broker in memory with a listener where clients log in, and a client there that says what it wants. free"""

from lab.simulation.network import Link
from ottla.broker.config import Listener
from ottla.broker.connection import LINGER_MS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

NAME = "SASL_PLAINTEXT"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="in wonderland" user_bob="b";'
ALICE = b"\0alice\0in wonderland"
BOB = b"\0bob\0b"
WRONG = b"\0alice\0hunter2"
DELAY_MS = 100.0
"""`connection.failed.authentication.delay.ms`."""
REFUSED_MS = DELAY_MS + LINGER_MS + 100
"""After this time the broker has answered and closed a connection whose login failed."""


def lone_with_logins(own=(), **options):
    """Return a broker with that listener; `own` are options of the listener alone."""
    return MemoryBroker(
        listeners=(Listener(NAME, "127.0.0.1", 9092),),
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        listener_options={NAME: {"plain.sasl.jaas.config": JAAS, **dict(own)}},
        **options,
    )


class Guest:
    """A connection without a login that receives whole frames."""

    def __init__(self, broker, listener=NAME):
        self.broker = broker
        self.closed = False
        self.connection = broker.assembly.accept(listener_name=listener)
        self._received = b""
        self._link = Link(broker, self, self.connection, "guest")

    # What a link asks of its client.

    def on_data(self, link, data):
        self._received += data

    def lost(self, link):
        self.closed = True

    # What tests use.

    @property
    def principal(self):
        return self.connection.session.principal

    def frames(self):
        """Return the received frames without their sizes, and remove them."""
        found = []
        while len(self._received) >= 4 and len(self._received) >= (end := 4 + int.from_bytes(self._received[:4])):
            found.append(self._received[4:end])
            self._received = self._received[end:]
        return found

    def send(self, data, for_ms=1.0):
        """Send bytes and let the broker run for that time."""
        self._link.send(data)
        self.broker.advance(for_ms)
        return self.frames()

    def frame(self, token, for_ms=1.0):
        """Send a frame that may be no request."""
        return self.send(len(token).to_bytes(4, "big") + token, for_ms)

    def ask(self, api_key, version, for_ms=1.0, **fields):
        """Send a request and return the response, or None."""
        asked = codec.encode_request(message(api_key, version, **fields), version, 1, "client")
        frames = self.send(asked, for_ms)
        return codec.decode_response(api_key, version, frames[0])[1] if frames else None

    def versions(self, version=3):
        """Ask for the API versions."""
        software = {"client_software_name": "x", "client_software_version": "1"} if version >= 3 else {}
        return self.ask(ApiKey.API_VERSIONS, version, **software)

    def handshake(self, mechanism="PLAIN", version=1, **more):
        return self.ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism, **more)

    def token(self, token=ALICE, version=2, **more):
        return self.ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token, **more)

    def log_in(self, token=ALICE):
        """Log in and return whether it succeeded."""
        return self.handshake().error_code == 0 and self.token(token).error_code == 0

    def works(self):
        """Return whether the broker serves a Metadata request on this connection, as after a login."""
        return self.ask(ApiKey.METADATA, 5, topics=[], allow_auto_topic_creation=False) is not None
