"""Faults to plant in the files of a sound directory: missing offsets, damage, and files next to segments."""

import struct

from ottla.protocol.batch import COMMIT
from ottla.protocol.indexes import AbortedTxn, iter_aborted_txns, pack_aborted_txns
from ottla.protocol.snapshot import decode_snapshot, encode_snapshot
from tests.audit.mutations import MUTATIONS, Log, Place, change, mutation

__all__ = ["MUTATIONS"]

# Lost offsets and damage


@mutation("gaps", "a batch removed")
def remove_batch(root):
    log = Log(root, "codec-lz4-0")
    index = log.data()[2]
    place = log.place(index, with_position=False)
    del log.batches[index]
    log.save()
    return place


@mutation("gaps", "a marker removed")
def remove_marker_with_its_offset(root):
    log = Log(root, "ledger-0")
    index = log.markers()[30]
    place = log.place(index, with_position=False)
    del log.batches[index]
    log.save()
    return place


def split(log, *edges):
    """Cut the segment before each of the batches and return the paths of all parts."""
    paths = []
    for first, behind in zip((0, *edges), (*edges, len(log.batches)), strict=True):
        paths.append(log.path.with_name(f"{log.header(first).base_offset:020d}.log"))
        paths[-1].write_bytes(b"".join(log.batches[first:behind]))
    return paths


@mutation("gaps", "a segment lost in the middle")
def segment_lost(root):
    log = Log(root, "ledger-2")
    split(log, 200, 400)[1].unlink()
    return log.place(200, with_position=False)


@mutation("gaps", "the last segment lost")
def last_segment_lost(root):
    log = Log(root, "ledger-0")
    split(log, 200, 400)[2].unlink()
    return log.place(400, with_position=False)


@mutation("gaps", "the tail cut off between two batches")
def tail_cut(root):
    log = Log(root, "codec-gzip-0")
    place = log.place(len(log.batches) - 3, with_position=False)
    del log.batches[-3:]
    log.save()
    return place


@mutation("gaps", "a record lost from the coordinator's log")
def coordinator_record_lost(root):
    log = Log(root, "__transaction_state-2")
    place = log.place(77, with_position=False)
    del log.batches[77]
    log.save()
    return place


@mutation("damage", "the tail cut off inside a flushed batch")
def tail_cut_inside(root):
    log = Log(root, "codec-gzip-0")
    index = len(log.batches) - 2
    log.path.write_bytes(log.path.read_bytes()[: log.position(index) + 80])
    return Place(log.name, None, log.position(index))


@mutation("damage", "a bit flipped in a record")
def flip_bit(root):
    log = Log(root, "plain-0")
    log.batches[4][200] ^= 4
    log.save()
    return log.place(4)


@mutation("damage", "a bit flipped in the length of a batch")
def flip_length_bit(root):
    log = Log(root, "append-time-0")
    log.batches[3][9] ^= 0x10
    log.save()
    return Place(log.name, None, log.position(3))


@mutation("damage", "a page of zeros in the middle")
def page_of_zeros(root):
    log = Log(root, "plain-0")
    change(log.path, 4096 * 3, bytes(4096))
    index = max(at for at in range(len(log.batches)) if log.position(at) <= 4096 * 3)
    return log.place(index)


@mutation("damage", "bytes put in between two batches")
def bytes_put_in(root):
    log = Log(root, "ledger-1")
    position = log.position(50)
    log.batches.insert(50, bytearray(b"\xa5" * 33))
    log.save()
    return Place(log.name, None, position)


@mutation("damage", "a record count that lies, with a right CRC")
def count_lies(root):
    log = Log(root, "codec-zstd-0")
    log.batches[1] = log.with_header(1, record_count=1_000_000)
    log.save()
    return Place(log.name, None, log.position(1))


@mutation("damage", "two batches in the wrong order")
def swap_batches(root):
    log = Log(root, "audit-log-0")
    log.batches[40], log.batches[41] = log.batches[41], log.batches[40]
    log.save()
    return Place(log.name, None, log.position(41))


# Files next to the segments


@mutation("index", "an entry of .index names another position")
def offset_index_position(root):
    path = root / "ledger-1" / f"{0:020d}.index"
    offset, position = struct.unpack_from(">ii", path.read_bytes(), 8 * 5)
    change(path, 8 * 5, struct.pack(">ii", offset, position + 7))
    return Place("ledger-1", offset, 8 * 5)


@mutation("index", "an entry of .index names another offset")
def offset_index_offset(root):
    path = root / "ledger-2" / f"{0:020d}.index"
    offset, position = struct.unpack_from(">ii", path.read_bytes(), 8 * 5)
    change(path, 8 * 5, struct.pack(">ii", offset - 3, position))
    return Place("ledger-2", offset - 3, 8 * 5)


@mutation("index", "an entry of .timeindex is wrong")
def time_index_wrong(root):
    path = root / "ledger-1" / f"{0:020d}.timeindex"
    stamp, offset = struct.unpack_from(">qi", path.read_bytes(), 12 * 5)
    change(path, 12 * 5, struct.pack(">qi", stamp - 1, offset))
    return Place("ledger-1", offset, 12 * 5)


@mutation("index", "a timestamp from the future, which .timeindex does not know")
def future_timestamp(root):
    log = Log(root, "compacted-0")
    index = len(log.batches) - 2
    log.batches[index] = log.with_header(index, max_timestamp=4_000_000_000_000)
    log.save()
    return Place(log.name, log.header(index).last_offset)


def read_entries(root, name):
    path = root / name / f"{0:020d}.txnindex"
    return path, list(iter_aborted_txns(path.read_bytes()))


@mutation("index", "an entry of .txnindex missing")
def aborted_entry_missing(root):
    path, entries = read_entries(root, "ledger-0")
    gone = entries.pop(8)
    path.write_bytes(pack_aborted_txns(entries))
    return Place("ledger-0", gone.last_offset)


@mutation("index", "an entry of .txnindex too many")
def aborted_entry_extra(root):
    path, entries = read_entries(root, "ledger-0")
    log = Log(root, "ledger-0")
    offset = log.header(next(at for at in log.markers(COMMIT) if at > 300)).base_offset
    entries = sorted([*entries, AbortedTxn(5, offset - 1, offset, offset + 1)], key=lambda one: one.last_offset)
    path.write_bytes(pack_aborted_txns(entries))
    return Place("ledger-0", offset, 34 * [one.last_offset for one in entries].index(offset))


@mutation("index", "a wrong last stable offset in .txnindex")
def aborted_entry_stable(root):
    path, entries = read_entries(root, "ledger-2")
    entries[6] = entries[6]._replace(last_stable_offset=entries[6].last_stable_offset - 1)
    path.write_bytes(pack_aborted_txns(entries))
    return Place("ledger-2", entries[6].last_offset, 34 * 6)


@mutation("index", "a wrong first offset in .txnindex")
def aborted_entry_first(root):
    path, entries = read_entries(root, "audit-log-1")
    entries[4] = entries[4]._replace(first_offset=entries[4].first_offset - 1)
    path.write_bytes(pack_aborted_txns(entries))
    return Place("audit-log-1", entries[4].last_offset, 34 * 4)


def snapshot(root, name):
    path = max((root / name).glob("*.snapshot"))
    return path, decode_snapshot(path.read_bytes())


@mutation("index", "a producer snapshot off by one sequence")
def snapshot_off_by_one(root):
    path, entries = snapshot(root, "ledger-0")
    entries[1] = entries[1]._replace(last_sequence=entries[1].last_sequence + 1)
    path.write_bytes(encode_snapshot(entries))
    return Place("ledger-0", int(path.stem))


@mutation("index", "a producer snapshot without the open transaction")
def snapshot_not_open(root):
    path, entries = snapshot(root, "ledger-2")
    entries = [one._replace(current_txn_first_offset=-1) for one in entries]
    path.write_bytes(encode_snapshot(entries))
    return Place("ledger-2", int(path.stem))


@mutation("index", "a producer snapshot with a wrong CRC")
def snapshot_broken(root):
    path, _ = snapshot(root, "ledger-1")
    content = path.read_bytes()
    change(path, len(content) - 1, bytes([content[-1] ^ 1]))
    return Place("ledger-1", int(path.stem))
