"""The partitions of a cluster as `ottla dump` prints them: batches as brokers send them. shell"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from ottla.cli.dump.job import Found, PrintJob
from ottla.cli.dump.log import PlacedBatch
from ottla.protocol.batch_header import read_header, read_legacy_header
from ottla.scan import headers
from ottla.scan.cluster.listing import ServedPartition, list_cluster_partitions
from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.listing import matches
from ottla.scan.windows import WindowReader
from ottla.wire.address import KafkaAddress

LAST_OFFSET: Final = 2**63 - 1


def list_chosen(address: KafkaAddress, globs: Sequence[str], numbers: Collection[int]) -> list[ServedPartition]:
    """Return the partitions with these topics and numbers; without globs or numbers all. Raises UnreadableDirectory."""
    return [
        one
        for one in list_cluster_partitions(address, globs)
        if not globs or matches(one.log.topic, globs)
        if not numbers or one.log.partition in numbers
    ]


def print_window(job: PrintJob, window: OffsetWindow, write: Callable[[bytes], None]) -> Found:
    """Pass the text of the batches of a window to `write`, also of those after damage. Raises Unanswered, OSError."""
    log = DamageLog(REPORT)
    dump = job.dump()
    for text in dump.chunks(_read(window, log)):
        write(text)
    unreadable = [f"{one.reason}, offsets {one.position} to {one.end_position}" for one in log.found]
    damage = dump.damage or next(iter(unreadable), None)
    return Found(dump.batch_count, dump.record_count, dump.size_bytes, damage, dump.unread)


def _read(window: OffsetWindow, log: DamageLog) -> Iterator[PlacedBatch]:
    for chunk in WindowReader(log, check_crc=False).chunks(window):
        content = chunk.buffer.data
        for position, size in chunk.rows[:, [headers.POSITION, headers.SIZE]].tolist():
            batch = content[position : position + size]
            yield None, read_legacy_header(batch) or read_header(batch), batch
