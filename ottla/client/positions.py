"""What a consumer has read since its last committed transaction, and the way back. shell"""

from typing import Any
from weakref import WeakKeyDictionary

# What the last committed transaction sent for a consumer, so that an empty poll does not cost a transaction of three
# requests. It holds for one generation only: after a rebalance another member may have moved the group's offsets.
_committed: "WeakKeyDictionary[Any, tuple[Any, dict[Any, int]]]" = WeakKeyDictionary()


def _is_member(generation: Any) -> bool:
    generation_id, _ = generation
    return generation_id is None or generation_id >= 0


class Positions:
    """The positions of one consumer around one transaction."""

    __slots__ = ("_at_begin", "_begin_generation", "_consumer", "_sent")

    def __init__(self, consumer: Any) -> None:
        config = consumer.config
        if config["group_id"] is None:
            raise ValueError(
                "transaction(consumer=...) commits the positions of a group: the consumer needs a group_id"
            )
        if config["enable_auto_commit"]:
            raise ValueError(
                "transaction(consumer=...) needs a consumer with enable_auto_commit=False: "
                "otherwise it would commit its positions outside the transaction"
            )
        self._consumer = consumer
        self._sent: dict[Any, int] = {}
        self._begin_generation = self._generation() if consumer.assignment() else None
        earliest = config["auto_offset_reset"] == "earliest"
        self._at_begin = {} if earliest else self._known()

    def _known(self) -> dict[Any, int]:
        positions = {tp: self._consumer.position(tp, timeout_ms=0) for tp in self._consumer.assignment()}
        return {tp: offset for tp, offset in positions.items() if offset is not None}

    def _generation(self) -> Any:
        metadata = self.group_metadata()
        return getattr(metadata, "generation_id", None), getattr(metadata, "member_id", None)

    def group_metadata(self) -> Any:
        """The membership that the broker checks (KIP-447), or the group's id where the client has no such thing."""
        metadata = getattr(self._consumer, "group_metadata", None)
        return metadata() if metadata is not None else self._consumer.config["group_id"]

    def moved(self) -> dict[Any, Any]:
        """The offsets to commit: positions of assigned partitions that the last transaction did not commit already.

        Raises kafka.errors.IllegalGenerationError or UnknownMemberIdError when the group rebalanced inside the block or
        threw the consumer out: what was read no longer matches what is assigned.
        """
        from kafka.errors import IllegalGenerationError, UnknownMemberIdError
        from kafka.structs import OffsetAndMetadata

        current = self._generation()
        if self._begin_generation not in (None, current):
            raise IllegalGenerationError
        generation, before = _committed.get(self._consumer, (None, {}))
        if generation != current:
            before = {}
        self._sent = {tp: offset for tp, offset in self._known().items() if before.get(tp) != offset}
        if self._sent and self._consumer.subscription() is not None and not _is_member(current):
            # Without a member id the broker would take the offsets from anybody, as from clients before KIP-447.
            raise UnknownMemberIdError
        return {tp: OffsetAndMetadata(offset) for tp, offset in self._sent.items()}

    def committed(self) -> None:
        """The transaction with what `moved` returned was committed."""
        generation, before = _committed.get(self._consumer, (None, {}))
        current = self._generation()
        _committed[self._consumer] = (current, {**(before if generation == current else {}), **self._sent})

    def rewind(self, timeout_ms: int) -> None:
        """Go back to the last committed offsets; where there are none, to where the group began.

        That is the beginning for auto_offset_reset='earliest', otherwise the position when the block was entered (so
        poll inside the block with 'latest'). Waits for offsets that are still pending in an unfinished transaction.
        Raises what `consumer.committed` raises.
        """
        _committed.pop(self._consumer, None)
        for tp in self._consumer.assignment():
            offset = self._consumer.committed(tp, timeout_ms=timeout_ms)
            if offset is None:
                offset = self._at_begin.get(tp)
            if offset is None:
                self._consumer.seek_to_beginning(tp)
            else:
                self._consumer.seek(tp, offset)
