"""Ordinary load, one entry for each kind: requests of well-behaved clients, and the broker's own work. free"""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.checkpoints import CLEAN_SHUTDOWN
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from parts import populate, processes, raw
from parts.others.attacks import Attack, names, now_ms, ready
from parts.others.stage import Stage, open_stage

LOAD_S = 10.0
PRODUCERS, GROUPS, IDS, ABORTED = 16, 100, 1_000_000, 100_000
CROWDED = "crowded"
COMPACTED, RETAINED, SEGMENT_BYTES = 8, 20, 1 << 20
KEYS, KEYED_BATCHES, RECORDS, OLD_BATCHES = 20_000, 40, 5_000, 8
WIDE_TOPICS, WIDE = 10, 1_000

Worker = Callable[[Callable[[], bool]], int]


def load_s(stage: Stage) -> float:
    return min(LOAD_S, stage.seconds)


def side_by_side(stage: Stage, unit: str, workers: Sequence[Worker]) -> None:
    """Run each worker in a thread for `load_s`. It gets a function that says whether to go on, and returns a count."""
    until = time.monotonic() + load_s(stage)
    counts: list[int] = []

    def run(worker: Worker) -> None:
        with contextlib.suppress(OSError):
            counts.append(worker(lambda: time.monotonic() < until))

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(1.0, stage.deadline - time.monotonic()))
    stage.noted[unit] = stage.noted.get(unit, 0) + round(sum(counts) / load_s(stage))


# --- transactions


def create_for_producers(stage: Stage) -> None:
    stage.create(["ledger"], PRODUCERS)
    ready(stage, "producer-0", 1)


def transact(stage: Stage) -> None:
    side_by_side(stage, "transactions/s", [producer(stage, number) for number in range(PRODUCERS)])


def producer(stage: Stage, number: int) -> Worker:
    def work(going: Callable[[], bool]) -> int:
        with raw.open_connection(stage.broker.bootstrap) as connection:
            sender = raw.Transactional(connection, f"producer-{number}", "ledger", v2=True, partition=number)
            count = 0
            while going():
                sender.transact(commit=count % 10 != 9)
                count += 1
        return count

    return work


TRACES, TRACE = 60, b"GET /v1/trace?verbose=true HTTP/1.1\r\nHost: localhost\r\n\r\n"


def transact_unread(stage: Stage) -> None:
    """Run transactions while traces of the admin port read the status line of their reply and nothing more."""
    host, _, port = stage.broker.admin.rpartition(":")
    with contextlib.ExitStack() as stack:
        traces = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(TRACES)]
        for trace in traces:
            trace.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            trace.sendall(TRACE)
        stage.noted["listeners"] = sum(trace.recv(12).endswith(b" 200") for trace in traces)
        transact(stage)


# --- groups


def find_groups(stage: Stage) -> None:
    ready(stage, "group-00000", 0)


def rebalance(stage: Stage) -> None:
    side_by_side(stage, "rebalances/s", [restless(stage, name) for name in names(GROUPS, "group")])


def restless(stage: Stage, group: str) -> Worker:
    """Return a worker with two members of a group, which leave and rejoin in turn."""

    def work(going: Callable[[], bool]) -> int:
        with (
            raw.open_connection(stage.broker.bootstrap) as first,
            raw.open_connection(stage.broker.bootstrap) as second,
        ):
            members = {first: "", second: ""}
            count = 0
            while going():
                generation_of_both(group, members)
                leaver = first if count % 2 else second
                leaver.send(message(ApiKey.LEAVE_GROUP, 1, group_id=group, member_id=members[leaver]), 1)
                members[leaver] = ""
                count += 1
        return count

    return work


def generation_of_both(group: str, members: dict[BlockingConnection, str]) -> None:
    """Let both members join until they are in the same generation and have their assignments."""
    for connection, member_id in members.items():
        connection.post(join(group, member_id), 3)
    joined = {connection: connection.receive() for connection in members}
    for connection, answer in joined.items():
        members[connection] = "" if answer.error_code else answer.member_id
        given = [{"member_id": row.member_id, "assignment": b"a" * 50} for row in answer.members]
        connection.post(
            message(
                ApiKey.SYNC_GROUP,
                1,
                group_id=group,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                assignments=given,
            ),
            1,
        )
    for connection in members:
        connection.receive()


def join(group: str, member_id: str) -> object:
    return message(
        ApiKey.JOIN_GROUP,
        3,
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=2_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"m" * 50}],
    )


# --- the broker's own work


def write_keys(stage: Stage) -> None:
    stage.create(["keyed"], COMPACTED, cleanup_policy="compact", segment_bytes=str(SEGMENT_BYTES))
    draw = random.Random(7)
    for _ in range(KEYED_BATCHES):
        records = [(b"%08d" % draw.randrange(KEYS), b"v" * 100) for _ in range(RECORDS)]
        batch = build_batch(records, timestamp_ms=now_ms())
        for index in range(COMPACTED):
            raw.check(stage.produce("keyed", index, batch))


def compact(stage: Stage) -> None:
    configs = [{"name": "min.cleanable.dirty.ratio", "config_operation": 0, "value": "0.001"}]
    alter(stage, "keyed", configs)
    time.sleep(load_s(stage))


def alter(stage: Stage, topic: str, configs: list[dict[str, object]]) -> None:
    resources = [{"resource_type": 2, "resource_name": topic, "configs": configs}]
    answer = stage.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=resources, validate_only=False)
    raw.check(answer.responses[0].error_code)


def write_old(stage: Stage) -> None:
    stage.create(["old"], RETAINED, segment_bytes=str(SEGMENT_BYTES), retention_ms="-1")
    batch = build_batch([(None, bytes(900_000))], timestamp_ms=now_ms() - 3_600_000)
    for _ in range(OLD_BATCHES):
        for index in range(RETAINED):
            raw.check(stage.produce("old", index, batch))


def retain(stage: Stage) -> None:
    alter(stage, "old", [{"name": "retention.ms", "config_operation": 0, "value": "1000"}])
    time.sleep(load_s(stage))


def create_and_delete(stage: Stage) -> None:
    wide = names(WIDE_TOPICS, "wide")
    for name in wide:
        stage.create([name], WIDE)
    answer = stage.ask(ApiKey.DELETE_TOPICS, 5, topic_names=wide, timeout_ms=60_000)
    for row in answer.responses:
        raw.check(row.error_code, ErrorCode.REQUEST_TIMED_OUT)
    time.sleep(2)


def write_ids(count: int) -> Callable[[Path], None]:
    def write(data_dir: Path) -> None:
        with processes.ottla(data_dir) as broker:
            populate.prepare(broker, data_dir)
        populate.write_idle_ids(data_dir, count)
        with processes.ottla(data_dir):
            pass  # the broker rebuilds the indexes, and closes

    return write


def expire_ids(stage: Stage) -> None:
    """Wait until all transactional ids have expired."""
    wait_for_ids(stage)
    while time.monotonic() < stage.deadline:
        answer = stage.ask(ApiKey.LIST_TRANSACTIONS, 1, **ALL_TRANSACTIONS)
        stage.noted["ids left"] = len(answer.transaction_states)
        if not answer.transaction_states:
            return
        time.sleep(0.5)


def write_producers(data_dir: Path) -> None:
    with processes.ottla(data_dir) as broker, open_stage(broker, LOAD_S) as stage:
        stage.create([CROWDED])
        raw.check(
            stage.produce(
                CROWDED,
                0,
                build_batch([(None, b"v")], timestamp_ms=now_ms(), producer_id=1, producer_epoch=0, base_sequence=0),
            )
        )
    populate.write_producers(data_dir / f"{CROWDED}-0", IDS)


def write_aborts(data_dir: Path) -> None:
    """Write aborted transactions of one record to a log, and let a broker close it."""
    with processes.ottla(data_dir) as broker, open_stage(broker, LOAD_S) as stage:
        stage.create([CROWDED])
        ready(stage, "id", 1)
    populate.append_aborts(data_dir / f"{CROWDED}-0", ABORTED)
    (data_dir / CLEAN_SHUTDOWN).unlink()  # the indexes have to be rebuilt
    with processes.ottla(data_dir):
        pass


def write_partitions(data_dir: Path) -> None:
    with processes.ottla(data_dir) as broker, open_stage(broker, LOAD_S) as stage:
        for name in names(WIDE_TOPICS, "wide"):
            stage.create([name], WIDE)
        ready(stage, "group", 0)
        ready(stage, "id", 1)
    (data_dir / CLEAN_SHUTDOWN).unlink()  # the broker recovers every log


def settle(stage: Stage) -> None:
    """Wait while the broker does the work that its start has postponed."""
    time.sleep(load_s(stage))


def ask_for_the_end(stage: Stage) -> None:
    """Request the end offset of the partition that takes long to open."""
    row = {"partition_index": 0, "timestamp": -1}
    answer = stage.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": CROWDED, "partitions": [row]}])
    raw.check(answer.topics[0].partitions[0].error_code)


def read_aborts(stage: Stage) -> None:
    """Fetch as much as one Fetch may return, twice. The second time the transaction index has been read already."""
    for _ in range(2):
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
        request = message(
            ApiKey.FETCH,
            4,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 30,
            isolation_level=1,
            topics=[{"topic": CROWDED, "partitions": [row]}],
        )
        (answer,) = stage.connection.send(request, 4).responses[0].partitions
        raw.check(answer.error_code)
        stage.noted["aborted"] = len(answer.aborted_transactions)


def wait_for_ids(stage: Stage) -> None:
    """Wait until the last shard of the transaction coordinator has been loaded."""
    while time.monotonic() < stage.deadline:
        answer = stage.ask(ApiKey.LIST_TRANSACTIONS, 1, **ALL_TRANSACTIONS | {"state_filters": ["Ongoing"]})
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        time.sleep(0.1)


ALL_TRANSACTIONS = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
EXPIRING = ("transactional.id.expiration.ms=1000", "transaction.remove.expired.transaction.cleanup.interval.ms=1000")
OFTEN = ("log.cleaner.backoff.ms=200", "log.retention.check.interval.ms=200", "log.segment.delete.delay.ms=500")

LOADS = (
    Attack("producers", "16 producers, transactions of one record", transact, create_for_producers),
    Attack(
        "traces",
        "  and 60 traces of them that are never read",
        transact_unread,
        create_for_producers,
        kafka=False,
        admin=True,
    ),
    Attack("rebalances", "100 groups rebalancing", rebalance, find_groups),
    Attack("compaction", "compaction of 8 logs of 22 MB", compact, write_keys, overrides=OFTEN, kafka=False),
    Attack("retention", "retention of 20 logs with 8 segments", retain, write_old, overrides=OFTEN, kafka=False),
    Attack("partitions", "10,000 partitions created and deleted", create_and_delete),
    Attack("start", "start with 10,000 partitions after a crash", settle, kafka=False, data=write_partitions),
    Attack("open", "opening a partition with 1,000,000 producers", ask_for_the_end, kafka=False, data=write_producers),
    Attack("aborted", "100,000 aborted transactions in a Fetch", read_aborts, kafka=False, data=write_aborts),
    Attack("ids", "1,000,000 transactional ids loaded", wait_for_ids, kafka=False, data=write_ids(IDS)),
    Attack(
        "expiry",
        "100,000 transactional ids that expire",
        expire_ids,
        overrides=EXPIRING,
        kafka=False,
        data=write_ids(IDS // 10),
    ),
)

__all__ = ["LOADS"]
