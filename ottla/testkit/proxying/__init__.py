"""A proxy that stands between clients and any Kafka: the same faults as inside our broker, and the same journal. shell

with ProxyServer("kafka:9092") as proxy:
    fault = proxy.plan.add(parse_fault({"at": "reply", "api": "EndTxn", "do": "drop"}))
    ... clients of proxy.bootstrap ...
    proxy.await_hits(fault)
"""

from ottla.testkit.proxying.server import ProxyServer

__all__ = ["ProxyServer"]
