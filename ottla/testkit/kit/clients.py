"""Kafka clients for a test, with short timeouts, closed after the test. free"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import uuid4

from ottla.testkit.kit.awaited import CLOSE_S, AwaitedClient
from ottla.testkit.kit.broker import Broker
from ottla.testkit.kit.leftovers import GROUP, TRANSACTIONAL_ID

RECONNECT_MS: Final = 200
KAFKA_PYTHON: Final = "kafka-python"
CONFLUENT: Final = "confluent-kafka"
AIOKAFKA: Final = "aiokafka"
CLIENTS: Final = (KAFKA_PYTHON, CONFLUENT, AIOKAFKA)


class Clients:
    """Factory for clients of kafka-python, confluent-kafka (`client="confluent-kafka"`) and aiokafka.

    With `client="aiokafka"` the result is an `AwaitedClient`. Other keyword arguments are the library's configuration,
    by its own names, and override the defaults.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._close: list[Callable[[], object]] = []

    def producer(self, *, client: str = KAFKA_PYTHON, **config: Any) -> Any:
        """Return a producer with `acks` all."""
        _check(client)
        if client == AIOKAFKA:
            return self._make_awaited("AIOKafkaProducer", {"acks": "all"} | config)
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
        """Return a producer after `init_transactions`, with this transactional id or a new one."""
        transactional_id = transactional_id or f"transactional-id-{uuid4().hex[:12]}"
        self._broker.leftovers.note(TRANSACTIONAL_ID, transactional_id)
        if client == CONFLUENT:
            made = self.producer(client=client, **{"transactional.id": transactional_id} | config)
            made.init_transactions(30)
            return made
        made = self.producer(client=client, transactional_id=transactional_id, **config)
        if client == KAFKA_PYTHON:  # aiokafka initialises its producer when it starts
            made.init_transactions()
        return made

    def consumer(self, *topics: str, client: str = KAFKA_PYTHON, **config: Any) -> Any:
        """Return a read_committed consumer that starts at the earliest offset and does not commit automatically."""
        _check(client)
        self._broker.leftovers.note(GROUP, config.get("group_id"))
        if client == CONFLUENT:
            made = self._confluent_consumer(config)
            if topics:
                made.subscribe(list(topics))
            return made
        defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        if client == AIOKAFKA:
            return self._make_awaited("AIOKafkaConsumer", defaults | config, *topics)
        from kafka import KafkaConsumer

        defaults |= {"consumer_timeout_ms": 30_000} | self._kafka_python()
        if config.get("group_id") is None:
            # kafka-python 3.0.12 ignores a subscription made while a Metadata request is in flight, until its next
            # refresh, which is after five minutes. A group member gets the topics from its rebalance.
            defaults["metadata_max_age_ms"] = 1_000
        made = KafkaConsumer(*topics, **defaults | config)
        self._close.append(lambda: made.close(timeout_ms=int(CLOSE_S * 1000)))
        return made

    def group_member(
        self,
        *topics: str,
        group_id: str | None = None,
        on_assign: Callable[..., object] | None = None,
        on_revoke: Callable[..., object] | None = None,
        on_lost: Callable[..., object] | None = None,
        **config: Any,
    ) -> Any:
        """Return a consumer of confluent-kafka that is a member of a group of the consumer protocol (KIP-848).

        It is a consumer as `consumer` makes it. The functions are those of its `subscribe`.
        """
        protocol = {"group.protocol": "consumer"} | ({} if group_id is None else {"group.id": group_id})
        made = self._confluent_consumer(protocol | config)
        functions = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        if topics:
            made.subscribe(list(topics), **{name: each for name, each in functions.items() if each is not None})
        return made

    def _confluent_consumer(self, config: Mapping[str, Any]) -> Any:
        from confluent_kafka import Consumer

        defaults: dict[str, Any] = {
            "bootstrap.servers": self._broker.bootstrap,
            "group.id": f"group-{uuid4().hex[:12]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        config = defaults | dict(config)
        self._broker.leftovers.note(GROUP, config["group.id"])
        made = Consumer(config)
        self._close.append(made.close)
        return made

    def _kafka_python(self) -> dict[str, Any]:
        # The back-off doubles up to 30 s by default, so a client could be that late to notice a restart.
        return {"bootstrap_servers": self._broker.bootstrap, "reconnect_backoff_max_ms": RECONNECT_MS}

    def _make_awaited(self, name: str, config: dict[str, Any], *topics: str) -> AwaitedClient:
        import aiokafka

        make = partial(getattr(aiokafka, name), *topics, **{"bootstrap_servers": self._broker.bootstrap} | config)
        return AwaitedClient(make, self._close.append)

    def close(self) -> None:
        """Close all clients. A client that takes longer than a second is abandoned."""
        while self._close:
            with suppress(Exception):  # the broker may be gone, or the producer fenced
                self._close.pop()()


def _check(client: str) -> None:
    if client not in CLIENTS:
        raise ValueError(f"client is {' or '.join(CLIENTS)}, not {client!r}")
