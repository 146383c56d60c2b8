"""Consumers and copiers as scripts. A copier consumes, produces and commits its position in one transaction. free"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from lab.client_requests import FENCED, NOT_A_MEMBER, OUT_OF_RANGE, RETRIABLE, fetch, offset_fetch
from lab.simulation.process import Lost, Process, Script
from lab.simulation.producers import Abortable, Producer, ProducerBehaviour, Refused
from lab.simulation.reading import Visible, visible
from lab.simulation.routes import NO_EPOCH
from ottla.protocol.values import ProducerIdAndEpoch, TopicPartition
from ottla.testkit.in_memory import wire

if TYPE_CHECKING:
    from lab.simulation.world import World

MAX_WAIT_MS: Final = 60
IDLE_POLLS: Final = 3
NO_MEMBER: Final = (-1, "")
"""Generation and member id of a client that is in no group."""


def poll(
    process: Process,
    place: TopicPartition,
    offset: int,
    committed: bool,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
) -> Script:
    """Send one Fetch, recorded in the history. Return the visible records, or None if it was lost or refused."""
    history = process.world.history
    key = f"{place[0]}/{place[1]}"
    op = history.invoke(process.name, "poll", committed=committed, txn=process.txn)
    try:
        epoch = NO_EPOCH if process.routes is None else process.routes.epoch_of(place)
        answer = yield from process.call(fetch(*place, offset, committed, max_wait_ms, max_bytes, epoch))
    except Lost:
        history.info(process.name, "poll", op)
        return None
    row = answer.responses[0].partitions[0]
    if row.error_code:
        history.fail(process.name, "poll", op, row.error_code)
        return None
    aborted = (
        [(entry.producer_id, entry.first_offset) for entry in row.aborted_transactions or ()] if committed else None
    )
    seen = visible(bytes(row.records or b""), aborted, offset)
    history.ok(
        process.name, "poll", op, committed=committed, mops=[["poll", key, offset, seen.next_offset, seen.records]]
    )
    return seen


class Reader(Process):
    """A client that reads partitions, with read_committed or without."""

    def __init__(
        self, world: "World", name: str, random: Random, places: Sequence[TopicPartition], committed: bool
    ) -> None:
        super().__init__(world, name, random)
        self.places = places
        self.committed = committed

    def fetch(self, place: TopicPartition, offset: int) -> Script:
        """Send one Fetch. Return a result with a `next_offset`, or None without an answer."""
        raise NotImplementedError

    def read_all(self) -> Script:
        """Read each partition from offset 0 to its end."""
        for place in self.places:
            offset, before = 0, -1
            while offset != before:
                seen = yield from self.fetch(place, offset)
                if seen is None:
                    yield from self.sleep(50)
                else:
                    offset, before = seen.next_offset, offset


class Consumer(Reader):
    """A consumer that polls its partitions until the faults end (`World.resting`)."""

    has_worked = True

    def run(self) -> Script:
        positions = dict.fromkeys(self.places, 0)
        while not self.world.resting:
            place = self.random.choice(self.places)
            wait_ms = MAX_WAIT_MS if self.random.random() < 0.5 else 0
            small = self.random.random() < 0.3
            seen = yield from poll(self, place, positions[place], self.committed, wait_ms, 1 if small else 1 << 20)
            if seen is not None:
                positions[place] = seen.next_offset
            yield from self.sleep(20 + self.random.random() * 200)

    def fetch(self, place: TopicPartition, offset: int) -> Script:
        return (yield from poll(self, place, offset, self.committed))


class KeyReader(Reader):
    """A consumer that polls compacted partitions until the faults end (`World.resting`)."""

    has_worked = True

    def run(self) -> Script:
        positions = dict.fromkeys(self.places, 0)
        while not self.world.resting:
            place = self.random.choice(self.places)
            if self.random.random() < 0.2:
                positions[place] = 0
            seen = yield from self.fetch(place, positions[place])
            if seen is not None:
                positions[place] = seen.next_offset
            yield from self.sleep(20 + self.random.random() * 200)

    def fetch(self, place: TopicPartition, offset: int) -> Script:
        """Send one Fetch. An offset out of range returns no records and the log start offset."""
        max_bytes = 1 if self.random.random() < 0.3 else 1 << 20
        try:
            answer = yield from self.call(fetch(*place, offset, self.committed, 0, max_bytes))
        except Lost:
            return None
        row = answer.responses[0].partitions[0]
        if row.error_code == OUT_OF_RANGE:
            return Visible([], self.world.start_of(place))
        if row.error_code:
            return None
        aborted = [(e.producer_id, e.first_offset) for e in row.aborted_transactions or ()] if self.committed else None
        seen = visible(bytes(row.records or b""), aborted, offset)
        if self.world.uncompacted is not None:
            self.world.uncompacted.saw(place, self.committed, offset, seen)
        return seen


class Copier(Producer):
    """A client that consumes one partition with read_committed and commits outputs and position together (KIP-98)."""

    def __init__(
        self,
        world: "World",
        name: str,
        random: Random,
        transactional_id: str,
        source: TopicPartition,
        places: Sequence[TopicPartition],
        group: str,
        behaviour: ProducerBehaviour,
    ) -> None:
        super().__init__(world, name, random, transactional_id, places, behaviour)
        self.source = source
        self.group = group
        self.position: int | None = None
        self.ahead: int | None = None
        self.of_producer: ProducerIdAndEpoch | None = None
        self.membership = NO_MEMBER

    def work(self) -> Script:
        if self.position is None or self.of_producer != self.producer:
            yield from self.find_position()
        seen: Visible | None = None
        for _ in range(IDLE_POLLS):
            seen = yield from poll(self, self.source, self.position or 0, True, MAX_WAIT_MS, 200)
            if seen is not None and seen.records:
                break
        if seen is None or not seen.records:
            return
        origin = f"{self.source[0]}/{self.source[1]}"
        taken = seen.records[:3]
        place = self.random.choice(self.places)
        values = [f"{self.next_value()}<{origin}/{offset}" for offset, _value in taken]
        next_offset = taken[-1][0] + 1 if len(taken) < len(seen.records) else seen.next_offset
        self.position, self.ahead = None, next_offset
        if self.random.random() < 0.3:
            yield from self.commit_position(next_offset)
            yield from self.add([place])
            yield from self.produce([(place, values)])
        else:
            yield from self.add([place])
            yield from self.produce([(place, values)])
            yield from self.maybe_pause()
            yield from self.commit_position(next_offset)

    def end(self, commit: bool) -> Script:
        yield from super().end(commit)
        self.of_producer = self.producer
        if commit:
            self.position = self.ahead

    def find_position(self) -> Script:
        """Fetch the committed offset. Retry until no open transaction may change it."""
        op = self.history.invoke(self.name, "fetch-offsets", group=self.group)
        key = f"{self.source[0]}/{self.source[1]}"
        while True:
            try:
                error, row = yield from self.fetch_position()
            except Lost:
                yield from self.back_off()
                continue
            error = error or (row.error_code if row is not None else 0)
            if not error:
                break
            if error not in RETRIABLE:
                self.history.info(self.name, "fetch-offsets", op, error)
                raise Refused(error)
            yield from self.back_off()
        found = row.committed_offset if row is not None else -1
        self.history.ok(self.name, "fetch-offsets", op, group=self.group, mops=[["offset", key, found]])
        self.position, self.of_producer = max(found, 0), self.producer

    def fetch_position(self) -> Script:
        """Return the error of an OffsetFetch, and the row of the partition if there is one."""
        answer = yield from self.call(offset_fetch(self.group, self.source[0], [self.source[1]]))
        return answer.error_code, answer.topics[0].partitions[0] if answer.topics else None

    def commit_position(self, next_offset: int) -> Script:
        assert self.producer is not None and self.transactional_id is not None
        if self.generation.adds_by_itself:
            request = wire.add_offsets(self.transactional_id, self.producer, self.group)
            yield from self.insist(request, lambda answer: answer.error_code)
        key = f"{self.source[0]}/{self.source[1]}"
        op = self.history.invoke(
            self.name, "offsets", txn=self.txn, group=self.group, pid=self.producer[0], epoch=self.producer[1],
            metadata=self.txn, mops=[["offset", key, next_offset]],
        )  # fmt: skip
        request = wire.txn_offset_commit(
            self.generation,
            self.transactional_id,
            self.producer,
            self.group,
            [(*self.source, next_offset)],
            self.txn or "",
            self.membership,
        )
        try:
            yield from self.insist(request, lambda answer: answer.topics[0].partitions[0].error_code)
        except Refused as refused:
            self.history.info(self.name, "offsets", op, refused.error)
            if refused.error in NOT_A_MEMBER:
                self.world.met["commits refused to members of the past"] += 1
                self.membership = NO_MEMBER
            if refused.error in FENCED or refused.error < 0:
                raise
            raise Abortable from None
        self.history.ok(self.name, "offsets", op, mops=[["offset", key, next_offset]])
