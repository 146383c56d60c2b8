"""Cost of groups of the consumer protocol: heartbeats, a large group's assignment, a member that leaves. shell

    python benchmarks/consumer_groups.py                    half a minute
    python benchmarks/consumer_groups.py --against kafka    Apache Kafka beside it (Java 17 and Maven)

The members speak the protocol themselves, each on a connection of its own. CPU time is the broker's, of all its
threads. Ottla's longest turn is how long its event loop kept the other clients waiting (parts/watched.py); for both
brokers a second client measures how long it waits for an answer.
"""

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from parts import processes, raw
from parts.figures import Figures, Row, machine, show
from parts.options import parse_amount
from parts.processes import Broker
from parts.raw import cpu_s
from parts.side_by_side import watch_broker
from parts.watched import Watch

from lab.usage import command_line
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

HEARTBEAT_S = 5.0
GROUPS, MEMBERS_OF_GROUP = 100, 10
LARGE_GROUP, LARGE_TOPICS, PARTITIONS_OF_TOPIC = 500, 10, 1_000
# A new target may be computed this long after the last one (group.consumer.assignment.interval.ms).
ASSIGNMENT_INTERVAL_S = 1.0
REBALANCE_MS = 300_000
LAST_JOINS = 10
NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

Assignment = dict[UUID, list[int]]


def rows(name: str) -> tuple[Row, ...]:
    """Return the rows of one broker; the goals are Ottla's."""

    def row(key: str, label: str, unit: str, goal: float | None = None) -> Row:
        return Row(f"{name}_{key}", f"{name}: {label}", unit, goal if name == "ottla" else None)

    return (
        row("core_percent", f"{GROUPS * MEMBERS_OF_GROUP:,} members that heartbeat every 5 s, of a core", "%", 3),
        row("heartbeat_us", "  a heartbeat, CPU", "us"),
        row("join_ms", f"a join to {LARGE_GROUP} members over 10,000 partitions, CPU (median)", "ms"),
        row("assignment_s", "  the joins of all members and their assignment, CPU", "s"),
        row("turn_ms", "  longest turn of the event loop meanwhile", "ms", 20),
        row("wait_ms", "  longest wait of another client meanwhile, wall", "ms"),
        row("target_s", "  the heaviest heartbeat, CPU", "s", 0.5),
        row("beats", "heartbeats of a member until it has the partitions of one that left", "", 1),
        row("leave_ms", "  wall time from the leave to that, if it heartbeats at once", "ms"),
    )


class Member:
    """A member on a connection of its own."""

    def __init__(self, bootstrap: str, group: str, member_id: str, topics: list[str]) -> None:
        self.connection = raw.open_connection(bootstrap)
        self.group, self.member_id, self.topics = group, member_id, topics
        self.epoch = 0
        self.owned: Assignment = {}
        self._request = codec.request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT)

    def beat(self, is_full: bool = False) -> bool:
        """Send a heartbeat, take over the answer, and return whether it had an assignment."""
        given: dict[str, Any] = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
        if is_full or self.epoch == 0:
            given = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "subscribed_topic_names": self.topics,
                "topic_partitions": self._rows() if self.epoch else [],
            }
        reply = self._send(self.epoch, **given)
        self.epoch = reply.member_epoch
        if reply.assignment is None:
            return False
        self.owned = {UUID(str(row.topic_id)): [*row.partitions] for row in reply.assignment.topic_partitions}
        return True

    def leave(self) -> None:
        self._send(-1)
        self.connection.close()

    @property
    def partition_count(self) -> int:
        return sum(map(len, self.owned.values()))

    def _rows(self) -> list[Any]:
        row = self._request.TopicPartitions
        return [row(topic_id=topic_id, partitions=indexes) for topic_id, indexes in self.owned.items()]

    def _send(self, epoch: int, **given: Any) -> Any:
        while True:
            request = self._request(
                group_id=self.group, member_id=self.member_id, member_epoch=epoch, server_assignor="uniform", **given
            )
            reply = self.connection.send(request, 1)
            if not raw.check(reply.error_code, *NOT_YET):
                return reply
            time.sleep(0.1)


def settle(members: list[Member], partitions: int) -> None:
    """Send heartbeats, each with what the member owns, until all members own equally many partitions."""
    least, extra = divmod(partitions, len(members))
    balanced = [least] * (len(members) - extra) + [least + 1] * extra
    while sorted(member.partition_count for member in members) != balanced:
        for member in members:
            member.beat(is_full=True)


@contextlib.contextmanager
def other_client(bootstrap: str) -> Iterator[Callable[[], float]]:
    """Yield a function that returns the longest wait, in ms, of a client that asks without pause."""
    longest, ended = [0.0], threading.Event()

    def run() -> None:
        with raw.open_connection(bootstrap) as connection:
            while not ended.wait(0.001):
                began = time.perf_counter()
                raw.ask(connection, ApiKey.API_VERSIONS, 0)
                longest[0] = max(longest[0], (time.perf_counter() - began) * 1000)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: longest[0]
    finally:
        ended.set()
        thread.join()


def measure_heartbeats(broker: Broker, seconds: float) -> Figures:
    """Measure members that have their partitions and heartbeat, evenly spread over the interval."""
    assert broker.pid is not None
    with raw.open_connection(broker.bootstrap) as connection:
        raw.create_topic(connection, "steady", MEMBERS_OF_GROUP)
    names = [f"steady-{number}" for number in range(GROUPS)]
    groups = [
        [Member(broker.bootstrap, name, f"{name}-{number}", ["steady"]) for number in range(MEMBERS_OF_GROUP)]
        for name in names
    ]
    for members in groups:
        for member in members:
            member.beat()
    time.sleep(ASSIGNMENT_INTERVAL_S)
    for members in groups:
        settle(members, MEMBERS_OF_GROUP)
    everyone = [member for members in groups for member in members]
    began, before, sent = time.perf_counter(), cpu_s(broker.pid), 0
    while time.perf_counter() - began < seconds:
        everyone[sent % len(everyone)].beat()
        sent += 1
        time.sleep(max(0.0, began + sent * HEARTBEAT_S / len(everyone) - time.perf_counter()))
    spent, wall = cpu_s(broker.pid) - before, time.perf_counter() - began
    for member in everyone:
        member.connection.close()
    rate = len(everyone) / HEARTBEAT_S
    return {"core_percent": 100 * spent / sent * rate, "heartbeat_us": 1e6 * spent / sent, "beats_a_s": sent / wall}


def measure_large_group(broker: Broker, watch: Watch | None) -> Figures:
    """Measure a group that grows to its size within one interval, and what its last members cost one by one."""
    assert broker.pid is not None
    topics = [f"large-{number}" for number in range(LARGE_TOPICS)]
    with raw.open_connection(broker.bootstrap) as connection:
        for topic in topics:
            raw.create_topic(connection, topic, PARTITIONS_OF_TOPIC)
    members = [Member(broker.bootstrap, "large", f"m-{number}", topics) for number in range(LARGE_GROUP)]
    began = cpu_s(broker.pid)
    with other_client(broker.bootstrap) as longest_wait_ms:
        if watch is not None:
            watch.reset()
        for member in members[:-LAST_JOINS]:
            member.beat()
        joins = []
        heaviest = 0.0
        for member in members[-LAST_JOINS:]:
            time.sleep(ASSIGNMENT_INTERVAL_S)
            before = cpu_s(broker.pid)
            member.beat()
            joins.append(cpu_s(broker.pid) - before)
            heaviest = max(heaviest, joins[-1])
        time.sleep(ASSIGNMENT_INTERVAL_S)
        settle(members, LARGE_TOPICS * PARTITIONS_OF_TOPIC)
        figures = {"wait_ms": longest_wait_ms()}
    if watch is not None:
        figures["turn_ms"] = watch.read()["turn_ms"]
    for member in members:
        member.connection.close()
    spent = cpu_s(broker.pid) - began
    return figures | {"join_ms": 1000 * statistics.median(joins), "target_s": heaviest, "assignment_s": spent}


def measure_leave(broker: Broker) -> Figures:
    """Measure how soon the others have the partitions of a member that left a group of three."""
    with raw.open_connection(broker.bootstrap) as connection:
        raw.create_topic(connection, "left", 6)
    members = [Member(broker.bootstrap, "left", f"m-{number}", ["left"]) for number in range(3)]
    for member in members:
        member.beat()
    time.sleep(ASSIGNMENT_INTERVAL_S)
    settle(members, 6)
    time.sleep(ASSIGNMENT_INTERVAL_S)
    began = time.perf_counter()
    members.pop().leave()
    beats = 0
    while sum(member.partition_count for member in members) != 6:
        beats += 1
        for member in members:
            member.beat()
    wall_ms = (time.perf_counter() - began) * 1000
    for member in members:
        member.connection.close()
    return {"beats": beats, "leave_ms": wall_ms}


def measure(broker: Broker, watch: Watch | None, seconds: float) -> Figures:
    with raw.open_connection(broker.bootstrap) as connection:  # which makes `__consumer_offsets`
        raw.ask(connection, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["steady"])
    figures = measure_heartbeats(broker, seconds) | measure_leave(broker) | measure_large_group(broker, watch)
    return {f"{broker.name}_{key}": value for key, value in figures.items()}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=parse_amount, default=15, help="of heartbeats")
    parser.add_argument("--against", choices=["kafka"], help="measure Apache Kafka too")
    parser.add_argument(
        "--kafka-script", type=Path, default=Path(os.environ.get("KAFKA_SCRIPT", processes.KAFKA_SCRIPT))
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    on = machine()
    with watch_broker() as (broker, watch):
        figures = measure(broker, watch, options.seconds)
    shown = rows("ottla")
    if options.against:
        with processes.apache_kafka(options.kafka_script) as broker:
            figures |= measure(broker, None, options.seconds)
        shown += rows("kafka")
    show(shown, figures, on, options.format)


if __name__ == "__main__":
    main()
