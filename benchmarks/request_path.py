"""Length of each request's code path: the files that it enters, and the calls that the interpreter makes. free

    python benchmarks/request_path.py                   seconds
    python benchmarks/request_path.py --files EndTxn    the files of one, in the order of the first call

A broker in memory on a virtual clock serves each request a few times. The last time is counted, from the bytes of the
request to those of the reply and the work after it in the same turn. The figures do not depend on the machine, and
depend a little on the version of Python.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import parts  # noqa: F401  # the package of this checkout

import ottla
from lab.in_memory.disk import MemoryDisk
from lab.simulation.network import Link, NetworkConditions
from lab.usage import command_line
from ottla.broker.assembly import Assembly
from ottla.broker.config import Config
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock
from ottla.testkit.in_memory.wire import message

ROUNDS = 3
STILL = NetworkConditions(delay_ms=0.0, stall=0.0, split=0.0, reset=0.0, late=0.0)
HOME = Path(ottla.__file__).parent
PLACES = {"topics": [{"name": "ledger", "partitions": [0, 1, 2]}]}
OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
FETCHED = {
    "partition": 0,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "partition_max_bytes": 10_000,
}


class Walk:
    """Files that one request entered, and its calls."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.c_calls = 0
        self._here: dict[str, str | None] = {}

    def count(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call. The interpreter calls this as its profile function. Calls in the testkit are not counted."""
        if event in ("call", "c_call"):
            path = frame.f_code.co_filename
            if path not in self._here:
                self._here[path] = _within(path)
            place = self._here[path]
            if place is not None and event == "call":
                self.files[place] += 1
            elif place is not None:
                self.c_calls += 1


def _within(path: str) -> str | None:
    try:
        place = Path(path).relative_to(HOME)
    except ValueError:
        return None
    return None if place.parts[0] == "testkit" else str(place)


class Counted:
    """Broker in memory with one client whose requests are counted."""

    def __init__(self) -> None:
        self.schedule, self.random, self.network = Schedule(), Random(1), STILL
        self.walks: dict[str, Walk] = {}
        self._replies = bytearray()
        self.clock = VirtualClock(self.schedule, PortCalls(), 0.0, lambda work: work())
        turns = Turns(self.clock.next_turn, _raise)
        self.clock.enter = turns.event
        disk = MemoryDisk(PortCalls(), Random(1), self._after_a_sync)
        config = Config(log_dirs="/data", offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
        world: Any = self
        self._link = Link(world, world, Assembly(config, self.clock, disk, turns).accept(), "client")
        self._rest(100.0)

    def ask(self, name: str, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request and return the reply. Its calls are counted under `name`; an empty name is not counted."""
        request = codec.encode_request(message(key, version, **fields), version, 1, "client")
        self._replies.clear()
        self._link.send(request)
        walk = Walk()
        sys.setprofile(walk.count if name else None)
        self._rest(1.0 if name else 100.0)
        sys.setprofile(None)
        if name:
            self.walks[name] = walk
        reply = codec.decode_response(key, version, bytes(self._replies[4:]))[1]
        if set(re.findall(r"error_code=(-?\d+)", str(reply))) - {"0"}:
            raise ValueError(f"{key.name} was refused: {reply}")
        return reply

    def _after_a_sync(self, work: Callable[[], None]) -> None:
        self.schedule.after(1.0, work)

    def _rest(self, for_ms: float) -> None:
        done: list[bool] = []
        self.schedule.at(self.schedule.now_ms + for_ms, lambda: done.append(True))
        while not done:
            self.schedule.run_next()

    # The methods that a Link calls on its world and on its client.

    def note(self, what: str, data: bytes) -> None:
        """Ignore the event: only simulations that compare runs record it."""

    def guard(self, work: Callable[[], None]) -> None:
        work()

    def on_data(self, link: Link, data: bytes) -> None:
        self._replies += data

    def lost(self, link: Link) -> None:
        raise ConnectionError("the broker closed the connection")


def _raise(error: BaseException) -> None:
    raise error


def build_produce(version: int, producer: tuple[int, int] | None, sequence: int) -> dict[str, Any]:
    """Return the fields of a Produce of one record."""
    of_producer: dict[str, Any] = {}
    if producer is not None:
        of_producer = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
    batch = build_batch(
        [(b"k", b"v" * 100)], timestamp_ms=1_700_000_000_000, transactional=bool(producer), **of_producer
    )
    topic = {"name": "ledger", "partition_data": [{"index": 0, "records": bytes(batch)}]}
    transactional_id = None if producer is None else "t"
    return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1_000, "topic_data": [topic]}


def play(broker: Counted) -> None:
    """Send a commit of offsets, a produce, a fetch, two transactions over three partitions and a group, a heartbeat."""
    topic = {"name": "ledger", "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    broker.ask("", ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1, validate_only=False)
    for kind, key in enumerate(("g", "t")):
        broker.ask("", ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key])
    new = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    found = broker.ask("", ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t", **new)
    producer = found.producer_id, found.producer_epoch
    member = {"member_id": "", "group_instance_id": None}
    offsets = {"group_id": "g", **member, "topics": [{"name": "ledger", "partitions": [OFFSET]}]}
    limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 10_000, "isolation_level": 1, "session_id": 0}
    for _ in range(ROUNDS):
        plain = {"generation_id_or_member_epoch": -1, "retention_time_ms": -1}
        broker.ask("OffsetCommit", ApiKey.OFFSET_COMMIT, 8, **offsets, **plain)
        broker.ask("Produce", ApiKey.PRODUCE, 9, **build_produce(9, None, 0))
        fetched = {"topics": [{"topic": "ledger", "partitions": [FETCHED]}], "forgotten_topics_data": []}
        broker.ask("Fetch", ApiKey.FETCH, 12, replica_id=-1, **limits, session_epoch=-1, **fetched, rack_id="")
        owner = {"transactional_id": "t", "producer_id": producer[0], "producer_epoch": producer[1]}
        added = {f"v3_and_below_{name}": value for name, value in (owner | PLACES).items()}
        broker.ask("AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added)
        broker.ask("Produce in a transaction", ApiKey.PRODUCE, 9, **build_produce(9, producer, 0))
        broker.ask("AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, 3, **owner, group_id="g")
        broker.ask("TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, 3, **owner, **offsets, generation_id=-1)
        broker.ask("EndTxn", ApiKey.END_TXN, 3, **owner, committed=True)
        broker.ask("Produce, V2", ApiKey.PRODUCE, 12, **build_produce(12, producer, 1))
        ended = broker.ask("EndTxn, V2", ApiKey.END_TXN, 5, **owner, committed=True)
        producer = ended.producer_id, ended.producer_epoch
    heartbeat = {"group_id": "c", "member_id": "m", "instance_id": None, "rack_id": None, "server_assignor": None}
    joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["ledger"], "topic_partitions": []}
    staying = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
    epoch = 0
    for number in range(ROUNDS + 1):
        fields = staying if number else joining
        beat = {**heartbeat, **fields, "subscribed_topic_regex": None, "member_epoch": epoch}
        name = "ConsumerGroupHeartbeat" if number else ""
        epoch = broker.ask(name, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **beat).member_epoch


def main() -> None:
    """Play, and print the table or the files of one request."""
    parser = command_line(__doc__)
    parser.add_argument("--files", metavar="REQUEST", help="list the files that this request meets")
    wanted = parser.parse_args().files
    broker = Counted()
    play(broker)
    if wanted is not None and wanted not in broker.walks:
        parser.error(f"{wanted} is none of {', '.join(broker.walks)}")
    if wanted is not None:
        for place, calls in broker.walks[wanted].files.items():
            print(f"{calls:4} {place}")
        return
    print("| request | files | calls of Python functions | of C functions |\n|---|---|---|---|")
    for name, walk in broker.walks.items():
        print(f"| {name} | {len(walk.files)} | {sum(walk.files.values())} | {walk.c_calls} |")


if __name__ == "__main__":
    main()
