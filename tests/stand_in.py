"""A broker for one handler: what every request goes through, and beside it the parts that a test names."""

from types import SimpleNamespace

from ottla.broker.metrics import Metrics
from ottla.broker.tap import Tap


def broker_of(**parts):
    """Nobody watches it, unless the test says so."""
    return SimpleNamespace(
        **{"metrics": Metrics(), "events": None, "tap": Tap(), "authorizer": None, "may": lambda *_: True} | parts
    )
