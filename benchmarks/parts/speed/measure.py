"""Measurement of one broker in one round. shell"""

import time
from typing import Any

from parts import raw
from parts.broker.runs import create_topics, delete_topics, run
from parts.processes import Broker
from parts.side_by_side import each_ms, spent
from parts.speed.crowd import Crowd, frame_of
from parts.speed.rows import Figures, Sizes

LARGE_BATCHES = {"batch_size_bytes": 1_000_000, "linger_ms": 50}
MANY = 16
TAKEN = 1.25
"""Upper limit of the memory that a broker takes per byte of values: small records add a tenth of framing."""


def measure_broker(broker: Broker, sizes: Sizes) -> Figures:
    """Return every figure of one broker. Its topics are deleted afterwards, because kfake holds them in memory."""
    prefix = f"speed-{time.time_ns()}"
    partitions = {"large": 1, "small": 1, "tx": MANY, "raw": 2, "crowd": 1}
    topics = {name: f"{prefix}-{name}" for name in partitions}
    create_topics(broker, {topics[name]: count for name, count in partitions.items()})
    figures = of_bytes(broker, topics["large"], topics["small"], sizes)
    figures |= of_transactions(broker, topics["tx"], topics["raw"], sizes)
    figures |= of_connections(broker, topics["crowd"], sizes)
    delete_topics(broker, topics.values())
    return figures


def per_gb(done: dict[str, Any]) -> float:
    return float(done["cpu_s"] / (done["bytes"] / 1e9))


def of_bytes(broker: Broker, large: str, small: str, sizes: Sizes) -> Figures:
    figures = {}
    for key, topic, megabytes, value_size_bytes in (
        ("produce_1k", large, sizes.megabytes, 1024),
        ("produce_100", small, max(1, sizes.megabytes // 4), 100),
    ):
        takes_bytes = round(megabytes * 1_000_000 * TAKEN)
        asked = {"topic": topic, "megabytes": megabytes, "value_size_bytes": value_size_bytes, **LARGE_BATCHES}
        figures[key] = per_gb(run(broker, "produce", takes_bytes=takes_bytes, **asked))
    figures["consume"] = per_gb(run(broker, "consume", topic=large, count=sizes.megabytes * 1_000_000 // 1024))
    return figures


def of_transactions(broker: Broker, topic: str, raw_topic: str, sizes: Sizes) -> Figures:
    alone, many = (
        run(broker, "transactions", topic=topic, producers=producers, seconds=sizes.seconds) for producers in (1, MANY)
    )
    figures = {
        "tx_ms": alone["cpu_s"] / alone["count"] * 1000,
        "tx16_per_s": many["count"] / many["seconds"],
        "tx16_ms": many["cpu_s"] / many["count"] * 1000,
    }
    with raw.open_connection(broker.bootstrap) as connection:
        for index, key in enumerate(("tx_v1_ms", "tx_v2_ms")):
            producer = raw.Transactional(connection, f"{raw_topic}-{index}", raw_topic, v2=index == 1, partition=index)
            producer.transact()  # makes what the first use makes
            figures[key] = each_ms(broker, sizes.transactions, producer.transact)
    return figures


def of_connections(broker: Broker, topic: str, sizes: Sizes) -> Figures:
    passes, count = sizes.passes, sizes.connections
    with Crowd(broker.bootstrap, count, [frame_of(topic, 0)]) as crowd:
        alone_ms = each_ms(broker, passes * count, crowd.one_by_one)

        def all_passes() -> None:
            for _ in range(passes):
                crowd.at_once()

        at_once_s = spent(broker, all_passes)
    return {"crowd_us": alone_ms * 1000, "crowd_at_once_us": at_once_s / passes / count * 1e6}
