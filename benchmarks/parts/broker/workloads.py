"""Clients of the broker benchmark: one process per workload, so that its CPU time is not the broker's. free

Run by broker.py as `python workloads.py NAME JSON`. Prints a line when it is set up, starts at a line on stdin, and
prints its result as one line of JSON.
"""

import json
import os
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

VALUE_SIZE_BYTES = 1024
POOL = 256
COMPLETION_TIMEOUT_S = 120
LOG_LEVEL = 3  # errors only; a coordinator that is still loading logs none


def start_signal() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def percentiles(samples_s: list[float], prefix: str) -> dict[str, float]:
    """Return the p50 and p99 in milliseconds (p99: the smallest sample that at least 99 % do not exceed)."""
    ordered = sorted(samples_s)
    last = len(ordered) - 1
    return {f"{prefix}_p{p}_ms": 1000 * ordered[min(last, len(ordered) * p // 100)] for p in (50, 99)}


def produce(
    bootstrap: str,
    topic: str,
    megabytes: int,
    batch_size_bytes: int,
    linger_ms: int,
    value_size_bytes: int = VALUE_SIZE_BYTES,
    **options: str,
) -> dict[str, float]:
    """Produce values that do not compress to one partition with acks=all. `options` are options of the client."""
    producer = Producer(
        {
            **options,
            "bootstrap.servers": bootstrap,
            "log_level": LOG_LEVEL,
            "acks": "all",
            "batch.size": batch_size_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 131_072,
        }
    )
    pool = [os.urandom(value_size_bytes) for _ in range(POOL)]
    failed: list[KafkaError] = []
    producer.list_topics(topic, timeout=10)
    count = megabytes * 1_000_000 // value_size_bytes

    def add_failure(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    start_signal()
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, pool[number % POOL], partition=0, on_delivery=add_failure)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(COMPLETION_TIMEOUT_S)
    elapsed_s = time.perf_counter() - began
    if failed or left:
        raise SystemExit(f"{len(failed)} records failed, {left} were not acknowledged: {failed[:1]}")
    size_bytes = count * value_size_bytes
    return {"bytes": size_bytes, "seconds": elapsed_s}


def consume(bootstrap: str, topic: str, count: int, **options: str) -> dict[str, float]:
    """Consume `count` records of partition 0 from its beginning."""
    consumer = Consumer(
        {
            **options,
            "bootstrap.servers": bootstrap,
            "log_level": LOG_LEVEL,
            "group.id": f"benchmark-{os.getpid()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 65_536,
            "fetch.queue.backoff.ms": 5,  # its default lets a full client idle for a second, whatever the broker does
        }
    )
    start_signal()
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    size_bytes = seen = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=5)
        if not messages:
            raise SystemExit(f"only {seen} of {count} records arrived")
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            size_bytes += len(message.value() or b"")
        seen += len(messages)
    elapsed_s = time.perf_counter() - began
    consumer.close()
    return {"bytes": size_bytes, "seconds": elapsed_s}


def one_producer(bootstrap: str, topic: str, partition: int, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"first", partition=partition)
    producer.commit_transaction(30)
    return producer


def transactions(bootstrap: str, topic: str, producers: int, seconds: float) -> dict[str, float]:
    """Run one-record transactions of several producers at once, each to its own partition."""
    clients = [one_producer(bootstrap, topic, n, f"benchmark-{os.getpid()}-{n}") for n in range(producers)]
    value = os.urandom(VALUE_SIZE_BYTES)
    commits_s: list[list[float]] = [[] for _ in clients]
    wholes_s: list[list[float]] = [[] for _ in clients]
    errors: list[BaseException] = []

    def run(number: int, until: float) -> None:
        client, commits, wholes = clients[number], commits_s[number], wholes_s[number]
        clock = time.perf_counter
        try:
            while not commits or clock() < until:
                began = clock()
                client.begin_transaction()
                client.produce(topic, value, partition=number)
                asked = clock()
                client.commit_transaction(30)
                ended = clock()
                commits.append(ended - asked)
                wholes.append(ended - began)
        except BaseException as error:
            errors.append(error)

    start_signal()
    began = time.perf_counter()
    threads = [threading.Thread(target=run, args=(n, began + seconds)) for n in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - began
    if errors:
        raise SystemExit(f"a transaction failed: {errors[0]}")
    everything = [sample for samples in commits_s for sample in samples]
    return {
        "count": len(everything),
        "seconds": elapsed_s,
        **percentiles(everything, "commit"),
        **percentiles([sample for samples in wholes_s for sample in samples], "transaction"),
    }


def round_trip(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Measure the time from produce() to the consumer's poll(), one record at a time."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": LOG_LEVEL,
            "group.id": f"benchmark-{os.getpid()}",
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL, "linger.ms": 0, "acks": "all"})
    samples_s: list[float] = []

    def once() -> None:
        began = time.perf_counter()
        producer.produce(topic, b"ping", partition=0)
        producer.poll(0)
        if consumer.poll(10) is None:
            raise SystemExit("the record did not come back within 10 s")
        samples_s.append(time.perf_counter() - began)

    for _ in range(20):
        once()
    samples_s.clear()
    start_signal()
    for _ in range(count):
        once()
    producer.flush(COMPLETION_TIMEOUT_S)
    consumer.close()
    return percentiles(samples_s, "round_trip")


WORKLOADS = {"produce": produce, "consume": consume, "transactions": transactions, "round_trip": round_trip}

if __name__ == "__main__":
    result = WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(result), flush=True)
