"""`super.users`: principals that may do everything. pure"""

from typing import Final

RANGE: Final = "TYPE:NAME (usually User:NAME), semicolon separated"


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals, as TYPE:NAME. The ValueError has the allowed form of the text.

    A name may hold commas and colons, as those of certificates do. Source: `StandardAuthorizer.getConfiguredSuperUsers`
    and `SecurityUtils.parseKafkaPrincipal` of Kafka 4.3.1.
    """
    found = [part.strip() for part in text.split(";") if part.strip()]
    if any(not all(part.partition(":")[::2]) for part in found):
        raise ValueError(RANGE)
    return frozenset(found)
