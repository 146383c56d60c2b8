"""Test of real retries: client libraries behind a proxy that loses, delays and cuts replies, with 40 % aborts.

The broker must never refuse a client that never reuses sequences, whatever happens to its replies.
"""

import contextlib
import random
import time
from typing import NamedTuple

from clients import DriverError, start_client
from in_the_log.lost import read_values
from in_the_log.wire import Loss, Sort, Watch

CLIENTS = ["java", "franz-go", "sarama", "aiokafka", "kafka-python", "kafkajs", "confluent-kafka"]
ABORTED, FAULTY = 0.4, 0.4
LOSSES = {Loss.SHORT_CUT: 50, Loss.DELAY: 35, Loss.SILENCE: 14, Loss.KILL: 1}
REQUEST_TIMEOUT_MS = 1000
OPENINGS = 20


class Row(NamedTuple):
    """A line of the table. `committed` and `aborted` are records; `opened` counts producers, `of_written` the retries
    of batches that the log had, `late` those after the end of their transaction."""

    client: str
    transactions: int
    committed: int
    aborted: int
    opened: int
    batches: int
    retried: int
    of_written: int
    late: int
    reused: int
    refused_reuses: int
    refused_in_error: int
    lost_records: int
    wrong: int


class Work:
    """Transactions of one client library: the values of those that were committed, and of those that were not."""

    def __init__(self, client, topic, chance):
        self.client, self.topic, self.chance = client, topic, chance
        self.committed, self.aborted, self.opened, self.sent = [], [], 0, 0
        self.producer = self._open()

    def _open(self):
        self.opened += 1
        for _ in range(OPENINGS - 1):
            with contextlib.suppress(DriverError):
                return self.client.producer(self.topic, request_timeout_ms=REQUEST_TIMEOUT_MS)
        return self.client.producer(self.topic, request_timeout_ms=REQUEST_TIMEOUT_MS)

    def transaction(self):
        """Commit or abort a transaction. Abort it after an error, and take a new producer if the abort fails."""
        values = [f"{self.topic}/{self.sent + number}" for number in range(self.chance.randint(1, 6))]
        self.sent += len(values)
        abort, hurried = self.chance.random() < ABORTED, self.chance.random() < 0.5
        try:
            self.producer.begin()
            if abort and hurried:
                self.producer.send_off(self.topic, *values)
                time.sleep(self.chance.random() * 0.05)  # some are on their way then, some have no answer
            else:
                half = len(values) // 2
                if half:
                    self.producer.send_off(self.topic, *values[:half])
                self.producer.send(self.topic, *values[half:])
            if not abort:
                self._commit(values)
                return
        except DriverError:
            pass
        self._abort(values)

    def _commit(self, values):
        try:
            self.producer.commit()
        except DriverError:
            self._reopen()  # nobody knows whether it is committed
        else:
            self.committed += values

    def _abort(self, values):
        try:
            self.producer.abort()
        except DriverError:
            self._reopen()
        self.aborted += values

    def _reopen(self):
        with contextlib.suppress(DriverError):
            self.producer.close()
        self.producer = self._open()


def losses(chance):
    def deal():
        return chance.choices(list(LOSSES), LOSSES.values())[0] if chance.random() < FAULTY else None

    return deal


def play(broker, name, transactions, directory, seed=1):
    """The row of one client library after so many transactions."""
    chance = random.Random(f"{seed} {name}")
    topic = f"retried-by-{name}-{seed}"
    with Watch(broker) as watch:
        client = start_client(name, watch.address, directory)
        try:
            work = Work(client, topic, chance)
            watch.chance = losses(random.Random(f"{seed} {name} losses"))
            for _ in range(transactions):
                work.transaction()
            watch.chance = lambda: None
            watch.settle()
        finally:
            client.close()
    found = read_values(broker.bootstrap, topic)
    return row(f"{name} {client.version} on {broker.name}", watch, work, transactions, found)


def row(name, watch, work, transactions, found):
    there = set(found)
    return Row(
        client=name,
        transactions=transactions,
        committed=len(work.committed),
        aborted=len(work.aborted),
        opened=work.opened,
        batches=watch.sent.total(),
        retried=watch.sent[Sort.RETRY] + watch.sent[Sort.LATE_RETRY],
        of_written=watch.of_written[Sort.RETRY] + watch.of_written[Sort.LATE_RETRY],
        late=watch.sent[Sort.LATE_RETRY],
        reused=watch.sent[Sort.REUSE],
        refused_reuses=watch.refused[Sort.REUSE],
        refused_in_error=watch.refused_in_error,
        lost_records=len(set(work.committed) - there),
        wrong=len(found) - len(there) + len(there & set(work.aborted)),
    )
