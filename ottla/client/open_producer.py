"""A producer of kafka-python for commands, with timeouts, whose records a broker refuses and not the library. shell"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from ottla.client.errors import describe_refusal

_LARGEST_REQUEST: Final = 512 * 1024 * 1024
"""Far above what a broker takes."""
_LINGER_MS: Final = 5


class ProducerRefused(Exception):
    """The brokers refuse the producer or do not answer. The message is one line, with the remedy."""


def open_producer(
    bootstrap: Sequence[str],
    security: Mapping[str, Any],
    *,
    client_id: str,
    timeout_s: float,
    transactional_id: str | None,
) -> Any:
    """Return an idempotent producer that is ready to send, to existing topics only. Raises ProducerRefused."""
    # kafka-python logs each error that it also raises.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    timeout_ms = max(round(timeout_s * 1000), 1)
    try:
        producer = KafkaProducer(
            bootstrap_servers=list(bootstrap),
            client_id=client_id,
            transactional_id=transactional_id,
            allow_auto_create_topics=False,
            linger_ms=_LINGER_MS,
            max_request_size=_LARGEST_REQUEST,
            request_timeout_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms + _LINGER_MS,
            max_block_ms=timeout_ms,
            bootstrap_timeout_ms=timeout_ms,
            **security,
        )
        if transactional_id is not None:
            producer.init_transactions()
    except (KafkaError, OSError) as error:
        raise ProducerRefused(describe_refusal(error)) from None
    return producer


def close_producer(producer: Any, timeout_s: float) -> None:
    """Close a producer, at once after the timeout. The caller has waited for its records."""
    try:
        producer.close(timeout=timeout_s)
    except KafkaTimeoutError:
        producer.close(timeout=0)
