"""Replacing segments by their compaction so that a crash leaves the old ones or the new one. shell

The new segment is written to `.cleaned` files and synced. Renaming these to `.swap`, the `.log` first, is the decision:
it stands once no `.cleaned` is left and the names are on the device. Then the old files become `.deleted` ones, and the
`.swap` files get the names they are for. Loading finishes what has been decided and drops what has not. The offsets
that the `.log.swap` ends with say which segments it replaces.

Source: Kafka's `LocalLog.replaceSegments`, `LogLoader.completeSwapOperations` (4.3.1); half-done swaps of
Kafka's are completed here as well.
"""

import re
from collections.abc import Iterable

from ottla.broker.log.batches import iter_file
from ottla.broker.ports.disk import Disk

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
# In the order in which they are renamed: while the `.log` still has a suffix, the others have it too.
SUFFIXES = ("log", "index", "timeindex", "txnindex")

_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)(\.cleaned|\.swap)?")


def change_file_suffixes(disk: Disk, path: str, old: str, new: str) -> list[str]:
    """Rename the files of a segment (`path` is theirs without suffixes) that exist; their new names."""
    renamed = []
    for suffix in SUFFIXES:
        file = f"{path}.{suffix}"
        if disk.exists(file + old):
            disk.rename(file + old, file + new)
            renamed.append(file + new)
    return renamed


def rename_to_deleted(disk: Disk, path: str, with_snapshot: bool) -> list[str]:
    """Rename the files of a segment that has left the log, and its snapshot, to `.deleted`; their new names."""
    renamed = change_file_suffixes(disk, path, "", DELETED)
    snapshot = f"{path}.snapshot"
    if with_snapshot and disk.exists(snapshot):
        disk.rename(snapshot, snapshot + DELETED)
        renamed.append(snapshot + DELETED)
    return renamed


def complete_swap_operations(disk: Disk, directory: str, names: Iterable[str]) -> bool:
    """Bring a directory that holds `names` to the state before or after a compaction; whether anything changed.

    Raises BadBatch if what is to replace segments is damaged, and OSError.
    """
    found = [(int(match[1]), match[2], match[3], name) for name in names if (match := _FILE.fullmatch(name))]
    cleaned = [(base, name) for base, _, temporary, name in found if temporary == CLEANED]
    swaps = [(base, suffix, name) for base, suffix, temporary, name in found if temporary == SWAP]
    if not cleaned and not swaps:
        return False
    undecided = min((base for base, _ in cleaned), default=None)
    if undecided is not None:
        # As long as one of the `.cleaned` files is there, they all go: so these go last.
        for base, _, name in swaps:
            if base >= undecided:
                disk.remove(f"{directory}/{name}")
        disk.sync_dir(directory)
        for _, name in cleaned:
            disk.remove(f"{directory}/{name}")
        swaps = [swap for swap in swaps if swap[0] < undecided]
    if swaps:
        # A process that was killed may have renamed what is not on the device yet.
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
    """The offset behind the last batch of a file."""
    file = disk.open(path)
    try:
        for _, header, _ in iter_file(file, 0, file.size_bytes, least_offset=base_offset):
            base_offset = header.next_offset
    finally:
        file.close()
    return base_offset
