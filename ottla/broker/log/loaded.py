"""What loading a partition directory yields. pure"""

from typing import NamedTuple

from ottla.broker.log.epochs import LeaderEpochs
from ottla.broker.log.producers import Producers
from ottla.broker.log.segments import Segments


class LoadedLog(NamedTuple):
    """The log of one partition as found (or made) on disk.

    What stands below `recovery_point` is on the device; syncing the files in `unsynced` makes that the whole log.
    `damage` is None, or why the partition must stay offline.
    """

    directory: str
    segments: Segments
    producers: Producers
    epochs: LeaderEpochs
    log_start_offset: int
    recovery_point: int
    snapshot_offset: int = -1
    unsynced: tuple[str, ...] = ()
    damage: str | None = None
