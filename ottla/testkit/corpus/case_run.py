"""Environment that runs the script of a case: an in-memory broker on virtual time. free

Each request to the broker is also entered into the books, so they contain what the script intended.
"""

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, Final

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.config import Config
from ottla.broker.ports.disk import SyncJob
from ottla.broker.txn.end_txn_rules import V2 as V2_LEVEL
from ottla.broker.txn.log import encode_change
from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import NO_PARTITIONS, TransactionState
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import NewRecord
from ottla.protocol.requests.structs import error_codes
from ottla.protocol.values import NO_TIMESTAMP, ProducerIdAndEpoch, TopicPartition
from ottla.testkit.corpus.expected import LOG_APPEND_TIME, ExpectedPartition
from ottla.testkit.in_memory.broker import BrokerInMemory
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.ram_disk import RamDisk
from ottla.testkit.in_memory.schedule import START_MS, Schedule
from ottla.testkit.in_memory.wire import Request, request

DIRECTORY: Final = "/data"
BEGIN_MS: Final = 1_767_225_600_000
"""1 January 2026. Future times would be a separate case, and would hide hanging transactions."""
STEP_MS: Final = 1_000.0
TIMEOUT_MS: Final = 900_000
_FILES_GO_MS: Final = 61_000.0
"""Longer than `file.delete.delay.ms`."""
_TRIES: Final = 50
_FOR_GROUPS, _FOR_TRANSACTIONS = 0, 1

Line = str | NewRecord
"""A record of a script: its value, or all of it."""


class Refused(Exception):
    """The broker refused a step of the script: a bug in the script or the broker."""


class _CaseDisk(RamDisk):
    """The files of a case. Its random ids depend on the name of the case only, and a sync ends in a later event."""

    def __init__(self, name: str, schedule: Schedule) -> None:
        super().__init__()
        self._random = Random(name)
        self._schedule = schedule

    def random_id(self) -> bytes:
        return self._random.randbytes(16)

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        if on_end is not None:
            self._schedule.after(0.0, on_end)
        return super().start_sync(paths)


class CaseRun:
    """Run of a case's script. By default the topic has the name of the case."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.expected: dict[TopicPartition, ExpectedPartition] = {}
        self.transactions: dict[str, tuple[str, ProducerIdAndEpoch]] = {}
        """State, producer id and epoch of each transactional id, as its coordinator has them."""
        self.offsets: dict[tuple[str, str, int], tuple[int | None, bool]] = {}
        """(group, topic, partition): the committed offset, and whether an open transaction has a later one."""
        self.stopped_cleanly = True
        self._stamping: set[str] = set()
        self.edits: list[Callable[[dict[str, bytes]], None]] = []
        """Changes to make to the files ({path: content}) after the broker has ended."""
        self._schedule = Schedule()
        self._schedule.now_ms = float(BEGIN_MS - START_MS)
        self._disk = _CaseDisk(name, self._schedule)
        self._disk.make_dirs(DIRECTORY)
        config = Config(
            log_dirs=DIRECTORY,
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            transaction_max_timeout_ms=TIMEOUT_MS,
            **options,
        )
        self.broker = BrokerInMemory(self._disk, PortCalls(), self._schedule, config)

    # Steps of a script.

    def topic(self, name: str | None = None, partitions: int = 1, **configs: str) -> None:
        """Create a topic; names of configs have underscores instead of dots."""
        rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        # No retention by time, whenever a broker serves the files.
        rows.append({"name": "retention.ms", "value": "-1"})
        named = name or self.name
        row = {"name": named, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": rows}
        self.ask(ApiKey.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False)
        for index in range(partitions):
            self.expected[named, index] = ExpectedPartition(named, index)
        if configs.get("message_timestamp_type") == LOG_APPEND_TIME:
            self._stamping.add(named)

    def send(self, *lines: Line, partition: int = 0, **batch: Any) -> None:
        """Send a batch of records without a producer id."""
        records = [new_record(line, "nobody", index) for index, line in enumerate(lines)]
        content = build_batch(records, **{"timestamp_ms": self.now_ms} | batch)
        self.send_bytes(content, records, partition, batch.get("timestamp_ms", self.now_ms))

    def send_bytes(self, content: bytearray, records: list[NewRecord], partition: int, timestamp_ms: int) -> None:
        """Send an encoded batch without a producer id; `records` are its records."""
        place = self.name, partition
        self.produce(None, place, bytes(content))
        self.expected[place].append(records, timestamp_ms, append_time_ms=self.append_time_ms(self.name))
        self.tick()

    def append_time_ms(self, topic: str) -> int | None:
        """Return the append time that the broker sets now; None if it keeps the producer's timestamps."""
        return self.now_ms if topic in self._stamping else None

    def compact(self, removed: Collection[int], forgotten: Collection[int] = ()) -> None:
        """Run the cleaner once; the script lists the offsets that it removes."""
        self.broker.run_in_turn(self.broker.assembly._cleaner.start)
        self.tick(_FILES_GO_MS)
        self.expected[self.name, 0].compact(removed, forgotten)

    def begin_late(self, transactional_id: str, epoch: int) -> None:
        """Create a transactional id at this epoch, before any other use of the coordinator."""
        cluster = self.broker.assembly.broker.cluster
        self.broker.complete(cluster.create_internal_topic(TRANSACTION_STATE_TOPIC))
        self.broker.complete(cluster.producer_ids())
        producer_id = cluster.next_producer_id()
        assert producer_id is not None
        state = TransactionState(
            producer_id,
            epoch,
            TransactionStatus.EMPTY,
            TIMEOUT_MS,
            NO_PARTITIONS,
            NO_TIMESTAMP,
            self.now_ms,
            producer_id,
        )
        log = cluster.partition(TRANSACTION_STATE_TOPIC, 0)
        assert log is not None
        log.append_own(encode_change(transactional_id, state, V2_LEVEL, self.now_ms))

    def tick(self, for_ms: float = STEP_MS) -> None:
        """Advance the time, so that each step has its own timestamp."""
        self.broker.advance(for_ms)

    def delete_records(self, before: int, partition: int = 0) -> None:
        """Move the start of the log."""
        rows = [{"partition_index": partition, "offset": before}]
        self.ask(ApiKey.DELETE_RECORDS, 1, topics=[{"name": self.name, "partitions": rows}], timeout_ms=1_000)
        self.expected[self.name, partition].delete_before(before)

    # Parts of the steps.

    @property
    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request until the broker is ready, and return the reply. Raises Refused."""
        return self.send_on(request(api_key, version, **fields))

    def send_on(self, ask: Request) -> Any:
        """Send a request, retry it on retriable errors, and return the reply. Raises Refused."""
        errors: list[ErrorCode] = []
        for _ in range(_TRIES):
            reply = self.broker.call(ask)
            errors = [ErrorCode(code) for code in error_codes(reply) if code]
            if not errors:
                return reply
            if not all(error.retriable for error in errors):
                break
            self.broker.advance(10.0)
        raise Refused(f"{self.name}: {type(ask.message).__name__}: {errors}")

    def produce(self, transactional_id: str | None, place: TopicPartition, batch: bytes, version: int = 12) -> None:
        """Send a batch."""
        rows = [{"index": place[1], "records": batch}]
        topics = [{"name": place[0], "partition_data": rows}]
        fields = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1_000, "topic_data": topics}
        self.ask(ApiKey.PRODUCE, version, **fields)

    def find_coordinator(self, key: str, for_groups: bool) -> None:
        """Create the internal topic that a group or a transactional id needs."""
        key_type = _FOR_GROUPS if for_groups else _FOR_TRANSACTIONS
        self.ask(ApiKey.FIND_COORDINATOR, 2, key=key, key_type=key_type)
        if for_groups:
            self.expected.setdefault((CONSUMER_OFFSETS_TOPIC, 0), ExpectedPartition(CONSUMER_OFFSETS_TOPIC, 0))

    def files(self) -> dict[str, bytes]:
        """End the broker, and return {path below the data directory: content} of its files."""
        if self.stopped_cleanly:
            self.broker.stop()
        else:
            self.broker.kill()
        if self.broker.bugs:
            raise self.broker.bugs[0]
        return {path.removeprefix(f"{DIRECTORY}/"): bytes(content) for path, content in self._disk.written.items()}


def new_record(line: Line, owner: str, number: int) -> NewRecord:
    """Return a record of a script. If only the value is given, the key names the owner."""
    return line if isinstance(line, NewRecord) else NewRecord(f"{owner}-{number}".encode(), line.encode())
