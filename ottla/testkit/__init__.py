"""The test kit: a broker for tests and its faults, a proxy, a corpus of logs, and the checker of histories. free

The checker reads segment files with a second scanner, which shares no code with `ottla.scan`. `in_memory` has a broker
without files and sockets.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testkit.kit.own import OwnBroker


def broker(
    *, transaction_version: int | None = None, properties: Mapping[str, object] | None = None, brokers: int = 1
) -> "OwnBroker":
    """Return a broker process: `with ottla.testkit.broker() as broker:`, or `async with`.

    Its files are in a temporary directory, which is deleted with it. `properties` are those of server.properties. With
    `brokers` above 1 it presents itself as so many brokers.
    """
    from ottla.testkit.kit.own import OwnBroker

    return OwnBroker(transaction_version, properties, brokers)
