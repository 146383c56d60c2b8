"""Check PLAIN passwords against the SCRAM credentials in the metadata, so that no password is stored. pure

Salting a password takes thousands of hashes and some milliseconds. It runs in a thread, one password after the other:
a flood of logins takes one processor at most. An unknown name costs as much as a known one.
"""

from hashlib import pbkdf2_hmac
from typing import Final

from ottla.broker.ports.web import Web
from ottla.broker.security.scram import ScramMechanism, ScramUsers, is_made_of
from ottla.broker.turns import Gate, Turns, Wait
from ottla.protocol.internal_topics.security_records import UserScramCredentialRecord

_STRONGEST_FIRST: Final = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)


class HashedPasswords:
    """Checker of PLAIN passwords against SCRAM credentials."""

    def __init__(self, users: ScramUsers, turns: Turns, elsewhere: Web) -> None:
        self._users = users
        self._turns = turns
        self._elsewhere = elsewhere
        self._gate = Gate()

    async def problem(self, name: str, password: str) -> str:
        """Return the reason why this name and password are refused, for the log; an empty string if they are right."""
        mechanism = next((each for each in _STRONGEST_FIRST if self._users.has(name, each)), _STRONGEST_FIRST[0])
        credential, is_known = self._users.find(name, mechanism)
        is_right = await self._is_right(mechanism, credential, password.encode())
        if not is_known:
            return "no user has this name"
        return "" if is_right else "the password is wrong"

    async def _is_right(self, mechanism: ScramMechanism, credential: UserScramCredentialRecord, given: bytes) -> bool:
        await self._gate.enter(self._turns)
        wait: Wait[tuple[bool | None, Exception | None]] = Wait(self._turns)

        def salt() -> bool:
            salted = pbkdf2_hmac(mechanism.hash_name, given, credential.salt, credential.iterations)
            return is_made_of(mechanism, credential, salted)

        def on_end(is_right: bool | None, failure: Exception | None) -> None:
            self._gate.leave()  # also if the client has disconnected meanwhile
            wait.wake((is_right, failure))

        self._elsewhere.start(salt, on_end)
        is_right, failure = await wait
        if failure is not None:
            raise failure
        return bool(is_right)
