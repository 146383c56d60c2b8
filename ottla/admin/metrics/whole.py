"""Series of the broker as a whole: its requests, its transactions, its loop, its process. free"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ottla import __version__
from ottla.admin.metrics import families as f
from ottla.admin.metrics.exposition import Exposition, Labels, Row, labels
from ottla.admin.metrics.partitions import Partitions
from ottla.admin.metrics.recent import Recent
from ottla.admin.overview import oldest_start_ms
from ottla.broker.api.context import Broker
from ottla.broker.costs import FILE_CALL_US, LOOKUP_US
from ottla.broker.health import BrokerState
from ottla.broker.metrics import Histogram
from ottla.broker.ports.machine import usage
from ottla.broker.quotas.quotas import CONNECTION_CREATION_RATE
from ottla.broker.security.mechanism import NO_LOGINS
from ottla.broker.txn.states import ONGOING, PREPARED
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
_MS: Final = 0.001


async def write_broker(page: Exposition, broker: Broker, partitions: Partitions, connections: Counter[str]) -> None:
    """Write Kafka's series of a broker, a controller and a cluster of one."""
    cluster = broker.cluster
    count = sum(topic.partition_count for topic in cluster.topics.values())
    broker.turns.charge(len(cluster.topics) * LOOKUP_US)
    await page.write_one(f.BROKERS, len(broker.brokers))
    places = {(at.node_id, f"{at.host}:{at.port}"): 1 for each in broker.brokers for at in each.endpoints.values()}
    await page.write(f.BROKER_INFO, ((labels(id=node, address=at), one) for (node, at), one in places.items()))
    await page.write(f.BUILD, ((labels(version=__version__, cluster_id=broker.logs.properties.cluster_id), 1),))
    for family in (f.LEADER_COUNT, f.PARTITION_COUNT, f.GLOBAL_PARTITION_COUNT):
        await page.write_one(family, count)
    for family in (f.UNDER_REPLICATED_COUNT, f.UNDER_MIN_ISR_COUNT, *f.UNCLEAN_ELECTIONS):
        await page.write_one(family, 0)
    await page.write_one(f.OFFLINE_COUNT, partitions.offline)
    await page.write_one(f.ACTIVE_CONTROLLER, 1)
    await page.write_one(f.TOPIC_COUNT, len(cluster.topics))
    await page.write_one(f.BROKER_STATE, BrokerState.RUNNING.value)
    endpoints = {**broker.endpoints, **connections}
    rows = [(labels(listener=name), connections[name]) for name in endpoints]
    for family in (f.CONNECTION_COUNT, f.CONNECTION_COUNT_TOO):
        await page.write(family, rows)
    logins = {name: broker.mechanisms[name].counts if name in broker.mechanisms else NO_LOGINS for name in endpoints}
    for field, counter in f.LOGINS.items():
        await page.write(counter, [(labels(listener=name), getattr(each, field)) for name, each in logins.items()])


async def write_requests(page: Exposition, broker: Broker, recent: Recent, at_ms: float) -> None:
    """Write the series of requests by API: counts by version, errors, durations."""
    named = [(key, _title(key)) for key in sorted(broker.metrics.apis)]
    for family in f.REQUESTS:
        await page.write(family, _requests(broker, named))
    for family in f.ERRORS:
        await page.write(family, _errors(broker, named))
    await page.write(f.REQUEST_TIME, _quantiles(recent, named))
    apis = broker.metrics.apis
    await page.write_histograms(f.REQUEST_SECONDS, ((labels(request=name), apis[key].time) for key, name in named), _MS)
    for family in (f.HANDLER_IDLE, f.NETWORK_IDLE):
        await page.write_one(family, recent.idle(at_ms))


def _title(key: int) -> str:
    return ApiKey(key).title


def _requests(broker: Broker, named: list[tuple[int, str]]) -> Iterator[Row]:
    for key, name in named:
        for request in (name, "FetchConsumer") if key == ApiKey.FETCH else (name,):
            for version, count in enumerate(broker.metrics.apis[key].versions):
                if count:
                    yield labels(request=request, version=version), count


def _errors(broker: Broker, named: list[tuple[int, str]]) -> Iterator[Row]:
    for key, name in named:
        for code, count in sorted(broker.metrics.apis[key].errors.items()):
            yield labels(request=name, error=ErrorCode(code).name), count


def _quantiles(recent: Recent, named: list[tuple[int, str]]) -> Iterator[Row]:
    for key, name in named:
        histogram = recent.requests(key)
        for quantile in QUANTILES:
            yield labels(request=name, quantile=quantile), histogram.quantile(float(quantile))


async def write_transactions(page: Exposition, broker: Broker) -> None:
    """Write the series of open transactions, ended transactions and refusals."""
    metrics, known = broker.metrics, broker.metrics.transactions
    ids, states, oldest_ms = await _open_transactions(broker)
    await page.write_one(f.TRANSACTIONAL_IDS, ids)
    await page.write(f.TRANSACTIONS, ((labels(state=state), count) for state, count in states.items()))
    await page.write_one(f.OLDEST_OPEN, oldest_ms / 1000)
    await page.write_one(f.BEGUN, known.begun)
    ended = ((labels(outcome="commit"), known.committed), (labels(outcome="abort"), known.aborted))
    await page.write(f.ENDED, ended)
    await page.write_one(f.TIMED_OUT, known.timed_out)
    await page.write_histograms(f.MARKER_PHASE, (("", known.marker_phase),), _MS)
    await page.write_one(f.FENCED, metrics.fenced)
    await page.write_one(f.DUPLICATES, metrics.duplicates)
    await page.write_one(f.DIFFERING, metrics.differing_duplicates)
    await page.write_one(f.GAPS, metrics.sequence_gaps)
    await page.write_one(f.REUSED, metrics.reused_sequences)


async def _open_transactions(broker: Broker) -> tuple[int, dict[str, int], int]:
    """Return the number of ids, the transactions by state, and the age of the oldest open one in milliseconds.

    This does not walk over all ids: those that wait for markers are among the ids with transient state.
    """
    turns, began_ms = broker.turns, oldest_start_ms(broker)
    oldest_ms = 0 if began_ms is None else max(0, broker.clock.now_ms() - began_ms)
    ids = ongoing = 0
    prepared = dict.fromkeys(sorted(PREPARED), 0)
    for shard in broker.transaction_shards():
        await turns.spend(LOOKUP_US)
        ids += len(shard.states)
        ongoing += len(shard.open)
        for transactional_id in [*shard.transient]:
            await turns.spend(LOOKUP_US)
            state = shard.states.get(transactional_id)
            if state is not None and state.status in prepared:
                prepared[state.status] += 1
    states = {ONGOING.wire_name: ongoing} | {status.wire_name: count for status, count in prepared.items()}
    return ids, states, oldest_ms


async def write_loop(page: Exposition, broker: Broker, started_ms: int) -> None:
    """Write the series of the loop, the disk, the memory and the process."""
    metrics = broker.metrics
    waits = [(labels(cause=cause), waits) for cause, waits in metrics.waits.items()]
    await page.write(f.WAITS, ((row, each.begun) for row, each in waits))
    await page.write(f.WAIT_SECONDS, ((row, each.ms * _MS) for row, each in waits))
    turns: list[tuple[Labels, Histogram]] = [] if metrics.turns is None else [("", metrics.turns)]
    await page.write_histograms(f.TURNS, turns, _MS)
    await page.write_histograms(f.SYNCS, (("", metrics.syncs.time),), _MS)
    await page.write_histograms(f.SYNC_BATCHES, (("", metrics.syncs.batches),))
    await page.write_one(f.SYNC_FAILURES, metrics.syncs.failed)
    await page.write_one(f.CONNECTIONS, metrics.connections_accepted)
    quotas = broker.quotas
    throttled = [(labels(quota=key), each) for key, each in quotas.throttled.items()]
    connections = labels(quota=CONNECTION_CREATION_RATE), quotas.connections.throttled
    await page.write(f.THROTTLED, [*((row, each.times) for row, each in throttled), connections])
    await page.write(f.THROTTLE_SECONDS, ((row, each.ms * _MS) for row, each in throttled))
    memory = broker.memory
    parts = [
        (labels(of="requests"), memory.requests.held_bytes + memory.medium.held_bytes),
        (labels(of="replies"), memory.replies.held_bytes),
    ]
    await page.write(f.MEMORY, parts)
    limits = [
        (labels(of="requests"), memory.requests.limit_bytes + memory.medium.limit_bytes),
        (labels(of="replies"), memory.replies.limit_bytes),
    ]
    await page.write(f.MEMORY_LIMIT, limits)
    sessions = [each.fetch_sessions for each in broker.brokers]
    await page.write_one(f.FETCH_SESSIONS, sum(map(len, sessions)))
    await page.write_one(f.FETCH_SESSION_PARTITIONS, sum(each.partition_count for each in sessions))
    for family in f.FETCH_SESSION_EVICTIONS:
        await page.write_one(family, sum(each.evictions for each in sessions))
    volume = broker.logs.volume()
    if volume is not None:
        sizes = [(labels(of="total"), volume.total_bytes), (labels(of="usable"), volume.usable_bytes)]
        await page.write(f.DISK_BYTES, sizes)
    broker.turns.charge(3 * FILE_CALL_US)
    now = usage()
    await page.write_one(f.CPU, now.cpu_seconds)
    await page.write_one(f.RESIDENT, now.resident_bytes)
    await page.write_one(f.DESCRIPTORS, now.descriptors)
    await page.write_one(f.MOST_DESCRIPTORS, now.most_descriptors)
    await page.write_one(f.STARTED, started_ms / 1000)
