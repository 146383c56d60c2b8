"""Visits of hostile clients at a broker's listeners: each visit is drawn from its number and can be repeated by it."""

import random
import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import NamedTuple

from tests.fuzz_surface import frames

EVENT_TIMEOUT_S = 60.0
"""Timeout for answers that a broker must send."""
HASTE_S = 2.0
"""Timeout for the rest of a handshake: after a corrupted flight there may be no answer."""
LOOK_S = 0.3
"""Timeout for optional answers."""
FORBIDDEN = "fuzz-made-this"
"""A topic that no visit may create."""


class Door(NamedTuple):
    """A listener."""

    name: str
    port: int

    @property
    def is_encrypted(self):
        return self.name in ("SSL", "SASL_SSL")

    @property
    def asks_who(self):
        return self.name.startswith("SASL")


class Visit:
    """A hostile client at a listener."""

    def __init__(self, seed, number, doors):
        self.chance = random.Random(f"{seed}-{number}")
        self.door = self.chance.choice(doors)
        self.kind = self.chance.choice(KINDS_OF_TLS if self.door.is_encrypted else KINDS)
        # Other addresses than 127.0.0.1 where the system has them, because limits and log lines are per address.
        self.source = f"127.0.0.{self.chance.randrange(1, 255)}"

    def play(self, held):
        """Run the visit; add a connection that stays open to `held`."""
        with suppress(OSError):  # so it is for who is shown the door, TLS's own errors among them
            self.connection = self._connect()
            self.connection.settimeout(HASTE_S)
            try:
                self.kind(self, self.connection)
            finally:
                self._leave(held)

    def _connect(self):
        try:
            return socket.create_connection(("127.0.0.1", self.door.port), EVENT_TIMEOUT_S, (self.source, 0))
        except OSError:
            return socket.create_connection(("127.0.0.1", self.door.port), EVENT_TIMEOUT_S)

    def _leave(self, held):
        how = self.chance.randrange(10)
        if how == 0:
            held.append(self.connection)
        else:
            if how == 1:  # without a word of goodbye
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def secure(self, connection):
        """Return the same connection, with TLS if the listener has it."""
        if not self.door.is_encrypted:
            return connection
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.chance.random() < 0.3:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.connection = context.wrap_socket(connection, server_hostname="localhost")
        return self.connection

    def send(self, connection, data):
        """Send the data whole or in pieces."""
        if self.chance.random() < 0.2 and data:
            at = self.chance.randrange(len(data))
            connection.sendall(data[:at])
            time.sleep(0.001)
            data = data[at:]
        connection.sendall(data)

    def look(self, connection):
        """Return the bytes that arrive soon."""
        connection.settimeout(LOOK_S)
        try:
            return connection.recv(65_536)
        except (TimeoutError, ConnectionError):
            return b""
        finally:
            connection.settimeout(HASTE_S)


def garbage(visit, connection):
    connection = visit.secure(connection)
    visit.send(connection, visit.chance.randbytes(visit.chance.choice((1, 3, 4, 5, 100, 5_000, 200_000))))
    visit.look(connection)


def spoiled_frames(visit, connection):
    """Send requests that are almost valid, some after valid ones."""
    chance, connection = visit.chance, visit.secure(connection)
    for _ in range(chance.choice((1, 1, 2, 5))):
        sound = chance.choice(
            [
                frames.api_versions(chance.randrange(6)),
                frames.handshake(chance.choice((*frames.MECHANISMS, "GSSAPI", "", "x" * 30_000)), chance.randrange(3)),
                frames.authenticate(frames.first_token(chance, chance.choice(frames.MECHANISMS)), chance.randrange(4)),
                frames.encode(frames.header(chance.randrange(-2, 95), chance.randrange(-1, 20), chance.random() < 0.5)),
            ]
        )
        visit.send(connection, frames.spoil_bytes(chance, sound) if chance.random() < 0.8 else sound)
    visit.look(connection)


def before_login(visit, connection):
    """Send requests that need a login; on listeners without SASL, send a login."""
    connection = visit.secure(connection)
    if visit.door.asks_who:
        asked = [frames.metadata(FORBIDDEN), frames.produce(FORBIDDEN)]
        visit.send(connection, visit.chance.choice(asked))
        visit.send(connection, frames.api_versions() + visit.chance.choice(asked))
        if visit.chance.random() < 0.5:
            visit.send(connection, frames.handshake("PLAIN") + visit.chance.choice(asked))
    else:
        visit.send(connection, frames.handshake("PLAIN") + frames.authenticate(frames.plain_login()))
    visit.look(connection)


def wrong_login(visit, connection):
    """Send steps of a login, valid ones and others, in frames or as raw tokens."""
    chance, connection = visit.chance, visit.secure(connection)
    mechanism, version = chance.choice(frames.MECHANISMS), chance.choice((0, 1, 1))
    visit.send(connection, frames.handshake(mechanism, version))
    if len(visit.look(connection)) < 10:
        return
    wrap = frames.encode if version == 0 else lambda token: frames.authenticate(token, chance.randrange(3))
    token = frames.first_token(chance, mechanism)
    if frames.PASSWORD.encode() in token:
        token = token.replace(frames.PASSWORD.encode(), b"guess")
    visit.send(connection, wrap(frames.spoil_bytes(chance, token) if chance.random() < 0.3 else token))
    told = visit.look(connection)
    at = told.find(b"r=")
    if at >= 0:
        visit.send(connection, wrap(frames.second_token(chance, told[at:])))
        visit.look(connection)
    visit.send(connection, frames.metadata(FORBIDDEN) if visit.door.asks_who else frames.api_versions())
    visit.look(connection)


def login_cut(visit, connection):
    """Send a valid login without its end, or one that starts again in the middle."""
    chance, connection = visit.chance, visit.secure(connection)
    sound = frames.handshake("PLAIN") + frames.authenticate(frames.plain_login(password="guess"))
    cut = sound[: chance.randrange(len(sound))]
    visit.send(connection, cut + (sound if chance.random() < 0.5 else b""))
    visit.look(connection)


def spoiled_hello(visit, connection):
    """Begin TLS with a corrupted hello, on plain listeners too."""
    hello = frames.hello(visit.chance)
    visit.send(connection, frames.spoil_bytes(visit.chance, hello) if visit.chance.random() < 0.8 else hello)
    visit.look(connection)


def spoiled_flight(visit, connection):
    """A TLS handshake of which a later flight is wrong, or what comes behind it is none of TLS."""
    chance = visit.chance
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if chance.random() < 0.5:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    wrong, is_done = chance.randrange(1, 4), False
    for flight in range(4):
        try:
            wrapped.do_handshake()
            is_done = True
        except ssl.SSLWantReadError:
            pass
        data = outgoing.read()
        if data:
            visit.send(connection, frames.spoil_bytes(chance, data) if flight == wrong else data)
        if is_done:
            break
        incoming.write(connection.recv(65_536))
    if is_done:
        wrapped.write(frames.api_versions())
        visit.send(connection, frames.spoil_bytes(chance, outgoing.read()))
    visit.look(connection)


def silence(visit, connection):
    """Send nothing, or the first byte of a message."""
    if visit.chance.random() < 0.5:
        first = frames.hello(visit.chance) if visit.door.is_encrypted else frames.api_versions()
        connection.sendall(first[:1])


def much_at_once(visit, connection):
    """Send many valid requests without reading the answers."""
    connection = visit.secure(connection)
    connection.settimeout(LOOK_S)
    with suppress(TimeoutError):
        connection.sendall(frames.api_versions(visit.chance.randrange(4)) * visit.chance.choice((10, 500)))


KINDS = (
    *(garbage, spoiled_frames, spoiled_frames, before_login, wrong_login, wrong_login),
    *(login_cut, silence, much_at_once, spoiled_hello),
)
KINDS_OF_TLS = (*KINDS, spoiled_hello, spoiled_flight, spoiled_flight)
