"""A segment: a `.log` file with its indexes. shell

The indexes of the active segment are in memory. Their files are written when the segment is sealed or the log is
closed. So an append costs one write, and a crash costs a scan of this one segment. The indexes of sealed segments are
read from their files.
"""

from contextlib import closing, suppress
from typing import Final

from ottla.broker.log.batches import Run, find_boundary, find_offset, iter_file
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.segments.segment_index import SegmentIndex, time_of
from ottla.broker.log.segments.stored_index import StoredIndex, Unsound
from ottla.broker.log.segments.transaction_index import TransactionIndex, read_transaction_index
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import Buffer, Disk, File
from ottla.protocol.batch_header import HEADER_SIZE, read_header
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import AbortedTxn, pack_aborted_txns
from ottla.protocol.steps import Steps, to_the_end
from ottla.protocol.values import NO_TIMESTAMP

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
ABORTED_AT_ONCE: Final = 1_000
"""Number of aborted transactions that are written to the `.txnindex` together, before the segment is sealed."""


class LogSegment:
    """A segment on disk, from `base_offset` on: `<20-digit base offset>.log` and index files of the same name.

    `size_bytes` is the size of the `.log`. `has_txn_index`: a `.txnindex` exists.
    """

    __slots__ = (
        "_aborted_saved",
        "_disk",
        "_drawn",
        "_file",
        "_index",
        "_interval_bytes",
        "_path",
        "_rolls_from_ms",
        "_stored",
        "_txn_index",
        "_used",
        "base_offset",
        "created_ms",
        "has_txn_index",
        "indexes_saved",
        "size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        interval_bytes: int,
        *,
        size_bytes: int = 0,
        created_ms: int = 0,
        has_txn_index: bool = False,
    ) -> None:
        self._disk = disk
        self._path = f"{directory}/{base_offset:020d}"
        self._interval_bytes = interval_bytes
        self._file: File | None = None
        self._index: SegmentIndex | None = SegmentIndex(base_offset, interval_bytes) if size_bytes == 0 else None
        self._stored: StoredIndex | None = None
        self._txn_index = None if has_txn_index else TransactionIndex()
        # Number of entries that the `.txnindex` has, all valid; None if the file must be replaced.
        self._aborted_saved: int | None = 0
        self._rolls_from_ms: int | None = None
        self._drawn: int | None = None
        self._used = True
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.has_txn_index = has_txn_index
        self.indexes_saved = size_bytes > 0

    @property
    def log_path(self) -> str:
        """Path of the `.log` file."""
        return f"{self._path}.log"

    @property
    def paths(self) -> list[str]:
        """Paths of the files that this segment has when its indexes are saved."""
        suffixes = ["log", "index", "timeindex"] + (["txnindex"] if self.has_txn_index else [])
        return [f"{self._path}.{suffix}" for suffix in suffixes]

    @property
    def file(self) -> File:
        """The open `.log` file; the first use creates it."""
        if self._file is None:
            self._file = self._disk.open(self.log_path, create=True)
        return self._file

    @property
    def index(self) -> SegmentIndex | StoredIndex:
        """The offset and time index: in memory while the segment is written, else in its files."""
        self._used = True
        return self._index or self._stored or self._open_index()

    @property
    def aborted(self) -> list[AbortedTxn]:
        """Aborted transactions whose marker is in this segment, in the order of their markers."""
        return to_the_end(self.load_transaction_index()).entries

    def load_transaction_index(self) -> Steps[TransactionIndex]:
        """Return the transaction index; read the file if it is not in memory. Raises ProtocolError, OSError."""
        self._used = True
        if self._txn_index is None:
            loaded = yield from read_transaction_index(self._disk.read(f"{self._path}.txnindex"))
            if self._txn_index is None:  # no other caller has loaded it meanwhile
                self._txn_index = loaded
                self._aborted_saved = len(loaded.entries)
        return self._txn_index

    # --- writing --------------------------------------------------------------------------------------------------

    def append(self, batch: Buffer, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Write a batch at the end, and add it to the indexes. Raises OSError."""
        position = self.size_bytes
        (self._file or self.file).append((batch,))
        self.size_bytes = position + size_bytes
        self.indexes_saved = False
        (self._index or self._load_index()).account(position, size_bytes, last_offset, max_timestamp_ms)
        self._used = True
        if position == 0:
            self._rolls_from_ms = max_timestamp_ms

    def append_run(self, run: Run) -> None:
        """Write consecutive batches at the end, and add them to the indexes. Raises OSError."""
        index = self._index or self._load_index()
        self.file.append((run.data,))
        self.indexes_saved = False
        index.account_run(self.size_bytes, run.headers)
        self.size_bytes += len(run.data)

    def add_aborted_txn(self, aborted: AbortedTxn) -> None:
        """Add an aborted transaction whose marker is in this segment.

        From time to time the new entries are written to the file, so that sealing a large segment has little to write.
        """
        entries, saved = self.aborted, self._aborted_saved
        entries.append(aborted)
        self.indexes_saved = False
        if saved is not None and len(entries) - saved >= ABORTED_AT_ONCE:
            with suppress(Shortage):  # of descriptors: the next call tries again
                self._append_txn_index(entries[saved:])

    def should_roll(
        self, size_bytes: int, last_offset: int, max_timestamp_ms: int, clock: Clock, settings: LogConfig
    ) -> bool:
        """Return whether this batch must be written to a new segment (`LogSegment.shouldRoll`)."""
        held_bytes = self.size_bytes
        if held_bytes == 0:
            return False
        if held_bytes > settings.segment_bytes - size_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        from_ms = self._rolls_from_ms
        if from_ms is None:
            from_ms = self._rolls_from_ms = self.first_timestamp_ms()
        waited_ms = max_timestamp_ms - from_ms if from_ms >= 0 else clock.now_ms() - self.created_ms
        if settings.segment_jitter_ms:
            waited_ms += self._jitter(min(settings.segment_jitter_ms, settings.segment_ms))
        return waited_ms > settings.segment_ms or (self._index or self.index).is_full(settings.segment_index_bytes)

    def _jitter(self, below_ms: int) -> int:
        """Return a time that is random per segment, so that many partitions do not roll at the same moment."""
        if self._drawn is None:
            self._drawn = int.from_bytes(self._disk.random_id()[:8], "big")
        return self._drawn % below_ms

    def seal(self) -> None:
        """End appending: save the indexes, and read them from their files from now on."""
        # Files that a clean stop has synced are not written again: a power loss might leave less of them.
        if not self.indexes_saved:
            self.save_indexes(final=True)
        self._index = None

    def has_empty_files(self) -> bool:
        """Return whether the segment is empty and its empty files exist."""
        if self.size_bytes:
            return False
        with suppress(FileNotFoundError):
            paths = (f"{self._path}.{suffix}" for suffix in ("log", "index", "timeindex"))
            return not (self.has_txn_index or any(map(self._disk.size_bytes, paths)))
        return False

    def save_indexes(self, final: bool) -> None:
        """Write the index files; `final` adds the last time entry, as sealing and closing do."""
        index = self._index or self._load_index()
        if final:
            index.add_time_entry()
        self._disk.write(f"{self._path}.index", index.offset_file())
        self._disk.write(f"{self._path}.timeindex", index.time_file())
        self._save_txn_index()
        self.indexes_saved = final

    def _save_txn_index(self) -> None:
        """Write the new entries to the `.txnindex`, so that no power loss removes entries that a sync has covered.

        A log that ends at its recovery point is not recovered, and this file is trusted too. So entries are only
        appended; where recovery has cut the log, the file is replaced atomically.
        """
        path, aborted, saved = f"{self._path}.txnindex", self.aborted, self._aborted_saved
        if saved is not None:
            if len(aborted) > saved:
                self._append_txn_index(aborted[saved:])
        elif aborted:
            self._disk.write_atomically(path, pack_aborted_txns(aborted))
        elif self.has_txn_index:
            # All its entries were cut off: if the file stayed, it would hide the entries that are written next.
            self._disk.remove(path)
            self._disk.sync_dir(self._path.rpartition("/")[0])
        self.has_txn_index = bool(aborted)
        self._aborted_saved = len(aborted)

    def _append_txn_index(self, entries: list[AbortedTxn]) -> None:
        with closing(self._disk.open(f"{self._path}.txnindex", create=True)) as file:
            file.append((pack_aborted_txns(entries),))
        self.has_txn_index = True
        self._aborted_saved = len(self.aborted)

    def truncate(self, size_bytes: int) -> None:
        """Cut the `.log`. The caller rebuilds the indexes."""
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes

    def reset_indexes(self) -> SegmentIndex:
        """Replace the indexes by empty ones. The caller adds every batch to the returned index."""
        self._close_stored_index()
        self._index = SegmentIndex(self.base_offset, self._interval_bytes)
        self._txn_index = TransactionIndex()
        self._aborted_saved = None
        self.indexes_saved = False
        self._rolls_from_ms = None
        return self._index

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> int:
        """Return the position of the batch that holds `offset`, or of the next one; the file size if there is none."""
        return find_offset(self.file, self.index.position_before(offset), self.size_bytes, offset)

    def boundary(self, position: int, cut: int) -> tuple[int, int]:
        """Return (position, base offset) of the first batch from `position` on that ends after `cut`."""
        start = max(position, self.index.boundary_before(cut))
        return find_boundary(self.file, start, self.size_bytes, cut)

    def has_no_aborted_txns(self, offset: int) -> bool:
        """Return whether the index in memory shows that no marker from `offset` on ends an aborted transaction."""
        aborted = self._txn_index
        return aborted is not None and (not aborted.entries or aborted.entries[-1].last_offset < offset)

    def collect_aborted_txns(self, offset: int, upper: int) -> Steps[tuple[list[tuple[int, int]], bool]]:
        """Return the result of `TransactionIndex.collect_aborted_txns` of this segment."""
        aborted = yield from self.load_transaction_index()
        return (yield from aborted.collect_aborted_txns(offset, upper))

    # --- life -----------------------------------------------------------------------------------------------------

    def aborted_file_is_sound(self, end_offset: int) -> Steps[bool]:
        """Return whether the `.txnindex` can be read and ends below `end_offset`."""
        try:
            aborted = (yield from self.load_transaction_index()).entries
        except ProtocolError:
            return False
        return not aborted or aborted[-1].last_offset < end_offset

    def load_index_files(self) -> SegmentIndex | None:
        """Read `.index` and `.timeindex`; None if they must be rebuilt."""
        index = SegmentIndex(self.base_offset, self._interval_bytes)
        try:
            sound = index.load(
                self._disk.read(f"{self._path}.index"), self._disk.read(f"{self._path}.timeindex"), self.size_bytes
            )
        except FileNotFoundError:
            return None
        if not sound:
            return None
        self._close_stored_index()
        self._index = index
        return index

    def release_if_idle(self, *, unsynced: bool) -> None:
        """Release descriptor and memory of a sealed segment that was not used since the last call.

        A segment that must still be synced (`unsynced`) keeps the descriptor that wrote it.
        """
        if not self._used and self.indexes_saved and not unsynced:
            self.close()
            self._index = None
            self._txn_index = None if self.has_txn_index else TransactionIndex()
            self._aborted_saved = 0
        self._used = False

    def close(self) -> None:
        """Close the files; the next use opens them again."""
        self._close_stored_index()
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def delete(self) -> None:
        """Remove the files."""
        self.close()
        for path in (*self.paths, f"{self._path}.txnindex"):
            if self._disk.exists(path):
                self._disk.remove(path)

    def _open_index(self) -> SegmentIndex | StoredIndex:
        try:
            self._stored = StoredIndex(self._disk, self._path, self.base_offset, self.size_bytes)
        except (FileNotFoundError, Unsound):
            return self._load_index()
        return self._stored

    def _close_stored_index(self) -> None:
        stored, self._stored = self._stored, None
        if stored is not None:
            stored.close()

    def rebuild_index(self) -> SegmentIndex:
        """Index all batches in memory, as if they were appended now."""
        self._close_stored_index()
        self._index = index = SegmentIndex(self.base_offset, self._interval_bytes)
        for position, header, _ in iter_file(self.file, 0, self.size_bytes):
            index.account(position, header.size_bytes, header.last_offset, time_of(header))
        return index

    def _load_index(self) -> SegmentIndex:
        """Load the index into memory; rebuild and save it if its files are not valid."""
        loaded = self.load_index_files()
        if loaded is not None:
            return loaded
        index = self.rebuild_index()
        # No recovery checks this segment again, so a power loss must not leave a part of these files.
        index.add_time_entry()
        self._disk.write_atomically(f"{self._path}.index", index.offset_file())
        self._disk.write_atomically(f"{self._path}.timeindex", index.time_file())
        return index

    def first_timestamp_ms(self) -> int:
        """Return the largest timestamp of the first batch, -1 if the segment has none."""
        try:
            return read_header(self.file.pread(HEADER_SIZE, 0)).max_timestamp
        except ProtocolError:
            return NO_TIMESTAMP
