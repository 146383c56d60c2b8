"""A cluster in a few dictionaries, in place of the connections of `ottla txn`."""

import copy
import json
import time
from types import SimpleNamespace

from click.testing import CliRunner

from ottla.cli.main import main
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
        self.former = {}  # {(broker, id): what a former coordinator that does not know its successor still has}
        self.outdated = {}  # {broker: the partitions as it knows them, if it does not learn of changes}
        self.loading = set()
        self.unloaded = set()  # brokers that lead partitions of the coordinators' log and have not begun to load them
        self.requests = []
        self.refusals = {}
        self.may = lambda operation, kind, name: True
        self.acls = None  # [(name of a pattern of transactional ids, its type)]; None: no authorizer
        self.ahead_ms = 0  # the clocks of the brokers
        self.committed = []  # the partitions of which each group has offsets
        self.markers = []
        self.marker_error = 0
        self._later = []

    def then(self, api, act):
        self._later.append((api, act))

    def stop_learning(self, broker):
        """The broker keeps its present leaders and producers."""
        self.outdated[broker] = copy.deepcopy(self.partitions)

    def known_to(self, broker):
        return self.outdated.get(broker, self.partitions)

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

    def connect(self, host, port, client_id, timeout_s, security):
        if (host, port) in self.refusals:
            raise self.refusals[host, port]
        (broker,) = [number for number, address in self.brokers.items() if address == (host, port)]
        return SimpleNamespace(
            send=lambda message, version=None: self.answer(broker, message),
            close=lambda: None,
            versions={ApiKey.LIST_TRANSACTIONS: (0, 1)},
        )

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
        partitions = self.known_to(broker)
        present = dict.fromkeys(name for name, _ in partitions)
        names = [*present, *self.topic_errors] if asked is None else sorted(asked)
        topics = []
        for name in names:
            rows = [
                SimpleNamespace(
                    partition_index=number, leader_id=each.leader, leader_epoch=each.leader_epoch, replica_nodes=[]
                )
                for (topic, number), each in partitions.items()
                if topic == name
            ]
            absent = 0 if name in present else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not self.may("DESCRIBE", "topic", name):
                absent, rows = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
            error = self.topic_errors.get(name, absent)
            topics.append(
                SimpleNamespace(error_code=error, name=name, topic_id=None, authorized_operations=None, partitions=rows)
            )
        brokers = [SimpleNamespace(node_id=n, host=host, port=port) for n, (host, port) in self.brokers.items()]
        return SimpleNamespace(brokers=brokers, cluster_id="c", topics=topics)

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
        partition = self.known_to(broker).get((name, number))
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
        topics = []
        for topic in message.topics:
            rows = []
            for asked in topic.partitions:
                each = self.partitions[topic.name, asked.partition_index]
                offset = each.stable if message.isolation_level else each.end
                rows.append(SimpleNamespace(error_code=0, partition_index=asked.partition_index, offset=offset))
            topics.append(SimpleNamespace(name=topic.name, partitions=rows))
        return SimpleNamespace(topics=topics)

    def _find_coordinator(self, broker, message):
        (key,) = message.coordinator_keys
        at = self.known[key].broker if key in self.known else self.partitions[STATES].leader
        host, port = self.brokers[at]
        row = SimpleNamespace(error_code=0, key=key, node_id=at, host=host, port=port)
        return SimpleNamespace(coordinators=[row])

    def _offset_fetch(self, broker, message):
        topics = [
            SimpleNamespace(name=topic, partitions=[SimpleNamespace(partition_index=number)])
            for topic, number in self.committed
        ]
        return SimpleNamespace(error_code=0, topics=topics)

    def _init_producer_id(self, broker, message):
        known = self.known[message.transactional_id]
        if known.transaction_state == "Ongoing":
            known.transaction_state = "PrepareAbort"
            return SimpleNamespace(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        known.transaction_state, known.topics = "Empty", []
        known.producer_epoch += 2
        assert message.transaction_timeout_ms == known.transaction_timeout_ms
        return SimpleNamespace(error_code=0, producer_id=known.producer_id, producer_epoch=known.producer_epoch)

    def _write_txn_markers(self, broker, message):
        (marker,) = message.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        partition = self.partitions[topic.name, number]
        error = self.marker_error or (0 if partition.leader == broker else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not error:
            assert not marker.transaction_result
            self.markers.append(
                (topic.name, number, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
            )
            partition.producers = [each for each in partition.producers if each[0] != marker.producer_id]
            partition.end += 1
            partition.stable = min((each[3] for each in partition.producers), default=partition.end)
        row = SimpleNamespace(partition_index=number, error_code=error)
        topics = [SimpleNamespace(name=topic.name, partitions=[row])]
        return SimpleNamespace(markers=[SimpleNamespace(producer_id=marker.producer_id, topics=topics)])

    def _list_groups(self, broker, message):
        return SimpleNamespace(error_code=0, groups=[])

    def _list_transactions(self, broker, message):
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if broker in self.loading else 0
        older_ms = getattr(message, "duration_filter", None) or -1
        rows = [
            each
            for each in [*self.known.values(), *self.former.values()]
            if each.broker == broker
            and (not message.state_filters or each.transaction_state in message.state_filters)
            and (not message.producer_id_filters or each.producer_id in message.producer_id_filters)
            and self.may("DESCRIBE", "id", each.transactional_id)
            and (older_ms < 0 or now_ms() + self.ahead_ms - each.transaction_start_time_ms > older_ms)
            and not error
            and broker not in self.unloaded
        ]
        return SimpleNamespace(error_code=error, transaction_states=rows)

    def _describe_transactions(self, broker, message):
        rows = []
        for name in message.transactional_ids:
            absent = SimpleNamespace(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=name)
            if not self.may("DESCRIBE", "id", name):
                absent.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                rows.append(absent)
            elif broker in self.unloaded:
                absent.error_code = ErrorCode.NOT_COORDINATOR
                rows.append(absent)
            else:
                rows.append(self.former.get((broker, name)) or self.known.get(name, absent))
        return SimpleNamespace(transaction_states=rows)

    def _describe_acls(self, broker, message):
        if self.acls is None:
            return SimpleNamespace(error_code=ErrorCode.SECURITY_DISABLED, resources=[])
        if not self.may("DESCRIBE", "cluster", ""):
            return SimpleNamespace(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, resources=[])
        rows = [SimpleNamespace(resource_name=name, pattern_type=kind) for name, kind in self.acls]
        return SimpleNamespace(error_code=0, resources=rows)


def now_ms():
    return round(time.time() * 1000)


def ottla(*arguments):
    result = CliRunner().invoke(main, ["txn", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def run_json(*arguments, code):
    """Run a command, check its exit code, and return its JSON output."""
    result = ottla(*arguments, "-b", "one:9092", "--format", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def producer(producer_id, start, *, epoch=0, coordinator_epoch=-1, age_ms=0):
    return producer_id, epoch, coordinator_epoch, start, now_ms() - age_ms


def hold(world, *starts, place=LEDGER, end=100):
    """Open transactions of the producer ids 0, 1, ..."""
    producers = [producer(number, start) for number, start in enumerate(starts)]
    world.partitions[place] = Partition(stable=min(starts), end=end, producers=producers)


def forget_nothing(world, *producer_ids):
    for each in producer_ids:
        world.know(f"order-{each}", each, LEDGER)
