"""Test of the next transaction after the reply to a batch is lost and the application aborts.

The application works like the examples of confluent-kafka: it aborts and retries a failed transaction, after a fatal
error with a new producer. Records are lost if their commit succeeds and they are not in the log.
"""

import itertools
import logging
import random
import threading
import time
from functools import partial
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from in_the_log.wire import Loss, Sort, Watch

HURRY_S = 0.4  # the application gives up so long after the connection broke
EVENT_TIMEOUT_S = 60
ATTEMPTS = 8
COUNTS = ("same", "any", "pipelined", "pipelined, lost again")
QUIET = logging.getLogger("librdkafka")  # it tells of every connection that was refused
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class Row(NamedTuple):
    """A line of the table. `attempts` is the highest number that one transaction needed, `stalled` counts the periods
    of ten seconds for which commits hung."""

    target: str
    loss: str
    counts: str
    trials: int
    reused: int
    refused: int
    lost_transactions: int
    lost_records: int
    fatal: int
    stalled: int
    attempts: int
    wrong: int


class Application:
    """Transactions with one transactional id. `committed` is [values of a commit that succeeded]."""

    def __init__(self, bootstrap, topic, name, *, pipelined):
        self.bootstrap, self.topic, self.name, self.pipelined = bootstrap, topic, name, pipelined
        self.committed, self.aborted, self.numbers = [], [], itertools.count()
        self.fatal = self.stalled = 0
        self._open()

    def _open(self):
        # One batch for what is sent together; or one for each record, up to five on their way.
        batching = {"linger.ms": 0, "batch.num.messages": 1} if self.pipelined else {"linger.ms": 30}
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "reconnect.backoff.max.ms": 1000,
                "logger": QUIET,
                **batching,
            }
        )
        self.producer.init_transactions(30)

    def _produce(self, count):
        """Produce records and return their delivery reports: [(value, error or None)]."""
        told = []
        values = [f"{self.name}/{next(self.numbers)}" for _ in range(count)]
        for value in values:
            self.producer.produce(
                self.topic, value, partition=0, on_delivery=lambda error, message: told.append((message.value(), error))
            )
        return values, told

    def abandon(self, count, watch, loss):
        """A transaction that is given up while the network is away, which is back when the abort is under way."""
        self.producer.begin_transaction()
        watch.lose_next(loss)
        values, _ = self._produce(count)
        self.aborted += values
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while not watch.broken.is_set():
            assert time.monotonic() < deadline, f"no {loss.value} happened"
            self.producer.flush(0.01)
        assert self.producer.flush(HURRY_S) > 0, "nothing was given up"
        threading.Timer(HURRY_S, watch.hang_up).start()
        self._abort()

    def run_transaction(self, count, armed=None):
        """A transaction that is tried until its commit succeeds; how often. `armed` is called in the first attempt."""
        for attempt in range(1, ATTEMPTS + 1):
            values = []
            try:
                self.producer.begin_transaction()
                if armed is not None and attempt == 1:
                    armed()
                values, told = self._produce(count)
                self._commit()
            except KafkaException as error:
                self.aborted += values
                if error.args[0].fatal():
                    self._begin_anew()
                else:
                    self._abort()
            else:
                assert {value.decode() for value, error in told if error is None} == set(values), told
                self.committed.append(values)
                return attempt
        raise AssertionError(f"no commit of {self.name} in {ATTEMPTS} attempts")

    def _commit(self):
        """As the documentation has it, a commit that times out is resumed."""
        while True:
            try:
                return self.producer.commit_transaction(10)
            except KafkaException as error:
                if not error.args[0].retriable() or self.stalled > ATTEMPTS:
                    raise
                self.stalled += 1

    def _abort(self):
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while True:
            try:
                return self.producer.abort_transaction(30)
            except KafkaException as error:
                if error.args[0].fatal():
                    return self._begin_anew()
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _begin_anew(self):
        self.fatal += 1
        self._open()


def read_values(bootstrap, topic):
    """The values of the topic's one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-without-a-group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "logger": QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"the end of {topic} is not reached"
        if message.error() is None:
            found.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            raise KafkaException(message.error())


def counts_of(counts, chance):
    """Return the number of records whose reply is lost, and the number of the next ones."""
    first = chance.randint(1, 4)
    if counts == "same":
        return first, first
    return (first, chance.randint(1, 8)) if counts == "any" else (1, chance.randint(2, 8))


def play(broker, loss, counts, trials, seed=1):
    """The row of so many trials, each with a producer of its own, all in one partition."""
    chance = random.Random(f"{seed} {loss} {counts}")
    topic = f"{loss.name}-{counts}".lower().replace(", ", "-").replace(" ", "-")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    applications, attempts = [], 0
    with Watch(broker, away_s=EVENT_TIMEOUT_S) as watch:
        for trial in range(trials):
            application = Application(watch.address, topic, f"{topic}-{trial}", pipelined="pipelined" in counts)
            applications.append(application)
            application.run_transaction(chance.randint(1, 3))
            lost_sight_of, next_count = counts_of(counts, chance)
            application.abandon(lost_sight_of, watch, loss)
            again = partial(watch.lose_next, Loss.SHORT_CUT) if counts.endswith("lost again") else None
            attempts = max(attempts, application.run_transaction(next_count, again))
            application.run_transaction(chance.randint(1, 3))
    return row(broker, loss, counts, watch, applications, attempts, read_values(broker.bootstrap, topic))


def row(broker, loss, counts, watch, applications, attempts, found):
    there = set(found)
    missing = [[value for value in values if value not in there] for one in applications for values in one.committed]
    expected = {value for one in applications for values in one.committed for value in values}
    return Row(
        target=broker.name,
        loss=loss.value,
        counts=counts,
        trials=len(applications),
        reused=watch.sent[Sort.REUSE],
        refused=watch.refused[Sort.REUSE],
        lost_transactions=sum(1 for values in missing if values),
        lost_records=sum(map(len, missing)),
        fatal=sum(one.fatal for one in applications),
        stalled=sum(one.stalled for one in applications),
        attempts=attempts,
        wrong=len(found) - len(there) + len(there - expected) + watch.refused_in_error,
    )
