"""Attacks of one unauthenticated client on the broker, each with a few hundred bytes. free

An attack first prepares its state (`prepare`, not measured), and then runs (`strike`) while a pinger measures.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from parts import raw
from parts.others import hostile
from parts.others.stage import PING, Stage

MEBIBYTE = 1 << 20
PIPELINED = 50
ATTEMPTS = 2_400


def nothing(stage: Stage) -> None:
    """Prepare nothing: the initial state is enough."""


class Attack(NamedTuple):
    """Attack, or ordinary load.

    `name` is for `--only`. `limit` is the descriptor limit of our broker. `kafka`: it also runs against Apache Kafka.
    `data` fills the data directory before our broker starts. `admin`: our broker has an admin port.
    """

    name: str
    title: str
    strike: Callable[[Stage], None]
    prepare: Callable[[Stage], None] = nothing
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    kafka: bool = True
    data: Callable[[Path], None] | None = None
    admin: bool = False


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def names(count: int, prefix: str = "topic") -> list[str]:
    return [f"{prefix}-{number:05d}" for number in range(count)]


# --- OffsetFetch

OFFSETS, METADATA_BYTES, ROWS_AT_ONCE = 3_000, 4_000, 200


def commit_long_metadata(stage: Stage) -> None:
    stage.create(["offsets"], OFFSETS)
    ready(stage, "greedy", 0)
    text = "m" * METADATA_BYTES
    for start in range(0, OFFSETS, ROWS_AT_ONCE):
        rows = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": text}
            for index in range(start, start + ROWS_AT_ONCE)
        ]
        answer = stage.ask(
            ApiKey.OFFSET_COMMIT,
            2,
            group_id="greedy",
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=-1,
            topics=[{"name": "offsets", "partitions": rows}],
        )
        raw.check(answer.topics[0].partitions[0].error_code)


def ready(stage: Stage, key: str, kind: int) -> None:
    """Wait for the coordinator of a group (0) or transactional id (1)."""
    for _ in range(ATTEMPTS):
        found = stage.ask(ApiKey.FIND_COORDINATOR, 3, key=key, key_type=kind).error_code
        if not found and not (kind == 0 and _loading(stage, key)):
            return
        time.sleep(0.05)
    raise SystemExit(f"no coordinator for {key}")


def _loading(stage: Stage, group: str) -> bool:
    return bool(stage.ask(ApiKey.OFFSET_FETCH, 2, group_id=group, topics=[]).error_code)


def fetch_offsets(times: int) -> Callable[[Stage], None]:
    def strike(stage: Stage) -> None:
        groups = [{"group_id": "greedy", "topics": None}] * times
        stage.send(hostile.frame(ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=False))

    return strike


# --- ListTransactions

IDS, ID_LENGTH, CROWD = 20, 200, 600


def open_long_ids(stage: Stage) -> None:
    for number in range(IDS):
        name = f"{'a' * (ID_LENGTH - 3)}{number:03d}"
        ready(stage, name, 1)
        init(stage, name)


def init(stage: Stage, name: str) -> None:
    for _ in range(ATTEMPTS):
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        error = stage.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields).error_code
        if not raw.check(error, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return
        time.sleep(0.05)


def init_producers(transactional: bool) -> Callable[[Stage], None]:
    """Return an attack that pipelines InitProducerId on many connections, whose requests all wait for the same work."""

    def strike(stage: Stage) -> None:
        fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        names = [f"flood-{number}" if transactional else None for number in range(CROWD * PIPELINED)]
        frames = [hostile.frame(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, **fields) for name in names]
        stage.send_each([frames[start::CROWD] for start in range(CROWD)])

    return strike


def list_by_pattern(stage: Stage) -> None:
    pattern = r"\b?" + "a?" * 4000
    stage.send(
        hostile.frame(
            ApiKey.LIST_TRANSACTIONS,
            2,
            state_filters=[],
            producer_id_filters=[],
            duration_filter=-1,
            transactional_id_pattern=pattern,
        )
    )


# --- ListOffsets

LOGS, RECORDS = 50, 18_000


def write_large_batches(stage: Stage) -> None:
    stage.create(["large"], LOGS)
    start_ms = now_ms() - RECORDS
    batch = build_batch([(None, b"x" * 40, (), start_ms + number) for number in range(RECORDS)])
    for partition in range(LOGS):
        raw.check(stage.produce("large", partition, batch))
    stage.noted["latest"] = start_ms + RECORDS - 1


def list_by_time(stage: Stage) -> None:
    rows = [{"partition_index": index, "timestamp": stage.noted["latest"]} for index in range(LOGS)]
    stage.send(
        hostile.frame(
            ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=0, topics=[{"name": "large", "partitions": rows}]
        )
    )


# --- Fetch

UNREAD, FETCHED = 60, 55 * MEBIBYTE


def write_mebibytes(stage: Stage) -> None:
    stage.create(["bytes"])
    batch = build_batch([(None, random.Random(1).randbytes(MEBIBYTE - 1_000))], timestamp_ms=now_ms())
    for _ in range(56):
        raw.check(stage.produce("bytes", 0, batch))


def fetch_and_never_read(stage: Stage) -> None:
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
    request = hostile.frame(
        ApiKey.FETCH,
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCHED,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "bytes", "partitions": [row | {"partition_max_bytes": FETCHED}]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    talks = [stage.talk([request], receive_bytes=4096) for _ in range(UNREAD)]
    hostile.hold(talks, min(stage.deadline, time.monotonic() + 8))
    for talk in talks:
        talk.due = 0


# --- connections

DESCRIPTORS, TOO_MANY, IDLE, IDLE_SOME = 1_024, 1_124, 5_000, 300


def idle_beyond_descriptors(stage: Stage) -> None:
    hold_idle(stage, TOO_MANY, 3.0)


def idle_many(stage: Stage) -> None:
    before_mb = stage.memory.now_mb()
    hold_idle(stage, IDLE, 1.0, hostile.frame(ApiKey.API_VERSIONS, 0))
    stage.noted["bytes_each"] = (stage.memory.now_mb() - before_mb) * 1e6 / IDLE


def idle_some(stage: Stage) -> None:
    hold_idle(stage, IDLE_SOME, 2.0)


def hold_idle(stage: Stage, count: int, seconds: float, *asked: bytes) -> None:
    for _ in range(count):
        try:
            stage.talk(asked)
        except OSError:
            stage.noted["refused"] = stage.noted.get("refused", 0) + 1
    hostile.converse(stage.talks, stage.deadline)
    time.sleep(seconds)


# --- Produce

PRODUCED = 10_000_000


def create_zstd(stage: Stage) -> None:
    stage.create(["zstd"], compression_type="zstd", compression_zstd_level="22", max_message_bytes=str(4 * PRODUCED))


def produce_zstd(stage: Stage) -> None:
    words = [random.Random(number).randbytes(12).hex().encode() for number in range(2_000)]
    draw = random.Random(3)
    value_bytes = 1_000
    values = (b" ".join(draw.choices(words, k=value_bytes // 25)) for _ in range(PRODUCED // value_bytes))
    batch = bytes(build_batch([(None, value) for value in values], timestamp_ms=now_ms()))
    rows = [{"name": "zstd", "partition_data": [{"index": 0, "records": batch}]}]
    stage.send(hostile.frame(ApiKey.PRODUCE, 8, transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=rows))


# --- topics


def delete_300(stage: Stage) -> None:
    delete(stage, names(300))


def create_8000(stage: Stage) -> None:
    stage.create(["wide"], 8_000)


def delete_8000(stage: Stage) -> None:
    delete(stage, ["wide"])


def delete(stage: Stage, topics: list[str]) -> None:
    stage.send(hostile.frame(ApiKey.DELETE_TOPICS, 5, topic_names=topics, timeout_ms=60_000))
    time.sleep(1)


def create_by_asking(count: int) -> Callable[[Stage], None]:
    def strike(stage: Stage) -> None:
        topics = [{"name": name} for name in names(count)]
        stage.send(hostile.frame(ApiKey.METADATA, 7, topics=topics, allow_auto_topic_creation=True))

    return strike


def create_many(count: int) -> Callable[[Stage], None]:
    return lambda stage: stage.create(names(count))


def describe_configs(count: int) -> Callable[[Stage], None]:
    def strike(stage: Stage) -> None:
        rows = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names(count)]
        asked = {"resources": rows, "include_synonyms": True, "include_documentation": True}
        stage.send(hostile.frame(ApiKey.DESCRIBE_CONFIGS, 4, **asked))

    return strike


def create_10000_partitions(stage: Stage) -> None:
    for name in names(10, "wide"):
        stage.create([name], 1_000)


def ask_metadata(stage: Stage) -> None:
    stage.send(*[hostile.frame(ApiKey.METADATA, 7, topics=None, allow_auto_topic_creation=False)] * PIPELINED)


def describe_log_dirs(stage: Stage) -> None:
    stage.send(hostile.frame(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None))


# --- groups


def describe_groups(stage: Stage) -> None:
    groups = names(16_000, "group")
    stage.send(hostile.frame(ApiKey.DESCRIBE_GROUPS, 5, groups=groups, include_authorized_operations=False))


def join_greedily(stage: Stage) -> None:
    protocols = [{"name": f"protocol-{number:05d}", "metadata": b"m" * 30} for number in range(15_000)]
    request = hostile.frame(
        ApiKey.JOIN_GROUP,
        3,
        group_id="crowded",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=3_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    stage.send_each([[request]] * 100)


def find_group(stage: Stage) -> None:
    ready(stage, "crowded", 0)


ATTACKS = (
    Attack("offset-fetch-20", "OffsetFetch 8, 12 MB of a group 20 times", fetch_offsets(20), commit_long_metadata),
    Attack("offset-fetch-100", "  100 times", fetch_offsets(100), commit_long_metadata),
    Attack("list-transactions", "ListTransactions 2, a pattern of 8,000 characters", list_by_pattern, open_long_ids),
    Attack(
        "init-producer-id",
        "InitProducerId by 600 connections, 50 pipelined",
        init_producers(transactional=False),
        open_long_ids,
    ),
    Attack(
        "init-transactions",
        "  each for a new transactional id",
        init_producers(transactional=True),
        open_long_ids,
    ),
    Attack("list-offsets", "ListOffsets by time, 50 batches of 18,000 records", list_by_time, write_large_batches),
    Attack("fetch-unread", "Fetch of 55 MiB by 60 connections that never read", fetch_and_never_read, write_mebibytes),
    Attack(
        "descriptors",
        "1,124 idle connections, 1,024 descriptors",
        idle_beyond_descriptors,
        overrides=("replica.high.watermark.checkpoint.interval.ms=500",),
        limit=DESCRIPTORS,
        kafka=False,
    ),
    Attack("zstd-22", "Produce of 10 MB, compression.type=zstd, level 22", produce_zstd, create_zstd),
    Attack("delete-300", "DeleteTopics of 300", delete_300, create_many(300)),
    Attack("create-200", "Metadata that creates 200", create_by_asking(200)),
    Attack("create-5000", "Metadata that creates 5,000", create_by_asking(5_000)),
    Attack("delete-8000", "DeleteTopics of one with 8,000 partitions", delete_8000, create_8000),
    Attack("describe-configs", "DescribeConfigs of 5,000 topics", describe_configs(5_000), create_many(5_000)),
    Attack("metadata-50", "Metadata of 10,000 partitions, 50 pipelined", ask_metadata, create_10000_partitions),
    Attack("describe-groups", "DescribeGroups of 16,000", describe_groups, find_group),
    Attack("describe-log-dirs", "DescribeLogDirs of 10,000 partitions", describe_log_dirs, create_10000_partitions),
    Attack("join-group", "JoinGroup of 100 members with 15,000 protocols each", join_greedily, find_group),
    Attack("idle", "5,000 idle connections", idle_many),
)

__all__ = ["ATTACKS", "PING", "Attack"]
