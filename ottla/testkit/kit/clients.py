"""Clients for a test: short timeouts, and closed behind it. free"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import uuid4

from ottla.testkit.kit.awaited import CLOSE_S, AwaitedClient
from ottla.testkit.kit.broker import Broker

RECONNECT_MS: Final = 200
KAFKA_PYTHON: Final = "kafka-python"
CONFLUENT: Final = "confluent-kafka"
AIOKAFKA: Final = "aiokafka"
CLIENTS: Final = (KAFKA_PYTHON, CONFLUENT, AIOKAFKA)


class Clients:
    """Makes clients of kafka-python, or of confluent-kafka with `client="confluent-kafka"`; with `client="aiokafka"`
    one to be awaited (`AwaitedClient`). What else is given is the library's own configuration, by its own names, and
    goes before the defaults."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._close: list[Callable[[], object]] = []

    def producer(self, *, client: str = KAFKA_PYTHON, **config: Any) -> Any:
        """A producer; `acks` is all."""
        _check(client)
        if client == AIOKAFKA:
            return self._awaited("AIOKafkaProducer", {"acks": "all"} | config)
        if client == CONFLUENT:
            from confluent_kafka import Producer

            made = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0} | config)
            self._close.append(lambda: (made.purge(), made.flush(CLOSE_S)))
            return made
        from kafka import KafkaProducer

        defaults = {"acks": "all", "max_block_ms": 30_000} | self._kafka_python()
        made = KafkaProducer(**defaults | config)
        self._close.append(lambda: made.close(timeout=CLOSE_S))
        return made

    def transactional_producer(
        self, transactional_id: str | None = None, *, client: str = KAFKA_PYTHON, **config: Any
    ) -> Any:
        """A producer that has been initialised for transactions, with this id or a fresh one."""
        transactional_id = transactional_id or f"transactional-id-{uuid4().hex[:12]}"
        if client == CONFLUENT:
            made = self.producer(client=client, **{"transactional.id": transactional_id} | config)
            made.init_transactions(30)
            return made
        made = self.producer(client=client, transactional_id=transactional_id, **config)
        if client == KAFKA_PYTHON:  # that of aiokafka is initialised when it starts
            made.init_transactions()
        return made

    def consumer(self, *topics: str, client: str = KAFKA_PYTHON, **config: Any) -> Any:
        """A read_committed consumer from the earliest offset, that commits nothing by itself."""
        _check(client)
        if client == CONFLUENT:
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
        defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        if client == AIOKAFKA:
            return self._awaited("AIOKafkaConsumer", defaults | config, *topics)
        from kafka import KafkaConsumer

        defaults |= {"consumer_timeout_ms": 30_000} | self._kafka_python()
        if config.get("group_id") is None:
            # kafka-python 3.0.12 forgets a subscription that comes while a Metadata request is in flight, until it asks
            # again by itself, which is after five minutes. A member of a group is told by its rebalance.
            defaults["metadata_max_age_ms"] = 1_000
        made = KafkaConsumer(*topics, **defaults | config)
        self._close.append(lambda: made.close(timeout_ms=int(CLOSE_S * 1000)))
        return made

    def _kafka_python(self) -> dict[str, Any]:
        # The back-off doubles up to 30 s by default, so a client would miss a restart for as long as it took.
        return {"bootstrap_servers": self._broker.bootstrap, "reconnect_backoff_max_ms": RECONNECT_MS}

    def _awaited(self, name: str, config: dict[str, Any], *topics: str) -> AwaitedClient:
        import aiokafka

        make = partial(getattr(aiokafka, name), *topics, **{"bootstrap_servers": self._broker.bootstrap} | config)
        return AwaitedClient(make, self._close.append)

    def close(self) -> None:
        """Close them all; what does not close in a second is left."""
        while self._close:
            with suppress(Exception):  # the broker may be gone, or the producer fenced
                self._close.pop()()


def _check(client: str) -> None:
    if client not in CLIENTS:
        raise ValueError(f"client is {' or '.join(CLIENTS)}, not {client!r}")
