"""Result of loading a partition directory. pure"""

from typing import NamedTuple

from ottla.broker.log.leader_epoch_cache import LeaderEpochCache
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.log.segments.log_segments import LogSegments


class LoadedLog(NamedTuple):
    """The log of one partition as found (or made) on disk.

    Records below `recovery_point` are on the device. After a sync of the files in `unsynced` the whole log is.
    `damage` is None, or the reason why the partition must stay offline.
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
