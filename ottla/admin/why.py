"""`GET /v1/partitions/{topic}/{partition}/why`: the content of `ottla txn why`, from the broker's own state. free"""

from itertools import islice
from typing import Final

from ottla.admin.fields import NUMBER, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.broker.api.context import Broker
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.log.partition import Partition
from ottla.broker.txn.explanation import Explanation, answer, remedy_rows
from ottla.broker.txn.states import PREPARED
from ottla.broker.txn.values import NO_PENDING
from ottla.printable import host_and_port
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TopicPartition
from ottla.verdict import KnownTransaction, OpenTransaction, by_producer, judge

MOST_TRANSACTIONS: Final = 100
MOST_DIGITS: Final = 9

_REMEDY: Final = an_object({"first_offset": NUMBER, "advice": TEXT, "command": TEXT_OR_NULL})
SCHEMA: Final = an_object(
    {
        "text": {**TEXT, "description": "What holds the last stable offset back, and what to do, as `ottla txn why`."},
        "commands": a_list(TEXT, description="Commands that end the transactions that hold it back."),
        "remedies": a_list(_REMEDY),
    }
)


def why_route(broker: Broker) -> Route:
    """Return the route."""

    async def show_why(request: AdminRequest) -> AdminResponse:
        partition = await _partition(broker, request)
        found = await explain(broker, partition)
        rows = remedy_rows(found, _bootstrap(broker))
        broker.turns.charge(len(rows) * 10 * ROW_US)
        remedies = [{"first_offset": at, "advice": advice, "command": command} for at, advice, command in rows]
        commands = [command for _, _, command in rows if command is not None]
        return AdminResponse(body={"text": answer(found), "commands": commands, "remedies": remedies})

    summary = "Explain what holds the readers of a partition back, and what ends it"
    return Route("GET", "/v1/partitions/{topic}/{partition}/why", show_why, summary, response_schema=SCHEMA)


async def _partition(broker: Broker, request: AdminRequest) -> Partition:
    topic, index = request.parameters["topic"], request.parameters["partition"]
    if index.isascii() and index.isdigit() and len(index) <= MOST_DIGITS:
        partition = await broker.cluster.get_or_open(topic, int(index))
        if partition is not None:
            return partition
    raise AdminError(404, "There is no such partition: GET /v1/partitions lists the partitions")


async def explain(broker: Broker, partition: Partition) -> Explanation:
    """Return the partition and its first open transactions, each with the coordinator's state of its producer id."""
    before = {each.start_offset: each for each in _list_open(partition)}
    known = by_producer(await _known(broker, {each.producer_id for each in before.values()}))
    now_ms, gaps = broker.clock.now_ms(), _gaps(broker)
    # A transaction that was open before the coordinator was read and is open now was open all the time: the
    # coordinator knows it, or has forgotten it. Nothing is known about other transactions.
    rows = [
        (each, judge(each, known.get(each.producer_id, ()), now_ms, gaps))
        for each in _list_open(partition)
        if each.start_offset in before and each.producer_id == before[each.start_offset].producer_id
    ]
    broker.turns.charge(len(rows) * ROW_US)
    return Explanation(
        partition.topic,
        partition.index,
        broker.cluster.node_id,
        partition.last_stable_offset,
        partition.high_watermark,
        rows,
        now_ms,
    )


def _gaps(broker: Broker) -> tuple[str, ...]:
    """Return the reasons why the coordinator may hold transactions open that it does not know at this moment."""
    if any(each.transactions.loading for each in broker.brokers):
        return ("the coordinator is still loading its transactions",)
    topic = broker.cluster.image.topics.get(TRANSACTION_STATE_TOPIC)
    numbers = range(0 if topic is None else topic.partition_count)
    broker.turns.charge(len(numbers) * LOOKUP_US)
    unread = [number for number in numbers if not _is_read(broker, number)]
    return (f"partitions {unread} of {TRANSACTION_STATE_TOPIC} are offline",) if unread else ()


def _is_read(broker: Broker, number: int) -> bool:
    """Return whether a broker has the transactional ids of this partition."""
    return any(not isinstance(each.transactions.states.shard_at(number), ErrorCode) for each in broker.brokers)


def _list_open(partition: Partition) -> list[OpenTransaction]:
    found = []
    for first_offset, producer_id in islice(partition.log.producer_state.ongoing_txns.items(), MOST_TRANSACTIONS):
        producer = partition.producer_of(producer_id)
        if producer is not None:
            found.append(
                OpenTransaction(
                    *(partition.topic, partition.index, producer_id, producer.epoch, producer.coordinator_epoch),
                    *(first_offset, producer.last_timestamp_ms),
                )
            )
    return found


async def _known(broker: Broker, producer_ids: set[int]) -> list[KnownTransaction]:
    found = []
    for shard in broker.transaction_shards():
        for transactional_id in list(shard.states) if producer_ids else ():
            await broker.turns.spend(2 * LOOKUP_US)
            state = shard.states.get(transactional_id)
            if state is None or state.producer_id not in producer_ids:
                continue
            transient = shard.transient.get(transactional_id, NO_PENDING)
            partitions: frozenset[TopicPartition] = frozenset(
                transient.awaiting if state.status in PREPARED else state.partitions
            )
            found.append(
                KnownTransaction(
                    *(
                        transactional_id,
                        (broker.find_coordinator(TRANSACTION_STATE_TOPIC, transactional_id) or broker).cluster.node_id,
                        state.status.wire_name,
                        state.producer_id,
                    ),
                    *(state.producer_epoch, state.timeout_ms, state.start_ms, partitions),
                )
            )
    return found


def _bootstrap(broker: Broker) -> str:
    endpoint = next(iter(broker.endpoints.values()))
    return host_and_port(endpoint.host, endpoint.port)
