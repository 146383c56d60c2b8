"""What a consumer has read since its last committed transaction, and the way back. shell"""

from typing import Any
from weakref import WeakKeyDictionary

from ottla.client.libraries import Consumer
from ottla.protocol.errors import ErrorCode

# What the last committed transaction sent for a consumer, so that an empty poll does not cost a transaction of three
# requests. It holds for one generation only: after a rebalance another member may have moved the group's offsets.
_committed: "WeakKeyDictionary[Any, tuple[Any, dict[Any, int]]]" = WeakKeyDictionary()


class Positions:
    """The positions of one consumer around one transaction."""

    __slots__ = ("_at_begin", "_begin_generation", "_consumer", "_sent")

    def __init__(self, consumer: Consumer) -> None:
        if consumer.group_id is None:
            raise ValueError(
                "transaction(consumer=...) commits the positions of a group: the consumer needs a group_id (group.id)"
            )
        if consumer.commits_by_itself:
            raise ValueError(
                "transaction(consumer=...) needs a consumer with enable_auto_commit=False (enable.auto.commit): "
                "otherwise it would commit its positions outside the transaction"
            )
        self._consumer = consumer
        self._sent: dict[Any, int] = {}
        self._begin_generation = consumer.generation() if consumer.assignment() else None
        self._at_begin = {} if consumer.from_the_beginning else consumer.known()

    def group_metadata(self) -> Any:
        """What the producer sends with the offsets, so that the broker can tell whose they are."""
        return self._consumer.group_metadata()

    def moved(self) -> Any:
        """The offsets to commit: positions of assigned partitions that the last transaction did not commit already.

        Raises the library's error for ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID when the group rebalanced inside the
        block or threw the consumer out: what was read no longer matches what is assigned.
        """
        consumer = self._consumer
        current = consumer.generation()
        if self._begin_generation not in (None, current):
            raise consumer.refused(ErrorCode.ILLEGAL_GENERATION)
        before = self._committed_in(current)
        self._sent = {tp: offset for tp, offset in consumer.known().items() if before.get(tp) != offset}
        if self._sent and consumer.subscribed and not consumer.is_member():
            # Without a member id the broker would take the offsets from anybody, as from clients before KIP-447.
            raise consumer.refused(ErrorCode.UNKNOWN_MEMBER_ID)
        return consumer.offsets(self._sent)

    def committed(self) -> None:
        """The transaction with what `moved` returned was committed."""
        if self._consumer.key is not None:
            current = self._consumer.generation()
            _committed[self._consumer.key] = (current, {**self._committed_in(current), **self._sent})

    def _committed_in(self, generation: Any) -> dict[Any, int]:
        """What transactions committed in a generation, as far as it is remembered."""
        key = self._consumer.key
        then, offsets = _committed.get(key, (None, {})) if key is not None else (None, {})
        return offsets if then == generation else {}

    async def rewind(self, timeout_ms: int) -> None:
        """Go back to the last committed offsets; where there are none, to where the group began.

        That is the beginning for auto_offset_reset='earliest', otherwise the position when the block was entered (so
        poll inside the block with 'latest'). Waits for offsets that are still pending in an unfinished transaction.
        Raises what the library raises.
        """
        if self._consumer.key is not None:
            _committed.pop(self._consumer.key, None)
        for tp in self._consumer.assignment():
            offset = await self._consumer.committed(tp, timeout_ms)
            await self._consumer.seek(tp, self._at_begin.get(tp) if offset is None else offset)
