"""Names of the files of a cache, which contain all that a cache knows about the files. frozen

`DIR/records-v1/topic=T/partition=N/BASE-START-END-IDENTITY-SIZE-ABORTED.parquet` has the records of the batches at
positions [START, END) of the segment with base offset BASE that no aborted transaction wrote. SIZE and ABORTED are the
bytes of this file and of the one with the aborted records, `BASE-START-END-IDENTITY-ABORTED-aborted.parquet`; 0: no
records and no file. A file has its name when it is complete. IDENTITY is the result of `settled_ranges.identity`. Spark
ignores names that begin with `_`: incomplete files, `_unused-NAME` next to a file that is not needed, `_seen.json`.
"""

import re
from typing import NamedTuple

FOLDER = "records-v1"
UNUSED = "_unused-"
SEEN = "_seen.json"
SUFFIX = ".parquet"
# Spark reads a folder of this name as null, but not if one of its letters is escaped.
_NULL = "__HIVE_DEFAULT_PARTITION__"

_NAME = re.compile(r"(\d{20})-(\d+)-(\d+)-([0-9a-f]{32})-(\d+)-(\d+)\.parquet\Z")


class Piece(NamedTuple):
    """A range of a segment in the cache."""

    base_offset: int
    start: int
    end: int
    identity: str
    size_bytes: int
    aborted_bytes: int

    @property
    def name(self) -> str:
        return f"{self._stem}-{self.size_bytes}-{self.aborted_bytes}{SUFFIX}"

    @property
    def aborted_name(self) -> str:
        """Name of the file with the aborted records, if there are any."""
        return f"{self._stem}-{self.aborted_bytes}-aborted{SUFFIX}"

    @property
    def sizes(self) -> dict[str, int]:
        """Return the files of the piece, with the size in bytes that each must have."""
        aborted = {self.aborted_name: self.aborted_bytes} if self.aborted_bytes else {}
        return {self.name: self.size_bytes} | aborted

    @property
    def _stem(self) -> str:
        return f"{self.base_offset:020d}-{self.start}-{self.end}-{self.identity}"


def piece_of(name: str) -> Piece | None:
    """Return the piece whose committed records are in the file of this name."""
    found = _NAME.match(name)
    if found is None:
        return None
    base, start, end, identity, size, aborted = found.groups()
    return Piece(int(base), int(start), int(end), identity, int(size), int(aborted))


def base_offset_of(name: str) -> int | None:
    """Return the base offset of the segment of a file of the cache, of either kind; None for another file."""
    is_ours = name[:20].isdecimal() and name[20:21] == "-" and name.endswith(SUFFIX)
    return int(name[:20]) if is_ours else None


def folder_names(topic: str, partition: int) -> tuple[str, str]:
    """Return the folder names, in which Spark finds the two columns."""
    escaped = f"%5F{topic[1:]}" if topic == _NULL else topic
    return f"topic={escaped}", f"partition={partition}"
