"""Clients that work through any number of broker crashes and record the results.

Every client is a thread that goes on until it is stopped, and then ends its last transaction. `progress` counts what
was acknowledged (commits, or records of a plain producer), so that a test can wait until every client has progressed.
"""

import concurrent.futures
import itertools
import random
import sys
import threading
import time
import traceback

import kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata
from oracle import ABORTED, COMMITTED, PLAIN, UNKNOWN, Partition, Poll, Span, Transaction, Write

LEDGER = [Partition("financial-ledger", n) for n in range(3)] + [Partition("audit-log", n) for n in range(2)]
ORDERS = [Partition("orders", n) for n in range(2)]
RECEIPTS = [Partition("receipts", n) for n in range(2)]
TOPICS = {"financial-ledger": 3, "audit-log": 2, "orders": 2, "receipts": 2}
GROUP = "billing"

EVENT_TIMEOUT_S = 90.0  # for one call through restarts
SHORT_WAIT_S = 5
PAUSE_S = 0.004  # between transactions: the load shall meet every moment of a transaction, not fill the disk
ABORT_SHARE = 0.25
LIBRDKAFKA = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 250, "log_level": 0}


class Worker(threading.Thread):
    """A client in a thread. `failure` is the exception that ended it, if one did."""

    library = ""

    def __init__(self, name, bootstrap, seed):
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.dice = bootstrap, random.Random(f"{seed}-{name}")
        self.stopping, self.progress, self.failure = threading.Event(), 0, None
        self.trouble = None  # the last error that it went on after, to be named when it does not
        self.history, self.polls, self._numbers = [], [], itertools.count()

    def run(self):
        try:
            while not self.stopping.is_set():
                self.turn()
                time.sleep(PAUSE_S)
            self.shut()
        except Exception as error:
            self.failure = error

    def turn(self):
        """Run one transaction, or one batch of a plain producer."""
        raise NotImplementedError

    def shut(self):
        """Close the open clients."""

    def whereabouts(self):
        """Return the worker's current lines of code and its last error, for the message of a test that waits for it."""
        stack = traceback.extract_stack(sys._current_frames()[self.ident]) if self.is_alive() else []
        here = [f"{frame.name}:{frame.lineno}" for frame in stack if frame.filename == __file__]
        return f"{self.name} in {here}, last trouble {self.trouble!r}"

    def value(self):
        return f"{self.name}-{next(self._numbers)}"

    def begin(self, outcome=UNKNOWN):
        transaction = Transaction(self.name, outcome, name=f"{self.name}/{len(self.history)}")
        self.history.append(transaction)
        return transaction

    def somewhere(self, partitions):
        """Return one to four writes of new values."""
        return [Write(self.dice.choice(partitions), self.value()) for _ in range(self.dice.randint(1, 4))]


class ConfluentWorker(Worker):
    """Transactions of confluent-kafka; a new instance with the same id after each error that no retry gets over.

    Nothing is aborted while a batch waits for its acknowledgement: librdkafka 2.16 forgets such a batch and gives its
    sequence, in the same epoch, to the next one, which any broker then takes for a retry and acknowledges unread.
    """

    library = "confluent-kafka"
    producer = None

    def patiently(self, call):
        """Call until it succeeds or fails with an error that librdkafka does not mark as retriable."""
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while True:
            try:
                return call()
            except KafkaException as error:
                self.trouble = error
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def turn(self):
        transaction = self.begin()
        transaction.writes = self.somewhere(LEDGER)
        try:
            producer = self.ready_producer()
            producer.begin_transaction()
            for write in transaction.writes:
                self.send(producer, write)
            if self.dice.random() < ABORT_SHARE:
                producer.flush(EVENT_TIMEOUT_S)
                self.patiently(lambda: producer.abort_transaction(5))
                transaction.outcome = ABORTED
            else:
                transaction.commit.begin()
                self.patiently(lambda: producer.commit_transaction(5))
                transaction.commit.end()
                transaction.outcome = COMMITTED
                self.progress += 1
        except KafkaException as error:
            # The next instance aborts the open transaction, so only a requested commit can still take effect.
            self.trouble = error
            transaction.outcome = ABORTED if transaction.commit.began is None else UNKNOWN
            self.producer = None

    def ready_producer(self):
        if self.producer is None:
            options = {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": self.dice.choice((0, 1, 5)),
                "compression.type": self.dice.choice(("none", "lz4")),
            }
            producer = Producer(LIBRDKAFKA | options)
            self.patiently(lambda: producer.init_transactions(5))
            self.producer = producer
        return self.producer

    @staticmethod
    def send(producer, write):
        def confirm(error, message):
            if error is None:
                write.offset = message.offset()
                write.span.end()

        topic, number = write.partition
        write.span.begin()
        producer.produce(topic, write.value.encode(), partition=number, on_delivery=confirm)
        producer.poll(0)


def within(seconds, call):
    """Return the call's value, or raise TimeoutError while the call continues in its own thread."""
    done = concurrent.futures.Future()

    def run():
        try:
            done.set_result(call())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


class KafkaPythonWorker(Worker):
    """Transactions of kafka-python; a new producer after each error, because its errors do not say how to continue.

    kafka-python 3.0 loses a transactional request when its coordinator leaves just before it is sent (`Sender` retries
    it only while it knows no coordinator) and then waits for ever, its sender in a busy loop. So every wait here has an
    end, and the sender is stopped by hand.
    """

    library = "kafka-python"
    producer = None

    def turn(self):
        transaction = self.begin()
        transaction.writes = self.somewhere(LEDGER)
        self.play(transaction)

    def play(self, transaction, positions=None):
        """Send and end the transaction, with the group's positions if there are any."""
        futures = []
        try:
            producer = self.ready_producer()
            producer.begin_transaction()
            for write in transaction.writes:
                topic, number = write.partition
                write.span.begin()
                futures.append((write, producer.send(topic, write.value.encode(), partition=number)))
            if positions is not None:
                self.send_positions(producer, transaction, positions)
            if self.dice.random() < ABORT_SHARE:
                within(SHORT_WAIT_S, producer.abort_transaction)
                transaction.outcome = ABORTED
            else:
                producer.flush(timeout=SHORT_WAIT_S)
                # Neither flush nor commit reports a failed batch: kafka-python would commit without it.
                for _, future in futures:
                    future.get(timeout=0)
                transaction.commit.begin()
                within(SHORT_WAIT_S, producer.commit_transaction)
                transaction.commit.end()
                transaction.outcome = COMMITTED
                self.progress += 1
        except (KafkaPythonError, TimeoutError) as error:
            self.trouble = error
            transaction.outcome = ABORTED if transaction.commit.began is None else UNKNOWN
            self.give_up_producer()
        for write, future in futures:
            if future.succeeded():
                write.offset = future.value.offset
                write.span.end()

    @staticmethod
    def send_positions(producer, transaction, positions):
        """Send the positions with the name of the transaction as the metadata of each offset."""
        offsets = {
            kafka.TopicPartition(*partition): OffsetAndMetadata(offset, transaction.name, -1)
            for partition, offset in positions.items()
        }
        transaction.positions = dict(positions)
        transaction.sent_positions.begin()
        within(SHORT_WAIT_S, lambda: producer.send_offsets_to_transaction(offsets, GROUP))
        transaction.sent_positions.end()

    def ready_producer(self):
        if self.producer is None:
            self.producer = KafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=self.name,
                transaction_timeout_ms=60_000,
                max_block_ms=SHORT_WAIT_S * 1000,
                reconnect_backoff_max_ms=250,
            )
            self.producer.init_transactions()
        return self.producer

    def give_up_producer(self):
        producer, self.producer = self.producer, None
        if producer is None:
            return
        try:
            producer.close(timeout=0)
        except KafkaTimeoutError:  # raised for records that wait, before the sender is told to stop
            producer._sender.force_close()

    def shut(self):
        self.give_up_producer()


class Feeder(Worker):
    """A plain idempotent producer of orders: each acknowledged record is in the log exactly once."""

    library = "confluent-kafka"

    def __init__(self, name, bootstrap, seed):
        super().__init__(name, bootstrap, seed)
        self.producer = Producer(LIBRDKAFKA | {"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def turn(self):
        batch = self.begin(PLAIN)
        batch.writes = self.somewhere(ORDERS)
        for write in batch.writes:
            ConfluentWorker.send(self.producer, write)
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while self.producer.flush(1) and time.monotonic() < deadline:
            pass
        self.progress += sum(write.offset is not None for write in batch.writes)
        time.sleep(0.02)


def committed_reader(bootstrap, group):
    """Return a consumer that commits nothing and raises an error when its offset does not exist any more."""
    options = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    return Consumer(LIBRDKAFKA | options | {"enable.auto.commit": False, "auto.offset.reset": "error"})


def poll(consumer, count, timeout_s, positions):
    """Return (Poll, errors) of one call, and advance `positions` past the records."""
    span = Span()
    span.begin()
    messages = consumer.consume(count, timeout=timeout_s)
    span.end()
    rows, errors = {}, [message.error() for message in messages if message.error() is not None]
    for message in messages:
        if message.error() is None:
            partition, offset = Partition(message.topic(), message.partition()), message.offset()
            start, _, found = rows.get(partition, (positions[partition], None, []))
            rows[partition] = (start, offset + 1, [*found, (offset, message.value().decode())])
            positions[partition] = offset + 1
    return Poll(span, rows), errors


class Biller(KafkaPythonWorker):
    """Consume, transform, produce: receipts for orders, the positions in the same transaction.

    It produces with kafka-python: send_offsets_to_transaction of librdkafka 2.16 never returns, whatever its timeout,
    when the broker dies during the call (librdkafka issue 5456; Apache Kafka's broker just as ours).
    """

    def __init__(self, name, bootstrap, seed):
        super().__init__(name, bootstrap, seed)
        self.consumer = self.positions = None

    def turn(self):
        if self.positions is None and not self.resume():
            return
        polled, errors = poll(self.consumer, 8, 0.2, self.positions)
        if not polled.rows:
            self.trouble = next(iter(errors), self.trouble)
            return
        transaction = self.begin()
        transaction.polls.append(polled)
        for (topic, partition), (_, _, orders) in polled.rows.items():
            for offset, value in orders:
                receipt = f"receipt-{next(self._numbers)}<{topic}/{partition}/{offset}"
                transaction.writes.append(Write(self.dice.choice(RECEIPTS), receipt, source=value))
        self.play(transaction, self.positions)
        if transaction.outcome != COMMITTED:
            self.positions = None

    def resume(self):
        """Seek to the group's positions, after our earlier transaction no longer blocks them."""
        try:
            self.ready_producer()
            if self.consumer is None:
                self.consumer = committed_reader(self.bootstrap, GROUP)
            positions = self.consumer.committed([TopicPartition(*partition) for partition in ORDERS], 5)
        except (KafkaPythonError, KafkaException) as error:
            self.trouble = error
            self.give_up_producer()
            self.consumer = None
            return False
        if errors := [position.error for position in positions if position.error is not None]:
            self.trouble = errors[0]
            return False
        for position in positions:
            position.offset = max(position.offset, 0)
        self.consumer.assign(positions)
        self.positions = {Partition(p.topic, p.partition): p.offset for p in positions}
        return True

    def shut(self):
        super().shut()
        if self.consumer is not None:
            self.consumer.close()


class Reader(Worker):
    """A read_committed consumer of everything, which must never see a record that is missing at the end."""

    library = "confluent-kafka"

    def __init__(self, name, bootstrap, seed):
        super().__init__(name, bootstrap, seed)
        self.consumer = committed_reader(bootstrap, name)
        self.positions = dict.fromkeys(LEDGER + ORDERS + RECEIPTS, 0)
        self.consumer.assign([TopicPartition(*partition, 0) for partition in self.positions])

    @property
    def seen(self):
        return [
            (partition, offset, value)
            for polled in self.polls
            for partition, (_, _, found) in polled.rows.items()
            for offset, value in found
        ]

    def turn(self):
        polled, errors = poll(self.consumer, 500, 0.1, self.positions)
        if polled.rows:
            self.polls.append(polled)
            self.progress += 1
        for error in errors:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)

    def shut(self):
        self.consumer.close()


def start_workers(bootstrap, seed, *more):
    """Start the workers, and one of each class in `more`."""
    workers = [
        ConfluentWorker("order-processor-01", bootstrap, seed),
        ConfluentWorker("order-processor-02", bootstrap, seed),
        KafkaPythonWorker("order-processor-03", bootstrap, seed),
        *(kind(f"order-processor-{number:02d}", bootstrap, seed) for number, kind in enumerate(more, start=4)),
        Feeder("order-feeder", bootstrap, seed),
        Biller("biller", bootstrap, seed),
        Reader("reader", bootstrap, seed),
    ]
    for worker in workers:
        worker.start()
    return workers
