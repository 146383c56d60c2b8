"""What the files of a cache are called, which is all that is known of them. frozen

`DIR/records-v1/topic=T/partition=N/BASE-START-END-IDENTITY-SIZE-ABORTED.parquet` has the records of the batches at
positions [START, END) of the segment with base offset BASE that no aborted transaction wrote. SIZE and ABORTED are the
bytes of this file and of the one with the aborted records, `BASE-START-END-IDENTITY-ABORTED-aborted.parquet`; 0: there
are none, and no such file. A file has its name when it is whole. IDENTITY is that of `stretches.identity`. What begins
with `_` is not for Spark: what is being written, `_unused-NAME` beside a file that is not needed, `_seen.json`.
"""

import re
from typing import NamedTuple

FOLDER = "records-v1"
UNUSED = "_unused-"
SEEN = "_seen.json"
SUFFIX = ".parquet"
# Spark takes a folder of this name for null, but not if a letter of it is escaped.
_NULL = "__HIVE_DEFAULT_PARTITION__"

_NAME = re.compile(r"(\d{20})-(\d+)-(\d+)-([0-9a-f]{32})-(\d+)-(\d+)\.parquet\Z")


class Piece(NamedTuple):
    """A stretch of a segment in the cache."""

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
        """Of the file with the aborted records, if there are any."""
        return f"{self._stem}-{self.aborted_bytes}-aborted{SUFFIX}"

    @property
    def sizes(self) -> dict[str, int]:
        """Its files, with the bytes that each must have."""
        aborted = {self.aborted_name: self.aborted_bytes} if self.aborted_bytes else {}
        return {self.name: self.size_bytes} | aborted

    @property
    def _stem(self) -> str:
        return f"{self.base_offset:020d}-{self.start}-{self.end}-{self.identity}"


def piece_of(name: str) -> Piece | None:
    """The piece whose committed records are in the file of that name."""
    found = _NAME.match(name)
    if found is None:
        return None
    base, start, end, identity, size, aborted = found.groups()
    return Piece(int(base), int(start), int(end), identity, int(size), int(aborted))


def base_offset_of(name: str) -> int | None:
    """Of the segment that a file of the cache, of either kind, is a piece of; None if it is none."""
    is_ours = name[:20].isdecimal() and name[20:21] == "-" and name.endswith(SUFFIX)
    return int(name[:20]) if is_ours else None


def folder_names(topic: str, partition: int) -> tuple[str, str]:
    """Spark finds the two columns in them."""
    escaped = f"%5F{topic[1:]}" if topic == _NULL else topic
    return f"topic={escaped}", f"partition={partition}"
