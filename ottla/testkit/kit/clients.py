"""Clients for a test: short timeouts, and closed behind it. free"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from ottla.testkit.kit.broker import Broker

CLIENTS: Final = ("kafka-python", "confluent-kafka")
_CLOSE_S: Final = 1.0


class Clients:
    """Makes clients of kafka-python, or of confluent-kafka with `client="confluent-kafka"`. What else is given is the
    library's own configuration, by its own names, and goes before the defaults."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._close: list[Callable[[], object]] = []

    def producer(self, *, client: str = CLIENTS[0], **config: Any) -> Any:
        """A producer; `acks` is all."""
        if _is_confluent(client):
            from confluent_kafka import Producer

            made = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0} | config)
            self._close.append(lambda: (made.purge(), made.flush(_CLOSE_S)))
            return made
        from kafka import KafkaProducer

        defaults = {"bootstrap_servers": self._broker.bootstrap, "acks": "all", "max_block_ms": 10_000}
        made = KafkaProducer(**defaults | config)
        self._close.append(lambda: made.close(timeout=_CLOSE_S))
        return made

    def transactional_producer(
        self, transactional_id: str | None = None, *, client: str = CLIENTS[0], **config: Any
    ) -> Any:
        """A producer that has been initialised for transactions, with this id or a fresh one."""
        transactional_id = transactional_id or f"transactional-id-{uuid4().hex[:12]}"
        if _is_confluent(client):
            made = self.producer(client=client, **{"transactional.id": transactional_id} | config)
            made.init_transactions(10)
        else:
            made = self.producer(client=client, transactional_id=transactional_id, **config)
            made.init_transactions()
        return made

    def consumer(self, *topics: str, client: str = CLIENTS[0], **config: Any) -> Any:
        """A read_committed consumer from the earliest offset, that commits nothing by itself."""
        if _is_confluent(client):
            from confluent_kafka import Consumer

            defaults: dict[str, Any] = {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": f"group-{uuid4().hex[:12]}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
            made = Consumer(defaults | config)
            self._close.append(made.close)
            if topics:
                made.subscribe(list(topics))
            return made
        from kafka import KafkaConsumer

        defaults = {
            "bootstrap_servers": self._broker.bootstrap,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "consumer_timeout_ms": 10_000,
        }
        made = KafkaConsumer(*topics, **defaults | config)
        self._close.append(lambda: made.close(timeout_ms=int(_CLOSE_S * 1000)))
        return made

    def close(self) -> None:
        """Close them all; what does not close in a second is left."""
        while self._close:
            with suppress(Exception):  # the broker may be gone, or the producer fenced
                self._close.pop()()


def _is_confluent(client: str) -> bool:
    if client not in CLIENTS:
        raise ValueError(f"client is {' or '.join(CLIENTS)}, not {client!r}")
    return client == CLIENTS[1]
