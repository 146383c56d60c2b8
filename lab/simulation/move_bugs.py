"""Functions with bugs that run in the place of functions of several brokers. free

The first parameter of each function is the function that it replaces; `plants.py` has the places.
"""

from typing import Any

from lab.planting import Original
from ottla.broker.cluster.marker_channels import MarkerAnswer
from ottla.broker.coordinator.loader import CoordinatorLoader
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.log.partition import Partition
from ottla.broker.log.producer_state_entry import ACCEPTED, AppendDecision
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.protocol.errors import ErrorCode


def stay(_resign: Original, *_: object) -> None:
    """Coordinate the partition although another broker leads it."""


def apply_after_resigning(
    write_durable: Original, runtime: CoordinatorRuntime[Any, Any, Any], shard: Any, batch: bytearray, change: Any
) -> Any:
    """Let a record count that becomes durable after its shard has resigned."""
    if shard.resigned:
        return write_durable(runtime, shard, batch, change)
    log, when_durable = shard.log, shard.log.when_durable

    class Log:
        """The log, whose callbacks find the shard in office."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def when_durable(self, offset: int, callback: Any) -> None:
            def call(error: ErrorCode) -> None:
                resigned, shard.resigned = shard.resigned, False
                callback(error)
                shard.resigned = resigned

            when_durable(offset, call)

    shard.log = Log()
    try:
        return write_durable(runtime, shard, batch, change)
    finally:
        shard.log = log


async def load_at_once(_build: Original, loader: CoordinatorLoader[Any], index: int) -> Any:
    """Read a log to its end without waiting until its last records are durable."""
    partition = await loader._cluster.get_or_open(loader._topic, index)
    if partition is None or partition.offline is not None:
        return None
    shard = loader._new_shard(partition)
    for header, batch in partition.scan(partition.log_start_offset):
        shard.replay(header, batch)
        if loader._settle is not None:
            await loader._settle(shard)
    return shard


def keep_load(_drop: Original, loader: CoordinatorLoader[Any], index: int) -> Any:
    """Return the shard of a partition, and keep one that is being loaded."""
    return loader.shards.pop(index, None)


def lead_every_partition(_leads: Original, *_: object) -> bool:
    return True


def lead_and_wake_no_fetch(_lead: Original, partition: Partition, leader_epoch: int) -> None:
    partition.leader_epoch = leader_epoch
    partition.log.epochs.assign(leader_epoch, partition.log.log_end_offset)


def accept_former_coordinator(
    check_marker: Original, producers: ProducerStateManager, *arguments: int
) -> AppendDecision:
    decision: AppendDecision = check_marker(producers, *arguments)
    return ACCEPTED if decision.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED else decision


def ignore_late_refusals(give: Original, answer: MarkerAnswer, error: ErrorCode) -> None:
    """Take every answer of another broker as success. A lost one is still none."""
    give(answer, error if error == ErrorCode.REQUEST_TIMED_OUT else ErrorCode.NONE)
