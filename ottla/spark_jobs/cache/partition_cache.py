"""A partition in a cache: its valid pieces, the missing ones, and the offset up to which it is covered. shell"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.scan.narrowing import with_ends
from ottla.spark_jobs.cache.filling import Fill
from ottla.spark_jobs.cache.names import Piece, folder_names, piece_of
from ottla.spark_jobs.cache.seen import Seen, state_of
from ottla.spark_jobs.cache.settled_ranges import Layout, SettledRange, aborted_in, identity, lay_out, segment_piece
from ottla.spark_jobs.cache.unused import take_away

if TYPE_CHECKING:
    from ottla.scan.fates import PartitionFates
    from ottla.scan.listing import PartitionLog, SegmentFile
    from ottla.scan.records import ReadFilter


class PartitionCache:
    """A partition in a cache.

    Call `lay_out`, `to_fill`, `add` for each written piece, and `finish`; then `valid` and `covered` are known.
    """

    def __init__(
        self,
        root: Path,
        log: "PartitionLog",
        narrowed: "PartitionLog",
        read_filter: "ReadFilter",
        fates: "PartitionFates",
    ) -> None:
        """Create the object. `narrowed`: `log` with only the segments that the query reads."""
        self.log, self.read_filter, self.fates = log, read_filter, fates
        self.folder = root.joinpath(*folder_names(log.topic, log.partition))
        self._narrowed = narrowed
        self._names: dict[str, int] = {}
        self._pieces: dict[tuple[int, int, int, str], Piece] = {}
        self._settled_ranges: list[tuple[SettledRange, str]] = []
        self._unsound: int | None = None
        self._seen = Seen(self.folder)

    def lay_out(self, *, verify: bool) -> None:
        """Find the settled ranges. `verify`: read every batch. Raises OSError if the folder is not usable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._names = _sizes(self.folder)
        for piece in filter(None, map(piece_of, sorted(self._names))):
            self._know(piece, self._names)
        damaged = {damage.path for damage in self.fates.damage}
        ends = {segment.base_offset: end for segment, end in with_ends(self.log)}
        for segment in self._narrowed.segments:
            limit = min(self.fates.last_stable_offset, ends[segment.base_offset])
            layout = None if segment.path in damaged else self._layout(segment, limit, verify=verify)
            if layout is None or not layout.is_sound:
                self._unsound = segment.base_offset
                break
            aborted = self.fates.aborted_ranges
            self._settled_ranges += [(one, identity(one, aborted)) for one in layout.settled_ranges]

    def to_fill(self) -> list[Fill]:
        """Return the settled ranges that are not in the cache."""
        from ottla.scan.ranges import LogRange

        files = {segment.base_offset: segment for segment in self._narrowed.segments}
        fills = []
        for one, name in self._settled_ranges:
            if self._piece(one, name) is None:
                piece = segment_piece(self.log, files[one.base_offset], one.start, one.end)
                part = LogRange(0, 0, self.log.topic, self.log.partition, 0, (piece,))
                aborted = aborted_in(one, self.fates.aborted_ranges)
                fills.append(Fill(part, one, name, aborted, str(self.folder)))
        return fills

    def add(self, piece: Piece) -> None:
        """Add a piece that a task wrote. Raises FileNotFoundError if this machine lacks its file."""
        sizes = {name: (self.folder / name).stat().st_size for name in piece.sizes}
        self._names |= sizes
        self._know(piece, sizes)

    def finish(self) -> None:
        """Store the ranges of the segments, and remove files that are not needed. Raises OSError."""
        bases = {segment.base_offset for segment in self.log.segments}
        read = {segment.base_offset for segment in self._narrowed.segments}
        if self._unsound is not None:
            read = {base for base in read if base < self._unsound}
        self._seen.forget_others(bases)
        self._seen.save()
        pieces = [self._piece(*one) for one in self._settled_ranges]
        needed = {name for piece in pieces if piece is not None for name in piece.sizes}
        take_away(self.folder, self._names, needed, lambda base: base in read or base not in bases)

    def valid(self) -> list[tuple[SettledRange, Piece]]:
        """Return the pieces that a query reads: consecutive ones, up to `covered`."""
        found = []
        for settled_range, name in self._settled_ranges:
            piece = self._piece(settled_range, name)
            if piece is None:
                break
            found.append((settled_range, piece))
        return found

    @property
    def covered(self) -> int:
        """Offset below which the cache has all records that the query needs."""
        valid = self.valid()
        if len(valid) < len(self._settled_ranges):
            return self._settled_ranges[len(valid)][0].first_offset
        if self._unsound is not None:
            return self._unsound
        return max(self.fates.last_stable_offset, self.log.log_start)

    def _layout(self, segment: "SegmentFile", limit: int, *, verify: bool) -> Layout | None:
        """Return the stored layout if the file is unchanged, else a new one; None if the file is gone."""
        try:
            state = state_of(segment.path, limit)
            noted = self._seen.settled_ranges(segment.base_offset, state)
            is_as_listed = state.size_bytes == segment.size_bytes
            if noted is not None and is_as_listed and not verify:
                return Layout(noted, is_sound=True)
            aborted = self.fates.aborted_ranges
            found = lay_out(self.log, segment, limit, aborted, self._candidates(segment.base_offset))
            if found.is_sound and state.rests and is_as_listed and state_of(segment.path, limit) == state:
                self._seen.note(segment.base_offset, state, found.settled_ranges)
            return found
        except OSError:
            return None

    def _candidates(self, base_offset: int) -> Sequence[Piece]:
        return [piece for piece in self._pieces.values() if piece.base_offset == base_offset]

    def _know(self, piece: Piece, sizes: dict[str, int]) -> None:
        """Add a piece of the folder, unless a file of it is missing or was cut by a crash."""
        if all(sizes.get(name) == size for name, size in piece.sizes.items()):
            self._pieces[piece.base_offset, piece.start, piece.end, piece.identity] = piece

    def _piece(self, settled_range: SettledRange, name: str) -> Piece | None:
        return self._pieces.get((settled_range.base_offset, settled_range.start, settled_range.end, name))


def forget_partitions(root: Path, logs: "Iterable[PartitionLog]") -> None:
    """Mark the files of partitions that are not in `logs`, the whole directory, as not needed. Raises OSError."""
    known = {folder_names(log.topic, log.partition) for log in logs}
    for folder in root.glob("topic=*/partition=*"):
        if (folder.parent.name, folder.name) not in known:
            take_away(folder, _sizes(folder), set(), lambda _: True)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the files of a folder, with their sizes in bytes."""
    sizes = {}
    for path in folder.iterdir():
        # A file that another query was writing may have been renamed.
        with suppress(FileNotFoundError):
            sizes[path.name] = path.stat().st_size
    return sizes
