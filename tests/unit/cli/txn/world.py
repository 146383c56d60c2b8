"""A cluster that lives in a few dictionaries, in the place of the connections of `ottla txn`."""

import time
from types import SimpleNamespace

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

LEDGER, STATES = ("ledger", 0), ("__transaction_state", 0)


class Partition(SimpleNamespace):
    """`producers`: (producer id, epoch, coordinator epoch, start offset or -1, last timestamp)."""

    def __init__(self, leader=1, leader_epoch=0, stable=0, end=0, producers=(), error=0):
        super().__init__(
            leader=leader, leader_epoch=leader_epoch, stable=stable, end=end, producers=list(producers), error=error
        )


class World:
    """Brokers, partitions and coordinators. `then(api, act)`: do `act` after the next request of that kind."""

    def __init__(self):
        self.brokers = {1: ("one", 9092)}
        self.partitions = {LEDGER: Partition(), STATES: Partition()}
        self.topic_errors = {}
        self.known = {}
        self.loading = set()
        self.requests = []
        self.refusals = {}
        self._later = []

    def then(self, api, act):
        self._later.append((api, act))

    def know(self, transactional_id, producer_id, *places, broker=1, state="Ongoing", epoch=0, age_ms=0):
        self.known[transactional_id] = SimpleNamespace(
            error_code=0,
            transactional_id=transactional_id,
            broker=broker,
            transaction_state=state,
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=now_ms() - age_ms,
            topics=[SimpleNamespace(topic=name, partitions=[number]) for name, number in places],
        )

    def connect(self, host, port, timeout_s, security):
        if (host, port) in self.refusals:
            raise self.refusals[host, port]
        (broker,) = [number for number, address in self.brokers.items() if address == (host, port)]
        return SimpleNamespace(send=lambda message, version=None: self.answer(broker, message), close=lambda: None)

    def answer(self, broker, message):
        api = ApiKey(message.API_KEY)
        self.requests.append((api, broker, message))
        reply = getattr(self, f"_{api.name.lower()}")(broker, message)
        for number, (wanted, act) in enumerate(self._later):
            if wanted is api:
                del self._later[number]
                act()
                break
        return reply

    def _metadata(self, broker, message):
        asked = None if message.topics is None else {topic.name for topic in message.topics}
        assert message.allow_auto_topic_creation is False
        present = dict.fromkeys(name for name, _ in self.partitions)
        names = [*present, *self.topic_errors] if asked is None else sorted(asked)
        topics = []
        for name in names:
            rows = [
                SimpleNamespace(partition_index=number, leader_id=each.leader, leader_epoch=each.leader_epoch)
                for (topic, number), each in self.partitions.items()
                if topic == name
            ]
            absent = 0 if name in present else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(SimpleNamespace(error_code=self.topic_errors.get(name, absent), name=name, partitions=rows))
        brokers = [SimpleNamespace(node_id=n, host=host, port=port) for n, (host, port) in self.brokers.items()]
        return SimpleNamespace(brokers=brokers, topics=topics)

    def _describe_producers(self, broker, message):
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=topic.name,
                    partitions=[self._producers(broker, topic.name, number) for number in topic.partition_indexes],
                )
                for topic in message.topics
            ]
        )

    def _producers(self, broker, name, number):
        partition = self.partitions.get((name, number))
        if partition is None:
            return SimpleNamespace(partition_index=number, error_code=3, active_producers=[])
        error = partition.error or (0 if partition.leader == broker else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        rows = [
            SimpleNamespace(
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                current_txn_start_offset=start,
                last_timestamp=last_timestamp,
            )
            for producer_id, epoch, coordinator_epoch, start, last_timestamp in partition.producers
        ]
        return SimpleNamespace(partition_index=number, error_code=error, active_producers=[] if error else rows)

    def _list_offsets(self, broker, message):
        (topic,) = message.topics
        partition = self.partitions[topic.name, topic.partitions[0].partition_index]
        offset = partition.stable if message.isolation_level else partition.end
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=0, offset=offset)])])

    def _list_transactions(self, broker, message):
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if broker in self.loading else 0
        rows = [
            each
            for each in self.known.values()
            if each.broker == broker and each.producer_id in message.producer_id_filters and not error
        ]
        return SimpleNamespace(error_code=error, transaction_states=rows)

    def _describe_transactions(self, broker, message):
        absent = SimpleNamespace(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        rows = [self.known.get(name, absent) for name in message.transactional_ids]
        return SimpleNamespace(transaction_states=rows)


def now_ms():
    return round(time.time() * 1000)
