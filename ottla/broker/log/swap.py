"""Replacement of segments by their compacted segment; a crash leaves the old ones or the new one. shell

`docs/decisions/compaction.md` has the order of the renames. The replacement is decided when no `.cleaned` file is left
and the names are on the device. Loading a log completes decided replacements and removes the files of others. The first
and last offsets of the `.log.swap` show which segments it replaces.

Source: Kafka's `LocalLog.replaceSegments`, `LogLoader.completeSwapOperations` (4.3.1). Incomplete replacements by Kafka
are completed here too.
"""

import re
from collections.abc import Iterable
from contextlib import closing
from typing import Final

from ottla.broker.log.batches import iter_file
from ottla.broker.ports.disk import Disk

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
# In the order of renaming: while the `.log` still has its old suffix, the others have it too.
SUFFIXES: Final = ("log", "index", "timeindex", "txnindex")

_FILE: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)(\.cleaned|\.swap)?")


def change_file_suffixes(disk: Disk, path: str, old: str, new: str) -> list[str]:
    """Rename the existing files of a segment; return their new paths. `path` has no suffix."""
    renamed = []
    for suffix in SUFFIXES:
        file = f"{path}.{suffix}"
        if disk.exists(file + old):
            disk.rename(file + old, file + new)
            renamed.append(file + new)
    return renamed


def add_deleted_suffix(disk: Disk, path: str, with_snapshot: bool) -> list[str]:
    """Rename the files of a removed segment, and its snapshot, to `.deleted`; return their new paths."""
    renamed = change_file_suffixes(disk, path, "", DELETED)
    snapshot = f"{path}.snapshot"
    if with_snapshot and disk.exists(snapshot):
        disk.rename(snapshot, snapshot + DELETED)
        renamed.append(snapshot + DELETED)
    return renamed


def complete_swap_operations(disk: Disk, directory: str, names: Iterable[str]) -> bool:
    """Complete or undo the replacements in a directory with these `names`; return whether it changed.

    Raises BadBatch if a segment that is to replace others is damaged, and OSError.
    """
    found = [(int(match[1]), match[2], match[3], name) for name in names if (match := _FILE.fullmatch(name))]
    cleaned = [(base, name) for base, _, temporary, name in found if temporary == CLEANED]
    swaps = [(base, suffix, name) for base, suffix, temporary, name in found if temporary == SWAP]
    if not cleaned and not swaps:
        return False
    undecided = min((base for base, _ in cleaned), default=None)
    if undecided is not None:
        # One `.cleaned` file is enough to mark the replacement as undecided, so these are removed last.
        for base, _, name in swaps:
            if base >= undecided:
                disk.remove(f"{directory}/{name}")
        disk.sync_dir(directory)
        for _, name in cleaned:
            disk.remove(f"{directory}/{name}")
        swaps = [swap for swap in swaps if swap[0] < undecided]
    if swaps:
        # A killed process may have renamed files without syncing the directory.
        disk.sync_dir(directory)
        originals = [(base, name) for base, _, temporary, name in found if temporary is None]
        for base in sorted(base for base, suffix, _ in swaps if suffix == "log"):
            end_offset = _end_offset(disk, f"{directory}/{base:020d}.log{SWAP}", base)
            for old, name in originals:
                if base <= old < end_offset or old == base:
                    disk.remove(f"{directory}/{name}")
        for base in sorted({base for base, _, _ in swaps}):
            change_file_suffixes(disk, f"{directory}/{base:020d}", SWAP, "")
    disk.sync_dir(directory)
    return True


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    """Return the offset after the last batch of a file."""
    with closing(disk.open(path)) as file:
        for _, header, _ in iter_file(file, 0, file.size_bytes, least_offset=base_offset):
            base_offset = header.next_offset
    return base_offset
