"""The fixture `kafka_broker`, unless another plugin has a fixture of this name. free"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testkit.kit.broker import Broker


@pytest.fixture
def kafka_broker(ottla_broker: "Broker") -> "Broker":
    """Return the broker of this test: an alias of `ottla_broker`."""
    return ottla_broker
