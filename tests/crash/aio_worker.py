"""Transactions of aiokafka through any number of crashes: each producer on an event loop that ends with it."""

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from oracle import ABORTED, COMMITTED, UNKNOWN
from workload import ABORT_SHARE, LEDGER, SHORT_WAIT_S, Worker


class AiokafkaWorker(Worker):
    """A worker with a new producer after each error. The abandoned producer's work is cancelled with its loop, because
    aiokafka's `stop` first waits for unsent records."""

    library = "aiokafka"
    producer = loop = None

    def turn(self):
        transaction = self.begin()
        transaction.writes = self.somewhere(LEDGER)
        try:
            if self.producer is None:
                self.start_producer()
            self.within(self.play(transaction))
        except (KafkaError, TimeoutError, OSError) as error:
            self.trouble = error
            transaction.outcome = ABORTED if transaction.commit.began is None else UNKNOWN
            self.shut()

    async def play(self, transaction):
        producer = self.producer
        await producer.begin_transaction()
        sent = []
        for write in transaction.writes:
            topic, number = write.partition
            write.span.begin()
            sent.append((write, await producer.send(topic, write.value.encode(), partition=number)))
        if self.dice.random() < ABORT_SHARE:
            await producer.abort_transaction()
            transaction.outcome = ABORTED
        else:
            for write, future in sent:
                write.offset = (await future).offset
                write.span.end()
            transaction.commit.begin()
            await producer.commit_transaction()
            transaction.commit.end()
            transaction.outcome = COMMITTED
            self.progress += 1

    def start_producer(self):
        self.loop = asyncio.new_event_loop()

        async def start():
            self.producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=self.name,
                transaction_timeout_ms=60_000,
                retry_backoff_ms=20,
            )
            await self.producer.start()

        self.within(start())

    def within(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, SHORT_WAIT_S))

    def shut(self):
        loop, self.loop, self.producer = self.loop, None, None
        if loop is None:
            return
        loop.run_until_complete(self.end(asyncio.all_tasks(loop)))
        loop.close()

    @staticmethod
    async def end(tasks):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
