"""API versions of Kafka, by release. pure

Source: `ApiKeys` in the `kafka-clients` jar of the last patch of each release: the highest version that is not marked
as unstable, of every API that Ottla serves.
"""

from functools import cache
from typing import Final

_RAISED: Final = {
    "0.11.0": (
        "0:3 1:5 2:2 3:4 8:3 9:3 10:1 11:2 12:1 13:1 14:1 15:1 16:1 17:0 18:1 19:2 20:1 21:0 22:0 23:0 24:0 "
        "25:0 26:0 27:0 28:0 29:0 30:0 31:0 32:0 33:0"
    ),
    "1.0": "0:5 1:6 3:5 17:1 34:0 35:0 36:0 37:0",
    "1.1": "1:7 32:1 42:0",
    "2.0": (
        "0:6 1:8 2:3 3:6 8:4 9:4 10:2 11:3 12:2 13:2 14:2 15:2 16:2 18:2 19:3 20:2 21:1 22:1 23:1 24:1 "
        "25:1 26:1 28:1 29:1 30:1 31:1 32:2 33:1 34:1 35:1 37:1 42:1"
    ),
    "2.1": "0:7 1:10 2:4 3:7 8:6 9:5 20:3 23:2 28:2",
    "2.2": "2:5 11:4 36:1 43:0",
    "2.3": "1:11 3:8 8:7 11:5 12:3 14:3 15:3 23:3 44:0",
    "2.4": "0:8 3:9 8:8 9:6 10:3 11:6 12:4 13:4 14:4 15:5 16:3 18:3 19:5 20:4 22:2 42:2 43:2 44:1 45:0 46:0 47:0",
    "2.5": "9:7 11:7 14:5 22:3 28:3 29:2 30:2 31:2 36:2 37:2",
    "2.6": "16:4 21:2 32:3 35:2 48:0 49:0",
    "2.7": "1:12 19:6 20:5 22:4 24:2 25:2 26:2 37:3 50:0 51:0 55:0 57:0",
    "2.8": "0:9 2:6 3:11 19:7 20:6 23:4 24:3 25:3 26:3 27:1 32:4 33:2 34:2 60:0 61:0 48:1 49:1",
    "3.0": "2:7 9:8 10:4 65:0 66:0",
    "3.1": "1:13 3:12",
    "3.2": "11:9 13:5 35:3",
    "3.3": "29:3 30:3 31:3 35:4 55:1 57:1",
    "3.4": "",
    "3.5": "1:15 2:8",
    "3.6": "24:4",
    "3.7": "0:10 1:16 8:9 9:9 60:1 68:0 74:0",
    "3.8": "0:11 10:5 16:5 22:5 24:5 25:4 26:4 28:4 66:1 69:0 75:0",
    "3.9": "1:17 2:9 10:6 18:4 55:2",
    "4.0": "0:12 2:10 3:13 15:6 26:5 28:5 57:2 60:2 68:1 69:1",
    "4.1": "0:13 1:18 45:1 66:2 74:1",
    "4.2": "2:11 8:10 9:10 27:2",
    "4.3": "35:5",
    "4.4": "18:5 28:6 42:3",
}
"""For each release: the APIs that it added or raised, each as `key:highest`."""
_FIRST_WITH_TRANSACTION_VERSION: Final = "4.0"


@cache
def latest_versions(release: str) -> dict[int, int]:
    """Return {API key: highest version} of a release such as 2.8. Raises ValueError for an unknown one."""
    release = _known(release)
    latest: dict[int, int] = {}
    for name, raised in _RAISED.items():
        for pair in raised.split():
            key, _, version = pair.partition(":")
            latest[int(key)] = int(version)
        if name == release:
            break
    return latest


def has_transaction_version(release: str) -> bool:
    """Return whether the release has the feature `transaction.version` (KIP-890)."""
    names = list(_RAISED)
    return names.index(_known(release)) >= names.index(_FIRST_WITH_TRANSACTION_VERSION)


def _known(release: str) -> str:
    """Return the release of a patch: 2.8 for 2.8.1."""
    name = release if release in _RAISED else release.rpartition(".")[0]
    if name not in _RAISED:
        raise ValueError(f"{release!r} is an unknown release; known are {', '.join(_RAISED)}")
    return name
