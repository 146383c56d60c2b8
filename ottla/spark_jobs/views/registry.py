"""Which reader has which view. None of them loads more than Spark's own classes before it has to. free"""

from ottla.spark_jobs import schemas
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.batches import BatchReader
from ottla.spark_jobs.views.damage import DamageReader
from ottla.spark_jobs.views.group_offsets import GroupOffsetsReader
from ottla.spark_jobs.views.hanging import HangingReader
from ottla.spark_jobs.views.partitions import PartitionReader
from ottla.spark_jobs.views.producers import ProducerReader
from ottla.spark_jobs.views.records import RecordReader
from ottla.spark_jobs.views.segments import SegmentsReader
from ottla.spark_jobs.views.transaction_state import TransactionStateReader
from ottla.spark_jobs.views.transactions import TransactionReader

READERS: dict[str, type[ViewReader]] = {
    schemas.RECORDS: RecordReader,
    schemas.BATCHES: BatchReader,
    schemas.TRANSACTIONS: TransactionReader,
    schemas.PRODUCERS: ProducerReader,
    schemas.PARTITIONS: PartitionReader,
    schemas.TRANSACTION_STATE: TransactionStateReader,
    schemas.GROUP_OFFSETS: GroupOffsetsReader,
    schemas.SEGMENTS: SegmentsReader,
    schemas.DAMAGE: DamageReader,
    schemas.HANGING: HangingReader,
}


def view_reader(options: Options, fields: list[tuple[str, bool]]) -> ViewReader:
    """The reader of the view that `options` name, for columns (name, nullable)."""
    return READERS[options.view](options, fields)
