"""A broker for one handler: the parts that every request uses, and the parts that a test names."""

from types import SimpleNamespace

from ottla.broker.metrics import Metrics
from ottla.broker.request_observer import RequestObserver
from ottla.protocol.errors import ErrorCode


def broker_of(**parts):
    """Return the only broker of a cluster with these parts, without an event listener by default."""
    broker = SimpleNamespace(
        **{"metrics": Metrics(), "events": None, "tap": RequestObserver(), "authorizer": None, "may": lambda *_: True}
        | {"links": None, "id_blocks": None, "metadata": parts.get("cluster")}
        | parts
    )
    broker.brokers = (broker,)
    broker.endpoints_of = lambda _listener: []
    broker.coordinator_of = lambda _key: (broker, ErrorCode.NONE)
    broker.find_coordinator = lambda _topic, _key: broker
    return broker
