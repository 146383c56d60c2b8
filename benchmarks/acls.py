"""Cost of 100,000 ACLs: to load them, to hold them in memory, and to authorize a request. free

    python benchmarks/acls.py [--entries 100000] [--rounds 5]

Times are CPU time of this process, the minimum of the rounds. Memory is counted without the entries themselves, which
the metadata image holds. `first` is an authorization that is not cached yet, `again` one that is cached, `any topic`
the first check for an idempotent producer without a transactional id. The last line is a Produce of one record to one
topic, from its frame to its reply on a broker in memory. Brokers with and without an authorizer take turns.
"""

import gc
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from statistics import median
from typing import TypeVar

from parts.options import parse_count

from lab.in_memory.disk import MemoryDisk
from lab.usage import command_line
from ottla.broker.config import Config
from ottla.broker.security.acl import AclAuthorizer
from ottla.broker.security.authorizer import Need
from ottla.broker.security.session import Session
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.broker import BrokerInMemory
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule
from ottla.testkit.in_memory.wire import Request
from ottla.testkit.in_memory.wire import message as _message

T = TypeVar("T")

ASKED = 5_000
PRODUCED = 1_000
WRITE = Need(AclOperation.WRITE, ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
ME = Session(peer="10.0.0.1:40000", principal="User:client-7")


def _entry(number: int, name: str, principal: str, pattern: PatternType, host: str = "*") -> AccessControlEntryRecord:
    operation, allow = AclOperation.WRITE, PermissionType.ALLOW
    return AccessControlEntryRecord(
        number.to_bytes(16, "big"), ResourceType.TOPIC, name, pattern, principal, host, operation, allow
    )


def teams(count: int) -> Iterator[AccessControlEntryRecord]:
    """Yield entries of a thousand clients, each for its own topic; each tenth is a prefix of one of 40 lengths."""
    for number in range(count):
        if number % 10:
            yield _entry(
                number, f"team-{number % 100}-topic-{number}", f"User:client-{number % 1_000}", PatternType.LITERAL
            )
        else:
            prefix = f"team-{number % 100}-{number}-".ljust(12 + number // 10 % 40, "x")
            yield _entry(number, prefix, f"User:client-{number % 1_000}", PatternType.PREFIXED)


def one_topic(count: int) -> Iterator[AccessControlEntryRecord]:
    """Yield entries of different clients for the same topic."""
    for number in range(count):
        yield _entry(number, "team-7-topic-7", f"User:client-{number}", PatternType.LITERAL)


def hosts(count: int) -> Iterator[AccessControlEntryRecord]:
    """Yield entries with a topic, a client and a host each."""
    for number in range(count):
        host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        yield _entry(number, f"team-{number % 100}-topic-{number}", f"User:client-{number}", PatternType.LITERAL, host)


def measure(entries: list[AccessControlEntryRecord], rounds: int) -> tuple[float, float, float, float, float]:
    """Return (MB, seconds to load, us of the first check, us of the same check again, us of the any-topic check)."""
    gc.collect()
    tracemalloc.start()
    kept = _load(entries)
    size_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    names = [f"team-{number % 100}-topic-{number}" for number in range(ASKED)]
    times = []
    for _ in range(rounds):
        gc.collect()
        load_s, authorizer = _time(lambda: _load(entries))
        ask = authorizer.authorize

        def all_names(ask: Callable[[Session, Need, str], bool] = ask) -> None:
            for name in names:
                ask(ME, WRITE, name)

        first_s, _ = _time(all_names)
        again_s, _ = _time(all_names)
        any_s, _ = _time(lambda authorizer=authorizer: authorizer.authorize_by_resource_type(ME, WRITE))
        times.append((load_s, first_s / ASKED * 1e6, again_s / ASKED * 1e6, any_s * 1e6))
    load_s, first_us, again_us, any_us = map(min, zip(*times, strict=True))
    return size_bytes / 1e6, load_s, first_us, again_us, any_us


def _load(entries: list[AccessControlEntryRecord]) -> AclAuthorizer:
    authorizer = AclAuthorizer()
    for entry in entries:
        authorizer.add(entry)
    return authorizer


def _time(work: Callable[[], T]) -> tuple[float, T]:
    start_s = time.process_time()
    result = work()
    return time.process_time() - start_s, result


def produce_us(entries: list[AccessControlEntryRecord], rounds: int) -> tuple[float, float]:
    """Return the least time without an authorizer, and the median of what an authorizer adds to it; both in us."""
    disk = MemoryDisk(PortCalls(), Random(1), lambda work: work())
    broker = BrokerInMemory(disk, disk.ports, Schedule(), Config(log_dirs="/data"))
    row = {"name": "ledger", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    broker.call(Request(ApiKey.CREATE_TOPICS, 5, _message(ApiKey.CREATE_TOPICS, 5, topics=[row], timeout_ms=1)))
    batch = bytes(build_batch([(b"k", b"v" * 100)], timestamp_ms=1_700_000_000_000))
    topic = {"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": [topic]}
    frame = codec.encode_request(_message(ApiKey.PRODUCE, 9, **fields), 9, 1, "client")[4:]
    start, broker_of, refused = broker.assembly.dispatchers[0].start, broker.assembly.broker, list[str]()

    def once() -> None:
        start(memoryview(bytearray(frame)), ME, lambda buffers, room: None, refused.append)

    def many() -> None:
        for _ in range(PRODUCED):
            broker.run_in_turn(once)

    authorizer = _load([*entries, _entry(len(entries), "ledger", ME.principal, PatternType.LITERAL)])
    least, more = math.inf, []
    for number in range(rounds * 4 + 1):
        broker_of.authorizer = None
        without_s, _ = _time(many)
        broker_of.authorizer = authorizer
        with_s, _ = _time(many)
        if number:  # the first round compiles
            least = min(least, without_s)
            more.append(with_s - without_s)
    if refused:
        raise ValueError(refused[0])
    return least / PRODUCED * 1e6, median(more) / PRODUCED * 1e6


def main() -> None:
    """Print a row for each distribution of the entries, and the cost of a request."""
    parser = command_line(__doc__)
    parser.add_argument("--entries", type=parse_count, default=100_000)
    parser.add_argument("--rounds", type=parse_count, default=5)
    given = parser.parse_args()
    print("| entries | memory, MB | load, s | first, us | again, us | any topic, us |\n|---|---|---|---|---|---|")
    for lie in (teams, one_topic, hosts):
        entries = list(lie(given.entries))
        figures = measure(entries, given.rounds)
        name = lie.__name__.replace("_", " ")
        print(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    least_us, more_us = produce_us([*teams(given.entries)], given.rounds)
    print(f"\nProduce of one topic: {least_us:.1f} us without an authorizer, {more_us:.1f} us more with one")


if __name__ == "__main__":
    main()
