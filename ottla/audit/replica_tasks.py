"""The check `replicas`: tasks read all copies of a partition at once, in the order of offsets, and compare them. shell

Batches that are the same in all copies are passed over in blocks. Only the batches where copies differ are decoded, so
the memory for a partition does not depend on its size.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from ottla.audit.audited import Limit
from ottla.audit.checks import replicas
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.replicas import NO_PLACE, Compared, Copy, Span
from ottla.audit.copy_cursor import FAR, CopyCursor, count_equal
from ottla.audit.runner import run
from ottla.audit.tasks import Settings, Work, task
from ottla.protocol.batch_header import CONTROL
from ottla.protocol.checkpoints import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    decode_epochs,
    decode_partition_metadata,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import TopicPartition
from ottla.scan import headers, storage
from ottla.scan.compiled.kernels import Longs
from ottla.scan.ranges import LogRange, cut_partition

if TYPE_CHECKING:
    from ottla.audit.listed import Listed
    from ottla.audit.runner import Runner

T = TypeVar("T")

_LEAST_BLOCK: Final = 16
_LARGEST_BLOCK: Final = 16_384


class ComparedReplicas(NamedTuple):
    """The findings of `replicas`, and the copies that could not be compared or prove nothing."""

    findings: Sequence[Finding] = ()
    reduced: Sequence[Limit] = ()


def compare_replicas(
    runner: "Runner", listed: Sequence["Listed"], limits: Mapping[str, int], settings: Settings
) -> ComparedReplicas:
    """Compare the copies of each partition that several directories or brokers have. Raises AuditFailed.

    `limits`: the offsets at which `--as-of` ends partitions, by their names.
    """
    groups: dict[str, list[Listed]] = {}
    for one in listed:
        groups.setdefault(one.log.name, []).append(one)
    several = [group for group in groups.values() if len(group) > 1]
    reduced = [Limit("replicas", limit) for group in several for one in group if (limit := _limit_of(one))]
    readable = [[one for one in group if not one.unread] for group in several]
    works = [
        _work(index, group, limits.get(group[0].log.name, FAR), settings)
        for index, group in enumerate(readable)
        if len(group) > 1
    ]
    results = run(runner, compare, works, "comparing replicas") if works else []
    found = [one for result in results if isinstance(result.value, tuple) for one in result.value]
    reduced += [one for one in found if isinstance(one, Limit)]
    return ComparedReplicas([one for one in found if isinstance(one, Finding)], reduced)


def _limit_of(one: "Listed") -> str:
    """Return the reason why nothing is known about a copy; empty if it can be compared."""
    place = f"{one.log.name} in {storage.hide_secrets(one.directory)}"
    if one.unread:
        return f"{place}: {one.unread}"
    if one.log.size_bytes and not one.high_watermark:
        return f"{place}: no high watermark in {HIGH_WATERMARKS}, so it proves nothing"
    return ""


def _work(index: int, group: Sequence["Listed"], limit: int, settings: Settings) -> Work:
    """Return the work of comparing the copies of a partition. Its range has the pieces of all of them."""
    copies = tuple(_copy(one, limit) for one in group)
    log, pieces = group[0].log, tuple(piece for copy in copies for piece in copy.pieces)
    part = LogRange(index, 0, log.topic, log.partition, log.log_start, pieces)
    return Work(part, settings, None, 0, copies=copies)


def _copy(one: "Listed", limit: int) -> Copy:
    log = one.log
    pieces = tuple(piece for part in cut_partition(0, log, log.size_bytes + 1) for piece in part.pieces)
    folder = log.path if log.window is None else ""
    return Copy(storage.hide_secrets(one.directory), folder, pieces, log.log_start, min(one.high_watermark, limit))


@task
def compare(work: Work) -> tuple[Finding | Limit, ...]:
    """Return the findings on the copies of one partition, and the copies that a broker does not send completely.

    Only copies of the same topic are compared: one with another topic id is of a deleted topic with the same name.
    """
    place = work.part.topic, work.part.number
    found: list[Finding | Limit] = []
    groups: dict[bytes | None, list[Copy]] = {}
    for copy in work.copies:
        try:
            known = copy._replace(epochs=tuple(_read(copy, LEADER_EPOCHS, decode_epochs) or ()))
            groups.setdefault(_read(copy, PARTITION_METADATA, decode_partition_metadata), []).append(known)
        except ProtocolError as error:
            found.append(replicas.describe_unread(place, copy.name, str(error)))
    for copies in groups.values():
        compared = Comparison(copies).run()
        found += replicas.findings(place, copies, compared)
        found += [_describe_unread(place, copies[index], reason) for index, reason in compared.unread.items()]
    return tuple(found)


def _describe_unread(place: TopicPartition, copy: Copy, reason: str) -> Finding | Limit:
    """Return a warning about files. A broker may stop, and a topic may be deleted while it is read."""
    unread = replicas.describe_unread(place, copy.name, reason)
    return unread if copy.folder else Limit("replicas", unread.message)


def _read(copy: Copy, name: str, decode: Callable[[bytes], T]) -> T | None:
    """Return the content of a small file of a copy; None without it. Raises ProtocolError with its path."""
    path = storage.join(copy.folder, name)
    content = storage.read_if_there(path) if copy.folder else None
    try:
        return None if content is None else decode(content)
    except ProtocolError as error:
        raise ProtocolError(f"{storage.hide_secrets(path)}: {error}") from None


class Comparison:
    """Compares the copies of a partition in one pass over all of them."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._copies = copies
        self._cursors = [CopyCursor(copy.pieces, copy.log_start) for copy in copies]
        self._limit = max(copy.high_watermark for copy in copies)
        self._block = _LEAST_BLOCK
        self._differing: dict[tuple[int, int], Span] = {}
        self._damaged: dict[tuple[int, int], Span] = {}
        self._lost: dict[int, dict[tuple[int, int], Span]] = {}

    def run(self) -> Compared:
        """Compare up to the highest high watermark: no copy proves anything about later records."""
        while (first := min(one.base_offset for one in self._cursors)) < self._limit:
            group = [index for index, one in enumerate(self._cursors) if one.base_offset == first]
            after = min((one.base_offset for one in self._cursors if one.base_offset > first), default=FAR)
            size = count_equal([self._cursors[index] for index in group], min(after, self._limit), self._block)
            if size:
                self._pass(group, size)
            else:
                self._compare_present()
            self._block = min(2 * self._block, _LARGEST_BLOCK) if size == self._block else _LEAST_BLOCK
        unread = {index: one.failure for index, one in enumerate(self._cursors) if one.failure}
        return Compared(self._differing, self._damaged, self._lost, unread)

    def _pass(self, group: Sequence[int], size: int) -> None:
        """Pass over the next batches, which are the same in the copies of a group, and which all others lack."""
        for other in range(len(self._copies)):
            if other not in group:
                for index in group:
                    self._note_absent(index, other, size)
        for index in group:
            self._cursors[index].skip(size)

    def _compare_present(self) -> None:
        """Compare the present batches with one another, as far as they overlap, and pass over those that end first."""
        present = [index for index, one in enumerate(self._cursors) if one.base_offset < FAR]
        last = min(self._cursors[index].last_offset for index in present)
        members = [index for index in present if self._cursors[index].base_offset <= last]
        for one, other in combinations(members, 2):
            self._compare(one, other)
        ending = [index for index in members if self._cursors[index].last_offset == last]
        for index in ending:
            for other in range(len(self._copies)):
                if other not in members:
                    self._note_absent(index, other, 1)
        for index in ending:
            self._cursors[index].skip(1)

    def _compare(self, one: int, other: int) -> None:
        """Compare the present batches of two copies."""
        first, second = (self._cursors[index].rows[0, headers.BASE_OFFSET :] for index in (one, other))
        if (first == second).all():
            return
        epochs = self._epochs(one), self._epochs(other)
        is_split = min(epochs) >= 0 and epochs[0] != epochs[1]
        try:
            batches = self._cursors[one].decode(), self._cursors[other].decode()
        except ProtocolError as error:
            self._note_differing(one, other, [max(int(first[0]), int(second[0]))], epochs, str(error))
            return
        unequal = replicas.find_unequal(*batches)
        common = batches[0][1].keys() & batches[1][1].keys()
        if is_split and (unequal or not common):
            holder, loser = (one, other) if epochs[0] < epochs[1] else (other, one)
            self._note_overwritten(holder, loser, len(common - {*unequal}))
        elif is_split:
            self._note_differing(one, other, sorted(common), epochs, "only the leader epochs differ")
        else:
            self._note_differing(one, other, unequal, epochs, "")

    def _epochs(self, index: int) -> int:
        return int(self._cursors[index].rows[0, headers.LEADER_EPOCH])

    def _note_absent(self, index: int, other: int, size: int) -> None:
        """Note the next batches of a copy that another copy lacks: as lost, as damaged there, or not at all."""
        copy, lacking, cursor = self._copies[index], self._copies[other], self._cursors[other]
        rows = self._cursors[index].rows[:size]
        rows = rows[rows[:, headers.BASE_OFFSET] >= lacking.log_start]
        first, epochs = rows[:, headers.BASE_OFFSET], rows[:, headers.LEADER_EPOCH]
        later = self._epochs_at(other, first)
        is_lost = (first < copy.high_watermark) & (epochs >= 0) & (epochs < later)
        if is_lost.any():
            at = int(np.argmax(is_lost))
            self._note_lost(index, other, rows[is_lost], int(later[at]))
        if cursor.hole is not None:
            begin, end, damage = cursor.hole
            end = min(end, copy.high_watermark, lacking.high_watermark)
            broken = rows[(first >= begin) & (first < end)]
            if len(broken):
                new = _span_of(broken, (-1, int(broken[0, headers.LEADER_EPOCH])))
                _extend(
                    self._damaged,
                    (other, index),
                    new._replace(places=((damage.path, damage.position), NO_PLACE), reason=damage.reason),
                )

    def _note_overwritten(self, holder: int, loser: int, kept: int) -> None:
        """Note the present batch of a copy whose offsets have records of a later leader in another copy.

        `kept`: the number of records that the other copy has, too.
        """
        first, copy = self._cursors[holder].base_offset, self._copies[holder]
        if self._copies[loser].log_start <= first < copy.high_watermark:
            self._note_lost(holder, loser, self._cursors[holder].rows[:1], self._epochs(loser), kept)

    def _note_lost(self, holder: int, loser: int, rows: Longs, epoch: int, kept: int = 0) -> None:
        """Note batches that a copy still has and another one lost. Batches that were noted before are left out."""
        pair = holder, loser
        noted = max((spans[pair].last for spans in self._lost.values() if pair in spans), default=-1)
        rows = rows[rows[:, headers.BASE_OFFSET] > noted]
        elections = self._elections(loser, rows[:, headers.LEADER_EPOCH])
        for election in np.unique(elections).tolist():
            own = rows[elections == election]
            new = _span_of(own, (int(own[0, headers.LEADER_EPOCH]), epoch if election < 0 else election))
            new = new._replace(records=new.records - kept, places=(self._cursors[holder].place_of(own[0]), NO_PLACE))
            _extend(self._lost.setdefault(election, {}), pair, new)

    def _note_differing(
        self, one: int, other: int, offsets: Sequence[int], epochs: tuple[int, int], reason: str
    ) -> None:
        """Note offsets at which the present batches of two copies differ, as far as both copies prove them."""
        copies = self._copies[one], self._copies[other]
        begin = max(copy.log_start for copy in copies)
        end = min(copy.high_watermark for copy in copies)
        offsets = [offset for offset in offsets if begin <= offset < end]
        if offsets:
            cursors = self._cursors[one], self._cursors[other]
            places = cursors[0].place_of(cursors[0].rows[0]), cursors[1].place_of(cursors[1].rows[0])
            is_control = bool(cursors[0].rows[0, headers.ATTRIBUTES] & CONTROL)
            counts = (0, len(offsets)) if is_control else (len(offsets), 0)
            new = Span(offsets[0], offsets[-1], *counts, epochs, places, reason)
            _extend(self._differing, (one, other), new)

    def _elections(self, loser: int, epochs: Longs) -> Longs:
        """Return the first epoch of a copy after each of these, whose leader lacked their records; -1 if unknown."""
        known = np.array([epoch for epoch, _ in self._copies[loser].epochs], dtype=np.int64)
        if not len(known):
            return np.full(len(epochs), -1, dtype=np.int64)
        found: Longs = known[np.minimum(np.searchsorted(known, epochs, side="right"), len(known) - 1)]
        return found

    def _epochs_at(self, index: int, offsets: Longs) -> Longs:
        """Return the leader epoch that a copy's checkpoint, or else its batch before, has at each offset; -1: none."""
        epochs = self._copies[index].epochs
        if not epochs:
            return np.full(len(offsets), self._cursors[index].epoch, dtype=np.int64)
        table = np.array([(-1, -1), *epochs], dtype=np.int64)
        found: Longs = table[np.searchsorted(table[:, 1], offsets, side="right") - 1, 0]
        return found


def _span_of(rows: Longs, epochs: tuple[int, int]) -> Span:
    is_control = (rows[:, headers.ATTRIBUTES] & CONTROL) != 0
    counts = rows[:, headers.RECORD_COUNT]
    first, last = int(rows[0, headers.BASE_OFFSET]), int(rows[-1, headers.LAST_OFFSET])
    return Span(first, last, int(counts[~is_control].sum()), int(is_control.sum()), epochs)


def _extend(spans: dict[tuple[int, int], Span], pair: tuple[int, int], new: Span) -> None:
    spans[pair] = spans[pair].extend(new) if pair in spans else new
