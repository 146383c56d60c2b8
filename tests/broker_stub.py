"""A broker for one handler: the parts that every request uses, and the parts that a test names."""

from types import SimpleNamespace

from ottla.broker.metrics import Metrics
from ottla.broker.request_observer import RequestObserver


def broker_of(**parts):
    """Return a broker with these parts, without an event listener by default."""
    return SimpleNamespace(
        **{"metrics": Metrics(), "events": None, "tap": RequestObserver(), "authorizer": None, "may": lambda *_: True}
        | parts
    )
