"""The records of the users that a new data directory begins with. pure

Source: `ScramParser.PerMechanismData.toRecord` of Kafka 4.3.1.
"""

import hashlib
from collections.abc import Callable

from ottla.broker.config.scram import ScramUser
from ottla.broker.security.scram import BY_NAME, credential
from ottla.protocol.internal_topics.security_records import UserScramCredentialRecord


def user_record(user: ScramUser, new_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """Return the credential record of a user; hashing a password takes some 3 ms."""
    mechanism = BY_NAME[user.mechanism]
    salt = user.salt or new_salt()
    salted = user.salted_password
    if salted is None:
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, (user.password or "").encode(), salt, user.iterations)
    return credential(user.name, mechanism, salt, salted, user.iterations)
