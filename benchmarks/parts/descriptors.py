"""Limits of open file descriptors for this process and the brokers that it starts. shell"""

import resource

from ottla.broker.ports.descriptors import connection_share

# Descriptors that this process has open in addition to connections.
OTHERS = 100


def all_descriptors() -> None:
    """Raise this process's limit of descriptors to the system's hard limit."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def room_for_connections() -> int:
    """Return the connections that this process can have to one of our brokers, which keeps descriptors for its logs."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(limit, connection_share(limit)) - OTHERS
