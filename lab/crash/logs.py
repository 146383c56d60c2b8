"""A partition with transactions of several producers, and all its files. free"""

from random import Random
from typing import Final, NamedTuple

from lab.crash.log_directory import DIRECTORY, MemoryLogDirectory
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.partition import Partition
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker
from ottla.testkit.in_memory.schedule import START_MS

PARTITION: Final = f"{DIRECTORY}/t-0"
CLEAN_SHUTDOWN: Final = f"{DIRECTORY}/.kafka_cleanshutdown"
CODECS: Final = (0, 0, 1, 2, 3, 4)


class Shape(NamedTuple):
    """Sizes of a log, of its values and of its segments."""

    log_bytes: int
    most_value_bytes: int
    segment_bytes: int = 1 << 30
    seed: int = 1

    @property
    def settings(self) -> LogConfig:
        return LogConfig(segment_bytes=self.segment_bytes, index_interval_bytes=1024)


def stopped_log(shape: Shape) -> dict[str, bytes]:
    """Return the files of a clean stop without the clean-shutdown file.

    The log has `log_bytes` or a little more, and one producer's transaction is still open.
    """
    directory = MemoryLogDirectory().open()
    partition = directory.partition(settings=shape.settings, leader_epoch=3)
    _Load(partition, shape).run()
    directory.logs.close()
    files = directory.files()
    del files[CLEAN_SHUTDOWN]
    return files


class _Load:
    """Four producers that write in random order."""

    def __init__(self, partition: Partition, shape: Shape) -> None:
        self.partition = partition
        self.shape = shape
        self.random = Random(shape.seed)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def run(self) -> None:
        while self.partition.log.size_bytes < self.shape.log_bytes:
            producer_id = self.random.randrange(1000, 1004)
            if producer_id in self.open and self.random.random() < 0.45:
                self.end(producer_id)
            else:
                self.send(producer_id)
        for producer_id in sorted(self.open)[1:]:
            self.end(producer_id)

    def send(self, producer_id: int) -> None:
        random = self.random
        records = []
        for _ in range(random.choice((1, 1, 2, 3))):
            value = random.randbytes(random.randrange(8, self.shape.most_value_bytes))
            records.append((random.randbytes(6), value))
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(records)
        batch = memoryview(
            build_batch(
                records,
                timestamp_ms=START_MS + random.randrange(1000),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
                compression=random.choice(CODECS),
            )
        )
        _expect(self.partition.append_from_client(check_produced_batch(batch), batch).error)
        self.open.add(producer_id)

    def end(self, producer_id: int) -> None:
        _expect(self.partition.append_marker(TransactionMarker(producer_id, 0, 0, self.random.random() < 0.5, 1)).error)
        self.open.discard(producer_id)


def _expect(error: ErrorCode) -> None:
    if error != ErrorCode.NONE:
        raise AssertionError(f"the load was refused: {error.name}")
