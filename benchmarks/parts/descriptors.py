"""How many descriptors this process and the brokers that it starts may have open. shell"""

import resource

from ottla.broker.ports.descriptors import connection_share

# What this process has open besides connections.
OTHERS = 100


def all_descriptors() -> None:
    """As many descriptors for this process as the system allows it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def room_for_connections() -> int:
    """How many connections this process can have open to one broker of ours, which keeps some for its logs."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(limit, connection_share(limit)) - OTHERS
