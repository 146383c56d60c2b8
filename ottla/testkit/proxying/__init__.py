"""A proxy between clients and any Kafka, with the journal and the request faults of an Ottla broker. shell

with ProxyServer("kafka:9092") as proxy:
    fault = proxy.plan.add(parse_fault({"at": "reply", "api": "EndTxn", "do": "drop"}))
    ... clients of proxy.bootstrap ...
    proxy.await_hits(fault)
"""

from ottla.testkit.proxying.server import ProxyServer

__all__ = ["ProxyServer"]
