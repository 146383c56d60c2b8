"""Producers as scripts: ordinary, slow, pipelining, and zombies that continue after they were fenced. free"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from lab.client_requests import FENCED, NONE, NOT_COORDINATOR, RETRIABLE, UNKNOWN_PRODUCER_ID, write_txn_marker
from lab.simulation import promises
from lab.simulation.process import REPLY_TIMEOUT_MS, Attempt, Lost, Process, Script
from lab.simulation.setting import KEYED, KEYS
from ottla.protocol.batch import build_batch
from ottla.protocol.values import ProducerIdAndEpoch, TopicPartition
from ottla.testkit.in_memory import wire

if TYPE_CHECKING:
    from lab.simulation.world import World

TRIES: Final = 12
BACKOFF_MS: Final = 20.0
ECHO_MS: Final = 400.0
OUT_OF_ORDER: Final = 45
LOST: Final = -1


class ProducerBehaviour(NamedTuple):
    """The behaviour of a producer: probabilities, and times in ms."""

    transactions: int = 4
    abort: float = 0.25
    pause: float = 0.1
    pause_ms: float = 300.0
    depth: int = 1
    """The number of batches sent before the producer waits for the first reply."""
    skip: float = 0.0
    """The producer skips a sequence, like a client that loses a batch."""
    hasty: float = 0.0
    """The producer gives up batches as soon as they are sent and aborts the transaction on another connection, like a
    client whose delivery timeout has expired."""
    quits: float = 0.0
    """The producer stops for ever in the middle of a transaction."""
    stubborn: float = 0.3
    timeout_ms: int = 2000
    patience_ms: float = REPLY_TIMEOUT_MS
    """The time for which the producer waits for a reply."""
    echo: float = 0.0
    """The producer sends an answered request again later."""
    takes_back: float = 0.0
    """After a lost reply the application aborts. The client resets its sequences to the first batch that was not
    acknowledged, as librdkafka does, and the next transaction of the epoch begins with them."""


class Refused(Exception):
    """Raised for an error that ends this instance of the producer."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class Abortable(Exception):
    """Raised when the transaction must be aborted. `keeps_epoch`: the next one keeps its epoch and its sequences."""

    def __init__(self, keeps_epoch: bool = False) -> None:
        super().__init__()
        self.keeps_epoch = keeps_epoch


class Stopped(Exception):
    """Raised when the producer stops and leaves its transaction open."""


class Write:
    """A batch to send, until it is acknowledged or given up."""

    __slots__ = ("attempt", "follows", "lost", "op", "place", "request", "sequence", "values")

    def __init__(
        self, request: wire.Request, attempt: Attempt, op: int, place: TopicPartition, values: Sequence[str],
        sequence: int, follows: bool,
    ) -> None:  # fmt: skip
        self.request = request
        self.attempt = attempt
        self.op = op
        self.place = place
        self.values = values
        self.sequence = sequence
        self.follows = follows
        self.lost = False


class Producer(Process):
    """A producer with a transactional id, or without one (idempotence alone)."""

    def __init__(
        self, world: "World", name: str, random: Random, transactional_id: str | None, places: Sequence[TopicPartition],
        behaviour: ProducerBehaviour,
    ) -> None:  # fmt: skip
        super().__init__(world, name, random)
        self.transactional_id = transactional_id
        self.places = places
        self.behaviour = behaviour
        self.history = world.history
        self.generation = world.generations.of(transactional_id or name)
        self.producer: ProducerIdAndEpoch | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.added: dict[TopicPartition, None] = {}
        self.begun = False
        self.serial = 0
        self.values = 0

    def run(self) -> Script:
        """Run the transactions one after the other, with a new instance whenever the old one is refused."""
        left = self.behaviour.transactions
        while left > 0:
            try:
                if self.producer is None:
                    yield from self.initialise()
                while left > 0:
                    left -= 1
                    yield from self.transaction()
                    yield from self.maybe_pause()
            except Stopped:
                return
            except Refused as refused:
                if refused.error == OUT_OF_ORDER and not self._is_hit():
                    self.world.met["fatal sequences"] += 1
                if refused.error in FENCED and self.random.random() < self.behaviour.stubborn:
                    yield from self.act_as_zombie()
                self.producer, self.txn = None, None
                yield from self.sleep(self.random.random() * 500)

    def transaction(self) -> Script:
        self._name_next()
        self.added, self.begun = {}, False
        try:
            yield from self.work()
            if self.begun and self.random.random() < self.behaviour.quits:
                raise Stopped
            if self.begun:
                yield from self.end(self.random.random() >= self.behaviour.abort)
        except Abortable as abortable:
            yield from self.recover(abortable.keeps_epoch)
        self.txn = None

    def work(self) -> Script:
        """Write random batches to random partitions."""
        for _ in range(self.random.randint(1, 2)):
            writes = self.draw_writes()
            if self.transactional_id is not None:
                yield from self.add([place for place, _values in writes])
            yield from self.maybe_pause()
            yield from self.produce(writes)
        yield from self.maybe_pause()

    def recover(self, keeps_epoch: bool = False) -> Script:
        """Abort and begin a new epoch, because the sequences are no longer known (KIP-360)."""
        if self.transactional_id is None:
            self.producer = None
            raise Refused(LOST)
        if self.begun:
            yield from self.end(False)
            if keeps_epoch or self.generation is wire.V2:
                return  # in V2 the abort has moved the epoch
        yield from self.initialise(self.producer)

    def act_as_zombie(self) -> Script:
        """Continue as a zombie after the instance was fenced."""
        if self.txn is None:
            # Refused between two transactions, so its writes belong to one that it did not announce.
            self._name_next()
        for _ in range(self.random.randint(1, 3)):
            try:
                if self.random.random() < 0.6:
                    yield from self.produce(self.draw_writes()[:1])
                elif self.begun:
                    yield from self.end(self.random.random() < 0.7)
                    return  # it was not fenced: the next write belongs to another transaction
            except (Refused, Abortable):
                continue

    # --- requests

    def reply(self, correlation_id: int, timeout_ms: float = REPLY_TIMEOUT_MS) -> Script:
        return super().reply(correlation_id, min(timeout_ms, self.behaviour.patience_ms))

    def on_answer(self, request: wire.Request, attempt: Attempt | None) -> None:
        if self.behaviour.echo and self.random.random() < self.behaviour.echo:
            delay_ms = self.random.random() ** 2 * ECHO_MS
            self.world.met["repeated requests"] += 1
            self.world.schedule.after(delay_ms, lambda: self.send_again(request, attempt))

    def initialise(self, expected: ProducerIdAndEpoch | None = None) -> Script:
        op = self.history.invoke(self.name, "init", txn_id=self.transactional_id)
        attempt = Attempt(self, None)
        request = wire.init_producer_id(self.transactional_id, self.behaviour.timeout_ms, *(expected or (-1, -1)))
        while True:
            try:
                answer = yield from self.call(request, attempt)
            except Lost:
                yield from self.back_off()
                continue
            if answer.error_code == NONE:
                break
            if answer.error_code not in RETRIABLE:
                attempt.over = True
                self.history.info(self.name, "init", op, answer.error_code)
                raise Refused(answer.error_code)
            yield from self.back_off()
        attempt.over = True
        self.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        self.sequences = {}
        self.generation = self.world.generations.of(self.transactional_id or self.name)
        self.history.ok(
            self.name, "init", op, txn_id=self.transactional_id, pid=answer.producer_id, epoch=answer.producer_epoch
        )

    def add(self, places: Sequence[TopicPartition]) -> Script:
        """Send AddPartitionsToTxn for the partitions that are not in the transaction yet."""
        new = [place for place in dict.fromkeys(places) if place not in self.added]
        if not new or self.transactional_id is None or not self.generation.adds_by_itself:
            return
        assert self.producer is not None
        request = wire.add_partitions(self.transactional_id, self.producer, new)
        yield from self.insist(
            request, lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
        self.added.update(dict.fromkeys(new))

    def insist(self, request: wire.Request, error_of) -> Script:  # type: ignore[no-untyped-def]
        """Send until an answer is not retriable, at most TRIES times. Raises Refused for an error or no answer."""
        attempt = Attempt(self, self.txn, self.producer)
        for _ in range(TRIES):
            self.begun = True
            try:
                answer = yield from self.call(request, attempt)
            except Lost:
                yield from self.back_off()
                continue
            error = error_of(answer)
            if error not in RETRIABLE:
                attempt.over = True
                if error:
                    raise Refused(error)
                return answer
            yield from self.back_off()
        attempt.over = True
        raise Refused(LOST)

    def produce(self, writes: Sequence[tuple[TopicPartition, list[str]]]) -> Script:
        """Send batches, `depth` at a time, until each is acknowledged. Raises Abortable or Refused."""
        pending = [self._begin_write(place, values) for place, values in writes]
        self.begun = self.begun or self.transactional_id is not None
        if self.transactional_id is not None and self.random.random() < self.behaviour.hasty:
            for write in pending:
                yield from self.post(write.request, write.attempt)
            if self.random.random() < 0.5:
                self.hang_up()
            else:
                self.turn_away()
            self._give_up(pending, errors={})
            raise Abortable
        for _ in range(TRIES):
            if not pending:
                return
            batch = pending[: self.behaviour.depth]
            errors: dict[int, int] = {}
            try:
                numbers = []
                for write in batch:
                    numbers.append((yield from self.post(write.request, write.attempt)))
                for write, number in zip(batch, numbers, strict=True):
                    answer = yield from self.reply(number)
                    errors[write.op] = self._on_result(write, answer.responses[0].partition_responses[0])
                    self.on_answer(write.request, write.attempt)
            except Lost:
                for write in batch:
                    write.lost = write.lost or errors.get(write.op) != NONE
            if self.transactional_id is not None and not self._is_hit():
                answers = [(write.place, write.lost, errors[write.op]) for write in batch if write.op in errors]
                self.world.violations.extend(promises.of_order(self.world, self.name, answers))
            pending = [write for write in pending if errors.get(write.op) != NONE]
            self._raise_final(pending, errors)
            self._maybe_take_back(pending)
            if pending:
                yield from self.back_off()
        if pending:
            self._give_up(pending, errors={})
            raise Abortable

    def end(self, commit: bool) -> Script:
        """Send EndTxn until it has a final answer. Raises Refused."""
        assert self.producer is not None and self.transactional_id is not None
        assert self.txn is not None  # the checker counts known anomalies by the names of transactions
        op = self.history.invoke(
            self.name, "end", txn=self.txn, commit=commit, pid=self.producer[0], epoch=self.producer[1]
        )
        attempt = Attempt(self, self.txn, self.producer)
        request = wire.end_txn(self.generation, self.transactional_id, self.producer, commit)
        lost, error, begun_ms = False, LOST, self.world.wall_ms()
        for _ in range(2 * TRIES):
            try:
                answer = yield from self.call(request, attempt)
            except Lost:
                lost, error = True, LOST
                yield from self.back_off()
                continue
            error = answer.error_code
            if error not in RETRIABLE:
                break
            lost = lost or error == NOT_COORDINATOR  # the next coordinator may have the decision
            yield from self.back_off()
        attempt.over = True
        self.begun = False
        end = promises.EndRequest(self.transactional_id, self.producer, commit, self.generation is wire.V2, begun_ms)
        self.world.violations.extend(promises.of_end(self.world, end, error))
        if error == NONE:
            if self.generation is wire.V2:
                self.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                self.sequences = {}
            self.history.ok(
                self.name, "end", op, txn=self.txn, commit=commit, pid=self.producer[0], epoch=self.producer[1]
            )
            yield from self.follow_level()
            return
        if lost or error in RETRIABLE:
            self.history.info(self.name, "end", op, error)
        else:
            self.history.fail(self.name, "end", op, error)
        raise Refused(error)

    def follow_level(self) -> Script:
        """Use the transaction version of the cluster's level from the next transaction on.

        The change to transactions V2 begins with a new epoch (`TransactionManager.maybeUpdateTransactionV2Enabled` of
        Kafka's client).
        """
        before, self.generation = self.generation, self.world.generations.of(self.transactional_id or self.name)
        if before is wire.V1 and self.generation is wire.V2:
            self.txn = None
            yield from self.initialise(self.producer)

    # --- parts

    def _name_next(self) -> None:
        self.serial += 1
        self.txn = None if self.transactional_id is None else f"{self.name}/{self.serial}"

    def draw_writes(self) -> list[tuple[TopicPartition, list[str]]]:
        writes = []
        for _ in range(self.random.randint(1, max(2, self.behaviour.depth))):
            writes.append(
                (self.random.choice(self.places), [self.next_value() for _ in range(self.random.randint(1, 2))])
            )
        return writes

    def next_value(self) -> str:
        self.values += 1
        return f"{self.name}:{self.values}"

    def maybe_pause(self) -> Script:
        if self.random.random() < self.behaviour.pause:
            yield from self.sleep(self.random.random() * self.behaviour.pause_ms)

    def back_off(self) -> Script:
        yield from self.sleep(BACKOFF_MS * (0.5 + self.random.random()))

    def _key(self, place: TopicPartition) -> bytes | None:
        return b"%d" % self.random.randrange(KEYS) if place[0] == KEYED else None

    def _begin_write(self, place: TopicPartition, values: Sequence[str]) -> Write:
        assert self.producer is not None
        sequence = follows = self.sequences.get(place, 0)
        if self.behaviour.skip and self.random.random() < self.behaviour.skip:
            sequence += 1
        self.sequences[place] = sequence + len(values)
        batch = build_batch(
            [(self._key(place), value.encode(), ()) for value in values],
            timestamp_ms=self.world.wall_ms(),
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            transactional=self.transactional_id is not None,
        )
        key = f"{place[0]}/{place[1]}"
        op = self.history.invoke(
            self.name, "send", txn_id=self.transactional_id, txn=self.txn, pid=self.producer[0], epoch=self.producer[1],
            mops=[["send", key, value] for value in values],
        )  # fmt: skip
        request = wire.produce(self.generation, self.transactional_id, *place, bytes(batch))
        return Write(request, Attempt(self, self.txn, self.producer), op, place, values, sequence, sequence == follows)

    def _on_result(self, write: Write, row) -> int:  # type: ignore[no-untyped-def]
        """Record and check the broker's answer to a write. Return its error."""
        error = int(row.error_code)
        if error == NONE:
            write.attempt.over = True
            key = f"{write.place[0]}/{write.place[1]}"
            mops = [["send", key, value, row.base_offset + at] for at, value in enumerate(write.values)]
            self.history.ok(self.name, "send", write.op, mops=mops)
            last_offset = row.base_offset + len(write.values) - 1
            self.world.violations.extend(promises.of_write(self.world, *write.place, last_offset))
            if not write.follows and self.transactional_id is not None and self.generation is wire.V2:
                self.world.violations.extend(promises.of_gap(self.world, self.name, *write.place))
        return error

    def _raise_final(self, pending: Sequence[Write], errors: dict[int, int]) -> None:
        """Raise Refused or Abortable for an error that no retry resolves.

        A gap after a batch that is retried is no such error: this batch fills it.
        """
        waited: set[TopicPartition] = set()
        for write in pending:
            error = errors.get(write.op, LOST)
            if error == LOST or error in RETRIABLE or (error == OUT_OF_ORDER and write.place in waited):
                waited.add(write.place)
                continue
            self._give_up(pending, errors)
            if self.behaviour.takes_back and error == UNKNOWN_PRODUCER_ID:
                self.world.met["reused sequences refused"] += 1
            if error in FENCED or (self.behaviour.takes_back and error == OUT_OF_ORDER):
                raise Refused(error)
            raise Abortable

    def _is_hit(self) -> bool:
        """Return whether a batch that was given up was appended to this transaction: V1 cannot detect that."""
        return bool(self.behaviour.takes_back) and self.world.causes.is_known(self.txn)

    def _maybe_take_back(self, pending: Sequence[Write]) -> None:
        """After a lost reply, reset the sequences and raise Abortable, with the probability `takes_back`."""
        chance = self.behaviour.takes_back
        if not chance or not any(write.lost for write in pending) or self.random.random() >= chance:
            return
        self._give_up(pending, errors={})
        for write in pending:
            write.attempt.given_up = write.place
            self.sequences[write.place] = min(self.sequences[write.place], write.sequence)
        self.world.met["sequences taken back"] += 1
        raise Abortable(keeps_epoch=True)

    def _give_up(self, pending: Sequence[Write], errors: dict[int, int]) -> None:
        for write in pending:
            write.attempt.over = True
            error = errors.get(write.op, LOST)
            if write.lost or error == LOST or error in RETRIABLE:
                self.history.info(self.name, "send", write.op, error)
            else:
                self.history.fail(self.name, "send", write.op, error)


class Admin(Process):
    """A client that aborts transactions of replaced producers. This has no effect because their epochs are old."""

    has_worked = True

    def run(self) -> Script:
        while not self.world.resting:
            yield from self.sleep(self.random.random() * 600)
            old = self.world.causes.replaced_producers()
            if old:
                request = write_txn_marker(self.random.choice(old), "data", [0, 1])
                try:
                    yield from self.call(request)
                except Lost:
                    continue


def draw_behaviours(random: Random) -> Iterator[ProducerBehaviour]:
    """Draw the behaviours of producers without end."""
    while True:
        kind = random.random()
        if kind < 0.4:
            yield ProducerBehaviour(transactions=random.randint(3, 5), quits=0.06)
        elif kind < 0.6:
            timeout_ms = random.choice((700, 1500))
            yield ProducerBehaviour(transactions=3, pause=0.3, pause_ms=1500.0, quits=0.06, timeout_ms=timeout_ms)
        elif kind < 0.8:
            yield ProducerBehaviour(transactions=3, depth=random.randint(2, 5), skip=0.06, hasty=0.15)
        else:
            yield ProducerBehaviour(transactions=3, pause=0.35, pause_ms=2500.0, stubborn=1.0, timeout_ms=900)
