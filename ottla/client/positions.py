"""Positions of a consumer since its last committed transaction, and the return to them. shell"""

from typing import Any
from weakref import WeakKeyDictionary

from ottla.client.libraries import Consumer
from ottla.protocol.errors import ErrorCode


class _Memory:
    """Positions of a consumer in its previous transactions, valid for one generation.

    `committed` has the committed offsets, so that an empty poll does not cost a transaction of three requests. They are
    invalid after a rebalance, because another member may have moved the group's offsets. `began` has the positions at
    which the consumer began its generation or was rewound: a consumer at these positions has read nothing since. None
    if this check is not needed.
    """

    __slots__ = ("began", "committed", "generation", "rewound")

    def __init__(self, generation: Any = None, began: dict[Any, int] | None = None, rewound: bool = False) -> None:
        self.generation = generation
        self.began = began
        self.rewound = rewound
        self.committed: dict[Any, int] = {}


_memories: "WeakKeyDictionary[Any, _Memory]" = WeakKeyDictionary()


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
        at_begin = {} if consumer.from_the_beginning or consumer.lacks_start_positions else consumer.next_offsets()
        self._at_begin: dict[Any, int] = at_begin

    def group_metadata(self) -> Any:
        """Return the group metadata that the producer sends with the offsets. The broker checks the member by it."""
        return self._consumer.group_metadata()

    async def has_read(self, timeout_ms: int) -> bool:
        """Return whether a record was read since the consumer was rewound, or since its group rebalanced.

        Otherwise the block's records were polled earlier, and their positions are not the consumer's any more.
        """
        consumer, memory, generation = self._consumer, self._memory(), self._consumer.generation()
        if memory.generation != generation:
            began = await consumer.began(timeout_ms)
            memory = _memories[consumer.key] = _Memory(generation, began)
        if memory.began is None:
            return True
        return any(memory.began.get(tp) != offset for tp, offset in consumer.next_offsets().items())

    @property
    def rebalanced_inside(self) -> bool:
        """Whether the group rebalanced since the block began."""
        return self._begin_generation not in (None, self._consumer.generation())

    @property
    def is_rewound(self) -> bool:
        """Whether the consumer was rewound because the last transaction was not committed."""
        return self._memory().rewound

    def generation_error(self) -> Exception:
        """Return the library's error for a generation that has passed."""
        return self._consumer.error_of(ErrorCode.ILLEGAL_GENERATION)

    def offsets_to_commit(self) -> Any:
        """Return offsets to commit: positions of assigned partitions that the last transaction did not commit already.

        Raises the library's error for ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID when the group rebalanced inside the
        block or removed the consumer: the records read no longer match the assignment.
        """
        consumer = self._consumer
        if self.rebalanced_inside:
            raise self.generation_error()
        before = self._committed_in(consumer.generation())
        self._sent = {tp: offset for tp, offset in consumer.next_offsets().items() if before.get(tp) != offset}
        if self._sent and consumer.subscribed and not consumer.is_member():
            # Without a member id the broker would accept the offsets of any client, as before KIP-447.
            raise consumer.error_of(ErrorCode.UNKNOWN_MEMBER_ID)
        return consumer.offsets(self._sent)

    def note_commit(self) -> None:
        """Store that the transaction with the offsets of `offsets_to_commit` was committed."""
        current = self._consumer.generation()
        memory = _Memory(current)
        if self._consumer.identified:
            memory.committed = {**self._committed_in(current), **self._sent}
        _memories[self._consumer.key] = memory

    def _memory(self) -> _Memory:
        return _memories.get(self._consumer.key) or _Memory()

    def _committed_in(self, generation: Any) -> dict[Any, int]:
        """Return the offsets that transactions committed in a generation, or none if it was another."""
        memory = self._memory()
        return memory.committed if memory.generation == generation else {}

    async def rewind(self, timeout_ms: int) -> None:
        """Seek to the last committed offsets or, without them, to the start of the group.

        The start is the beginning for auto_offset_reset='earliest', otherwise the position when the block was entered
        (so poll inside the block with 'latest'). Waits for offsets that are still pending in an unfinished transaction.
        Raises the library's errors, and LookupError if the start of 'latest' is not known.
        """
        consumer = self._consumer
        _memories.pop(consumer.key, None)
        for tp in consumer.next_offsets():  # the others were not read
            await consumer.seek(tp, await self._start(tp, timeout_ms), timeout_ms)
        _memories[consumer.key] = _Memory(consumer.generation(), consumer.next_offsets(), rewound=True)

    async def _start(self, tp: Any, timeout_ms: int) -> int | None:
        """Return the first position that is not committed; None for the beginning of the partition."""
        offset = await self._consumer.committed_offset(tp, timeout_ms)
        if offset is not None or self._consumer.from_the_beginning:
            return offset
        if tp not in self._at_begin:
            raise LookupError(
                f"no offset is committed for {tp}, and without auto_offset_reset='earliest' its start is unknown: "
                "commit a position before the first transaction"
            )
        return self._at_begin[tp]
