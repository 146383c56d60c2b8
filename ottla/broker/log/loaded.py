"""What loading a partition directory yields. pure"""

from typing import NamedTuple

from ottla.broker.log.leader_epoch_cache import LeaderEpochCache
from ottla.broker.log.log_segments import LogSegments
from ottla.broker.log.producer_state_manager import ProducerStateManager


class LoadedLog(NamedTuple):
    """The log of one partition as found (or made) on disk.

    What stands below `recovery_point` is on the device; syncing the files in `unsynced` makes that the whole log.
    `damage` is None, or why the partition must stay offline.
    """

    directory: str
    segments: LogSegments
    producer_state: ProducerStateManager
    epochs: LeaderEpochCache
    log_start_offset: int
    recovery_point: int
    snapshot_offset: int = -1
    unsynced: tuple[str, ...] = ()
    damage: str | None = None
