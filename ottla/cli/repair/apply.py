"""Execution of a repair plan. A kill in between leaves a directory that can be repaired. shell

Files are replaced as a whole. A log is truncated from its end: first the later segments, then the segment with the
damage, then its indexes and snapshots, and the checkpoints last. Until then the log ends below its recovery point, and
every start refuses it.
"""

from contextlib import closing
from pathlib import Path

from ottla import files
from ottla.broker.ports.disk import Disk
from ottla.cli.repair.plan import Change
from ottla.protocol import checkpoints
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import TopicPartition


def apply_changes(disk: Disk, changes: list[Change]) -> None:
    """Do all steps in order. Each is synced to the device before the next. Failed IO raises OSError."""
    for change in changes:
        match change.kind:
            case "rename":
                disk.rename(change.path, change.target)
            case "cut":
                with closing(disk.open(change.path)) as file:
                    file.truncate(change.size_bytes)
                    file.sync()
            case "remove":
                disk.remove(change.path)
            case _:
                disk.write_atomically(change.path, change.content)
                continue  # has synced the name
        disk.sync_dir(str(Path(change.path).parent))


def lower_checkpoints(directory: Path, ends: dict[TopicPartition, int]) -> list[Change]:
    """Return the changes that lower checkpoints with offsets above the new ends of truncated logs."""
    changes = []
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS):
        path = directory / name
        try:
            offsets = checkpoints.decode_offsets(files.read(str(path)))
        except (FileNotFoundError, ProtocolError):
            continue
        lowered = {key: min(offset, ends.get(key, offset)) for key, offset in offsets.items()}
        if lowered != offsets:
            content = checkpoints.encode_offsets(lowered)
            changes.append(Change("write", str(path), "a log that was cut ends earlier now", content))
    return changes
