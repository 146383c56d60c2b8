"""Replies that wait until their changes are durable. free

The state of the log itself decides. A handler that has yielded since its append cannot conclude from an idle flusher
that the append is durable: the flush may have been given up, because its log went offline.
"""

from ottla.broker.api.context import Broker
from ottla.broker.coordinator.runtime import client_error
from ottla.broker.coordinator.shard import StateLog
from ottla.broker.turns import Wait
from ottla.protocol.errors import NO_ERROR, ErrorCode


async def wait_durable(broker: Broker, log: StateLog, last_offset: int) -> ErrorCode:
    """Wait until `last_offset` is as durable as its log guarantees. Return KAFKA_STORAGE_ERROR if it never will be."""
    if last_offset < log.high_watermark:
        return NO_ERROR
    wait: Wait[ErrorCode] = Wait(broker.turns)
    log.when_durable(last_offset, wait.wake)
    waits = broker.metrics.waits["sync"]
    began_ms = waits.begin()
    error = await wait
    waits.end(began_ms)
    return error


async def wait_group_durable(broker: Broker, group_id: str) -> ErrorCode:
    """Wait until all records in the group's log now are durable: those of the caller, and those that it has read.

    The error is one for clients of a coordinator. NOT_COORDINATOR: the group has moved to another broker, which waits
    for the records, too.
    """
    log = broker.groups.offsets.log_of(group_id)
    if log is None:
        return NO_ERROR if broker.links is None else ErrorCode.NOT_COORDINATOR
    if log.log_end_offset <= log.high_watermark:
        return NO_ERROR
    error = client_error(await wait_durable(broker, log, log.log_end_offset - 1))
    if not error and broker.links is not None and broker.groups.offsets.log_of(group_id) is None:
        return ErrorCode.NOT_COORDINATOR
    return error
