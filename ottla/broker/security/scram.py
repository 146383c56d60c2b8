"""SASL/SCRAM-SHA-256 and -512: a password is proved and never sent. pure

Source: RFC 5802 and 7677, `ScramSaslServer`, `ScramFormatter` and `ScramMessages` of Kafka 4.3.1. An unknown name gets
the same answers as a known one until the end of the login, so a client cannot find out which names exist. Kafka ends
such a login at its first message. Also stricter than Kafka: `m=` is refused, and the channel binding of the last
message must equal that of the first, as the RFC requires.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

from ottla.broker.config.scram import ScramUser
from ottla.broker.security.mechanism import SaslFailed, SaslServer
from ottla.protocol.internal_topics.security_records import UserScramCredentialRecord

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384


class ScramMechanism(IntEnum):
    """Mechanisms, with their numbers in records and requests."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """Name of the mechanism in SASL."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """Name of the hash in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def hash_bytes(self) -> int:
        """Length of the keys in bytes."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


SCRAM_MECHANISMS: Final = frozenset(ScramMechanism)
BY_NAME: Final = {each.mechanism_name: each for each in ScramMechanism}

_TOKEN_BYTES_MOST: Final = 4_096
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = "(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = f"(?:,[A-Za-z]+={_VALUE})*"
_FIRST: Final = re.compile(
    f"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    f"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL: Final = re.compile(
    f"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_TOKEN_AUTHENTICATION: Final = "tokenauth"
_NEVER: Final = re.compile(r"[^\x01-\x7f]")
_NONCE_BYTES: Final = 24
_SAMPLED: Final = 1_000
"""Number of credentials that determine the form of the fake ones."""
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def name_can_log_in(name: str) -> bool:
    """Return whether a client can send this name: messages of Kafka's SCRAM are ASCII without NUL."""
    return name != "" and _NEVER.search(name) is None


def credential(
    name: str, mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return the credential record of a password. It can check a proof, but not make one."""
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = _hmac(mechanism, salted_password, b"Server Key")
    return UserScramCredentialRecord(name, mechanism, salt, stored_key, server_key, iterations)


def user_record(user: ScramUser, new_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """Return the record of a user with which a new data directory begins; hashing a password takes some 3 ms.

    Source: `ScramParser.PerMechanismData.toRecord`.
    """
    mechanism = BY_NAME[user.mechanism]
    salt = user.salt or new_salt()
    salted = user.salted_password
    if salted is None:
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, (user.password or "").encode(), salt, user.iterations)
    return credential(user.name, mechanism, salt, salted, user.iterations)


def is_made_of(mechanism: ScramMechanism, kept: UserScramCredentialRecord, salted_password: bytes) -> bool:
    """Return whether the stored credential was made from this password."""
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    return hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), kept.stored_key)


class _FakeForm(NamedTuple):
    """The form of a mechanism's credentials, for the fake credentials of unknown names."""

    iterations: int
    salt_bytes: int
    salt_is_text: bool
    secret: bytes


class ScramUsers:
    """The credentials of a broker, by (name, mechanism), and fake credentials for unknown names."""

    def __init__(
        self, by_name: Mapping[tuple[str, int], UserScramCredentialRecord], random_bytes: Callable[[int], bytes]
    ) -> None:
        self._by_name = by_name
        self._forms: dict[ScramMechanism, _FakeForm] = {}
        self._own_secret = random_bytes(32)
        self.random_bytes = random_bytes

    def apply_changes(self, records: Sequence[object]) -> None:
        """Handle a change of credentials or other security records."""
        self._forms.clear()

    def has(self, name: str, mechanism: ScramMechanism) -> bool:
        """Return whether a credential of this name exists."""
        return (name, mechanism) in self._by_name

    def find(self, name: str, mechanism: ScramMechanism) -> tuple[UserScramCredentialRecord, bool]:
        """Return the credential of a name and True, or a fake one and False.

        The fake one is always the same for a name, and no client can log in with it.
        """
        known = self._by_name.get((name, mechanism))
        form = self._forms.get(mechanism)
        if form is None:
            form = self._forms[mechanism] = self._form_of(mechanism)
        made_up = _fake_credential(name, mechanism, form)
        return (made_up, False) if known is None else (known, True)

    def _form_of(self, mechanism: ScramMechanism) -> _FakeForm:
        some = [each for each in islice(self._by_name.values(), _SAMPLED) if each.mechanism == mechanism]
        if not some:
            return _FakeForm(MIN_ITERATIONS, 26, True, self._own_secret)
        shapes = Counter((each.iterations, len(each.salt), _is_text(each.salt)) for each in some)
        (shape, _), *_ = shapes.most_common(1)
        # A secret that is the same after a restart: a salt that changes would reveal a fake credential.
        return _FakeForm(*shape, some[0].server_key)


def _is_text(salt: bytes) -> bool:
    return all(byte in _DIGITS for byte in salt)


def _fake_credential(name: str, mechanism: ScramMechanism, form: _FakeForm) -> UserScramCredentialRecord:
    stream = hashlib.shake_256(form.secret + mechanism.mechanism_name.encode() + b"\0" + name.encode())
    length = mechanism.hash_bytes
    made = stream.digest(form.salt_bytes + 2 * length)
    salt, stored_key, server_key = made[: -2 * length], made[-2 * length : -length], made[-length:]
    if form.salt_is_text:
        salt = bytes(_DIGITS[byte % len(_DIGITS)] for byte in salt)
    return UserScramCredentialRecord(name, mechanism, salt, stored_key, server_key, form.iterations)


class _Begun(NamedTuple):
    """Login whose client has not sent its proof yet."""

    name: str
    credential: UserScramCredentialRecord
    refused: str
    gs2_header: str
    nonce: str
    first: str
    """Client's first message, in the form that both sides sign."""
    answer: str


class ScramServer(SaslServer):
    """The broker's side of one SCRAM login."""

    __slots__ = ("_begun", "_mechanism", "_users")

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers) -> None:
        super().__init__()
        self._mechanism = mechanism
        self._users = users
        self._begun: _Begun | None = None

    async def evaluate(self, token: bytes) -> bytes:
        """Return the broker's first message, then its last. Raises SaslFailed."""
        if len(token) > _TOKEN_BYTES_MOST:
            raise SaslFailed(f"a SCRAM message of {len(token)} bytes; at most {_TOKEN_BYTES_MOST} are allowed")
        message = token.decode(errors="replace")
        begun, self._begun = self._begun, None
        if begun is None:
            self._begun = self._first(message)
            return self._begun.answer.encode()
        return self._final(message, begun)

    def _first(self, message: str) -> _Begun:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise SaslFailed("the first message is not a SCRAM message without channel binding")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["authzid"] is not None and found["authzid"] != found["name"]:
            reason = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslFailed(reason, reason)
        if f",{_TOKEN_AUTHENTICATION}=true" in f"{found['extensions']},".lower():
            raise SaslFailed("the client logs in with a delegation token, which Ottla does not support")
        credential, is_known = self._users.find(name, self._mechanism)
        refused = "" if is_known else "no user has this name"
        if credential.iterations < MIN_ITERATIONS:
            refused = f"the credential has {credential.iterations} iterations, which are too few"
        nonce = found["nonce"] + b64encode(self._users.random_bytes(_NONCE_BYTES)).decode()
        answer = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        return _Begun(name, credential, refused, found["gs2"], nonce, found["bare"], answer)

    def _final(self, message: str, begun: _Begun) -> bytes:
        found = _FINAL.fullmatch(message)
        if found is None:
            raise SaslFailed(f"{self._about(begun)}: the last message is not a SCRAM message")
        signed = f"{begun.first},{begun.answer},{found['without_proof']}".encode()
        signature = _hmac(self._mechanism, begun.credential.stored_key, signed)
        client_key = _xor(signature, b64decode(found["proof"]))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        is_proved = hmac.compare_digest(stored_key, begun.credential.stored_key)
        verifier = _hmac(self._mechanism, begun.credential.server_key, signed)
        if found["nonce"] != begun.nonce:
            raise SaslFailed(f"{self._about(begun)}: the nonce of the last message is not that of the first")
        if b64decode(found["channel"]) != begun.gs2_header.encode():
            raise SaslFailed(f"{self._about(begun)}: the channel binding of the last message is not that of the first")
        if begun.refused or not is_proved:
            raise SaslFailed(f"{self._about(begun)}: {begun.refused or 'the password is wrong'}")
        self.name = begun.name
        self.complete = True
        return b"v=" + b64encode(verifier)

    def _about(self, begun: _Begun) -> str:
        return f"{self._mechanism.mechanism_name} as {begun.name!r}"


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _xor(signature: bytes, proof: bytes) -> bytes:
    """Return the XOR of two texts of equal length; an empty key if the lengths differ."""
    if len(signature) != len(proof):
        return b""
    return bytes(left ^ right for left, right in zip(signature, proof, strict=True))
