"""What tests are made with: a broker for them and its faults, a simulation, a model, crash states, a checker. free

A simulation of the broker from seeds, a model of one transactional id, crash states of a log directory, the checker of
client histories, a second scanner of segment files that shares no code with the first, a proxy, and the greediest
requests that a schema allows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testkit.kit.own import OwnBroker


def broker(*, transaction_version: int | None = None, properties: Mapping[str, object] | None = None) -> "OwnBroker":
    """A broker process of one's own: `with ottla.testkit.broker() as broker:`, or `async with`.

    Its files are in a temporary directory and go with it. `properties` are those of server.properties.
    """
    from ottla.testkit.kit.own import OwnBroker

    return OwnBroker(transaction_version, properties)
