"""A scripted transactional workload and its ledger: the requests and answers that the tests compare with the disk. free

The script has rolls, checkpoints and metadata snapshots; creates, deletes and recreates topics; commits and aborts
transactions V1 and V2 over three partitions, with several open at once; pipelines records without transactions; commits
positions of a group; and restarts the broker cleanly or by a kill.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from lab.client_requests import NONE, RETRIABLE
from lab.crash.life import Life
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.protocol.requests.structs import error_codes
from ottla.protocol.values import ProducerIdAndEpoch, TopicPartition
from ottla.testkit.in_memory import wire
from ottla.testkit.in_memory.broker import NoAnswer
from ottla.testkit.in_memory.wire import Generation, Request

TOPICS: Final = {"ledger": 2, "audit": 1}
SCRATCH: Final = "scratch"
GROUP: Final = "billing"
PLACES: Final[tuple[TopicPartition, ...]] = (("ledger", 0), ("ledger", 1), ("audit", 0))
OPEN, ENDING, DONE = "open", "ending", "done"
_TRIES: Final = 60
_WAIT_MS: Final = 40.0


@dataclass
class ClientTransaction:
    """A transaction as its client sees it: OPEN, ASKED (EndTxn was sent) or DONE (EndTxn was acknowledged)."""

    name: str
    commit: bool = True
    state: str = OPEN
    values: list[str] = field(default_factory=list)
    position: int | None = None


@dataclass
class Ledger:
    """Requests and acknowledgements of the script.

    `topics` and `plain` hold acknowledged topics and records without those whose deletion was requested. `absent` are
    topics whose deletion was acknowledged, `deleted` the records of such a topic.
    """

    transactions: list[ClientTransaction] = field(default_factory=list)
    plain: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def copy(self) -> "Ledger":
        copies = [ClientTransaction(t.name, t.commit, t.state, list(t.values), t.position) for t in self.transactions]
        return Ledger(copies, set(self.plain), set(self.topics), set(self.absent), set(self.deleted))


class Refused(Exception):
    """Raised for an answer that the script does not expect."""


class Client:
    """A producer with a transactional id, for one life of the broker."""

    def __init__(self, script: "Script", name: str, generation: Generation) -> None:
        self.script = script
        self.name = name
        self.generation = generation
        reply = script.patiently(lambda: wire.init_producer_id(name, 2000))
        self.producer = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
        self.sequences: dict[TopicPartition, int] = {}
        self._txn: ClientTransaction | None = None

    @property
    def running(self) -> bool:
        """Whether a transaction has begun and EndTxn was not sent."""
        return self._txn is not None

    def transact(self, commit: bool, position: int | None) -> None:
        """Run a whole transaction."""
        self.begin(commit, position)
        self.finish()

    def begin(self, commit: bool, position: int | None) -> None:
        """Run a transaction without its end."""
        script = self.script
        txn = self._txn = ClientTransaction(f"{self.name}#{len(script.ledger.transactions)}", commit, position=position)
        script.ledger.transactions.append(txn)
        places = script.random.sample(PLACES, script.random.choice((1, 2, 2, 3)))
        if self.generation.adds_by_itself:
            script.patiently(lambda: wire.add_partitions(self.name, self.producer, places))
        for number, place in enumerate(places):
            self._send(txn, place, f"{txn.name}.{number}")
        if position is not None:
            self._commit_position(position)

    def finish(self) -> None:
        """End the running transaction, if there is one."""
        txn, self._txn = self._txn, None
        if txn is None:
            return
        txn.state = ENDING
        reply = self.script.patiently(lambda: wire.end_txn(self.generation, self.name, self.producer, txn.commit))
        txn.state = DONE
        if not self.generation.adds_by_itself and (reply.producer_id, reply.producer_epoch) != self.producer:
            self.producer = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
            self.sequences.clear()

    def _send(self, txn: ClientTransaction, place: TopicPartition, value: str) -> None:
        sequence = self.sequences.get(place, 0)
        batch = bytes(
            build_batch(
                [(None, value.encode()), (b"padding", self.script.padding())],
                timestamp_ms=self.script.life.clock.now_ms(),
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        txn.values.append(value)
        self.script.produce(self.generation, self.name, place, batch)
        self.sequences[place] = sequence + 2

    def _commit_position(self, position: int) -> None:
        script = self.script
        if self.generation.adds_by_itself:
            script.patiently(lambda: wire.add_offsets(self.name, self.producer, GROUP))
        rows = [("ledger", 0, position)]
        script.patiently(
            lambda: wire.txn_offset_commit(self.generation, self.name, self.producer, GROUP, rows, "", (-1, ""))
        )


class Script:
    """The workload. `start` starts the broker, also after each stop or kill."""

    def __init__(self, start: Callable[[], Life], seed: int = 1) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self._start = start
        self._positions = iter(range(1, 10_000))
        self.life = start()

    @classmethod
    def on(cls, life: Life) -> "Script":
        """Return a script that uses a running broker."""
        return cls(lambda: life)

    def run(self, lives: int = 4, transactions: int = 9) -> None:
        """Run the workload over several lives of the broker. Kills and clean stops alternate; the last life does not
        end."""
        for kind, name in enumerate((GROUP, "one")):
            self.patiently(partial(_find_coordinator, name, kind))
        self.life.shrink_segments()
        self.make_topic(*TOPICS.items())
        for number in range(lives):
            clients = [Client(self, "one", wire.V2), Client(self, "two", wire.V1), Client(self, "three", wire.V2)]
            self.remake_scratch()
            for turn in range(transactions):
                self._take_turn(clients[turn % len(clients)])
                checkpoint = self.life.assembly.broker.logs.checkpoint
                self.plain(f"plain-{number}-{turn}", checkpoint if turn % 4 == 1 else None)
                if turn % 4 == 2:
                    self.life.run_in_turn(checkpoint)
                    self.life.advance(60)
                if turn % 4 == 3:
                    self.life.run_in_turn(self.life.assembly.snapshots.take)
            if number + 1 < lives:
                self.life.stop() if number % 2 else self.life.kill()
                self.life = self._start()

    # --- steps

    def _take_turn(self, client: Client) -> None:
        """Run a transaction or its first half. The client's next turn in the same life runs the second half."""
        if client.running:
            client.finish()
            return
        position = next(self._positions) if self.random.random() < 0.3 else None
        client.begin(self.random.random() < 0.7, position)
        if self.random.random() < 0.6:
            client.finish()

    def make_topic(self, *topics: tuple[str, int]) -> None:
        names = {name for name, _ in topics}
        self.ledger.absent -= names
        reply = self.life.call(_create_topics(topics))
        for row in reply.topics:
            _expect(row.error_code, "CreateTopics")
        self.ledger.topics |= names
        for name, count in topics:
            for index in range(count):
                self.life.assembly.broker.cluster.partition(name, index)
        self.life.shrink_segments()

    def remake_scratch(self) -> None:
        """Delete the scratch topic if it exists, and create it."""
        if SCRATCH in self.ledger.topics:
            self.ledger.topics.discard(SCRATCH)
            deleted = {value for value in self.ledger.plain if value.startswith(SCRATCH)}
            self.ledger.plain -= deleted
            reply = self.life.call(_delete_topics([SCRATCH]))
            _expect(reply.responses[0].error_code, "DeleteTopics")
            self.ledger.absent.add(SCRATCH)
            self.ledger.deleted |= deleted
            self.life.advance(self.random.choice((0.0, 80.0)))
        self.make_topic((SCRATCH, 1))

    def plain(self, value: str, meanwhile: Callable[[], object] | None) -> None:
        """Send several records without transactions at once. `meanwhile` runs before they are acknowledged."""
        count = self.random.choice((1, 1, 2, 5))
        sent = [(f"{topic}-{value}.{number}", topic) for number in range(count) for topic in (SCRATCH, "audit")]
        requests = []
        for each, topic in sent:
            records = [(None, each.encode()), (b"padding", self.padding())]
            batch = bytes(build_batch(records, timestamp_ms=self.life.clock.now_ms()))
            requests.append(wire.produce(wire.V2, None, topic, 0, batch))

        refused: list[int] = []

        def on_reply(at: int, reply: Any) -> None:
            errors = [error for error in error_codes(reply) if error != NONE]
            refused.extend(errors)
            if not errors:
                self.ledger.plain.add(sent[at][0])

        self.life.call_all(requests, on_reply, meanwhile)
        for error in refused:
            _expect(error, "Produce")

    def padding(self) -> bytes:
        """Return random text, so that no page of it looks like a page that was never written."""
        return self.random.randbytes(self.random.randrange(self.life.style.padding_bytes) // 2).hex().encode()

    def produce(
        self, generation: Generation, transactional_id: str | None, place: TopicPartition, batch: bytes
    ) -> None:
        self.patiently(lambda: wire.produce(generation, transactional_id, place[0], place[1], batch))

    def patiently(self, ask: Callable[[], Request]) -> Any:
        """Send a request until its answer is not retriable, and return the answer. Raises Refused or NoAnswer."""
        for _ in range(_TRIES):
            reply = self.life.call(ask())
            errors = [*error_codes(reply)]
            if all(error == NONE for error in errors):
                return reply
            if not all(error == NONE or error in RETRIABLE for error in errors):
                raise Refused(f"{type(reply).__name__} {errors}")
            self.life.advance(_WAIT_MS)
        raise NoAnswer("retries do not help")


def _expect(error: int, what: str) -> None:
    if error != NONE:
        raise Refused(f"{what} {error}")


def _find_coordinator(name: str, kind: int) -> Request:
    """Return a FindCoordinator, which creates the internal topic for a group (0) or a transactional id (1)."""
    message = codec.request_class(ApiKey.FIND_COORDINATOR)(version=2, key=name, key_type=kind)
    return Request(ApiKey.FIND_COORDINATOR, 2, message)


def _create_topics(topics: Any) -> Request:
    request = codec.request_class(ApiKey.CREATE_TOPICS)
    rows = [
        request.CreatableTopic(
            version=4, name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for name, count in topics
    ]
    return Request(ApiKey.CREATE_TOPICS, 4, request(version=4, topics=rows, timeout_ms=1000, validate_only=False))


def _delete_topics(names: list[str]) -> Request:
    request = codec.request_class(ApiKey.DELETE_TOPICS)
    return Request(ApiKey.DELETE_TOPICS, 4, request(version=4, topic_names=names, timeout_ms=1000))
