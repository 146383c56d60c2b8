"""Registry of the readers by view. A reader loads only Spark's own classes until it needs others. free"""

from ottla.scan import schemas
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.batches_view import BatchReader
from ottla.spark_jobs.views.damage_view import DamageReader
from ottla.spark_jobs.views.findings_view import FindingsReader
from ottla.spark_jobs.views.group_offsets_view import GroupOffsetsReader
from ottla.spark_jobs.views.hanging_view import HangingReader
from ottla.spark_jobs.views.partitions_view import PartitionReader
from ottla.spark_jobs.views.producers_view import ProducerReader
from ottla.spark_jobs.views.records_view import RecordReader
from ottla.spark_jobs.views.segments_view import SegmentsReader
from ottla.spark_jobs.views.transaction_state_view import TransactionStateReader
from ottla.spark_jobs.views.transactions_view import TransactionReader

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
    schemas.FINDINGS: FindingsReader,
}


def view_reader(options: Options, fields: list[tuple[str, bool]]) -> ViewReader:
    """Return the reader of the view that `options` name, for columns (name, nullable)."""
    return READERS[options.view](options, fields)
