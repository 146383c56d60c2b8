"""The fate of each record: whether its transaction has committed, has aborted or is open. pure

Below the last stable offset, a broker names the aborted transactions of each answer, and all others have committed.
From there on it names none, so the markers that follow decide.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.protocol.batch import ABORT, COMMIT, read_marker
from ottla.protocol.batch_header import BatchHeader

MOST_MARKERS: Final = 100_000
"""Markers that are kept in memory: some 20 MB."""


class Fate(StrEnum):
    """Fate of a record. UNKNOWN: its marker comes after `MOST_MARKERS` others."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


class Answer(NamedTuple):
    """Whole batches that a broker sent, with their positions, and (producer id, first offset) of aborted transactions.

    The records are valid until the next answer is read.
    """

    records: memoryview
    batches: tuple[tuple[int, BatchHeader], ...]
    aborted: tuple[tuple[int, int], ...] = ()


_FATES: Final = {ABORT: Fate.ABORTED, COMMIT: Fate.COMMITTED}


def find_marker(answer: Answer, position: int, header: BatchHeader) -> Fate | None:
    """Return the fate that a batch gives the transaction of its producer; None for a batch that is no marker."""
    if not header.is_control or not header.is_transactional:
        return None
    marker = read_marker(answer.records, header, position)
    return None if marker is None else _FATES.get(marker.control_type)


class AbortedTransactions:
    """The aborted transactions of one answer, whose batches are passed in order (`CompletedFetch` of Kafka)."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._left = deque(sorted(answer.aborted, key=lambda each: each[1]))
        self._producers: set[int] = set()

    def pass_batch(self, position: int, header: BatchHeader) -> Fate:
        """Return the fate of the records of a batch below the last stable offset."""
        while self._left and self._left[0][1] <= header.last_offset:
            self._producers.add(self._left.popleft()[0])
        if not header.is_transactional:
            return Fate.NONE
        if find_marker(self._answer, position, header) is Fate.ABORTED:
            self._producers.discard(header.producer_id)
        return Fate.ABORTED if header.producer_id in self._producers else Fate.COMMITTED


class MarkersAhead:
    """Markers of a partition, read ahead of the records as far as these need it.

    `list_open` returns producer ids with the first offset of their open transaction. It is called at most once, if a
    marker is not among the next `most`.
    """

    def __init__(
        self, answers: Iterable[Answer], list_open: Callable[[], Mapping[int, int]], most: int = MOST_MARKERS
    ) -> None:
        self._answers: Iterator[Answer] = iter(answers)
        self._list_open = list_open
        self._opened: Mapping[int, int] | None = None
        self._most = most
        self._ends: dict[int, deque[Fate]] = {}
        self._order: deque[tuple[int, int]] = deque()  # (offset, producer id)
        self._is_complete = False

    def pass_batch(self, header: BatchHeader) -> Fate:
        """Return the fate of the records of a batch, by the first marker of its producer after it.

        The batches come in order.
        """
        if header.is_control or not header.is_transactional:
            return Fate.NONE
        producer_id = header.producer_id
        while self._order and self._order[0][0] < header.base_offset:
            _, ended = self._order.popleft()
            self._ends[ended].popleft()
            if not self._ends[ended]:
                del self._ends[ended]
        while producer_id not in self._ends:
            if self._is_complete:
                return Fate.OPEN
            if len(self._order) >= self._most:
                return self._fate_of_open(producer_id, header.base_offset)
            self._read()
        return self._ends[producer_id][0]

    def _fate_of_open(self, producer_id: int, offset: int) -> Fate:
        if self._opened is None:
            self._opened = self._list_open()
        first = self._opened.get(producer_id)
        return Fate.OPEN if first is not None and first <= offset else Fate.UNKNOWN

    def _read(self) -> None:
        answer = next(self._answers, None)
        if answer is None:
            self._is_complete = True
            return
        for position, header in answer.batches:
            if fate := find_marker(answer, position, header):
                self._order.append((header.base_offset, header.producer_id))
                self._ends.setdefault(header.producer_id, deque()).append(fate)
