"""Compiled kernels that find the fate of each batch from its partition's aborted ranges and open transactions. pure"""

from ottla.protocol.batch_header import TRANSACTIONAL
from ottla.scan import headers
from ottla.scan.compiled.kernels import Long, Longs, kernel
from ottla.scan.frames import is_aborted

# Not in a transaction, or a control batch.
NONE = 0
COMMITTED = 1
ABORTED = 2
OPEN = 3


@kernel
def is_open(opened: Longs, producer_id: Long, offset: Long) -> Long:
    """Return whether a batch belongs to one of the `opened` (producer id, first offset), sorted, one per producer."""
    low, high = 0, opened.shape[0]
    while low < high:
        middle = (low + high) // 2
        if opened[middle, 0] < producer_id:
            low = middle + 1
        else:
            high = middle
    return low < opened.shape[0] and opened[low, 0] == producer_id and opened[low, 1] <= offset


@kernel
def mark_fates(rows: Longs, aborted: Longs, opened: Longs, out: Longs) -> None:
    """Write the fate of each header row to `out`. `aborted`: (producer id, first offset, marker offset), sorted."""
    for index in range(rows.shape[0]):
        row = rows[index]
        producer_id, offset = row[headers.PRODUCER_ID], row[headers.BASE_OFFSET]
        if row[headers.CONTROL_TYPE] != headers.NOT_CONTROL or not row[headers.ATTRIBUTES] & TRANSACTIONAL:
            out[index] = NONE
        elif is_aborted(aborted, producer_id, offset):
            out[index] = ABORTED
        elif is_open(opened, producer_id, offset):
            out[index] = OPEN
        else:
            out[index] = COMMITTED
