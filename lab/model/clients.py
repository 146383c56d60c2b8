"""The two producers: the next requests of each, and its possible reactions to an answer. pure

A producer initialises and runs its transactions one after the other: add both partitions (V1), write one batch to each,
commit or abort. A retriable error makes it send the request again. A producer aborts if its write is refused or if it
stops waiting for it. V1 producers then request a new epoch (KIP-360), V2 producers get it with the abort. Any other
error ends the producer.
"""

from enum import IntEnum
from itertools import combinations
from typing import Final, NamedTuple

from lab.model.values import V2, Bounds, Interned, Kind, Reply, Request
from ottla.protocol.errors import ErrorCode

ASKED: Final = 0
HELD: Final = 1
ANSWERED: Final = 2

_E = ErrorCode
RETRIABLE: Final = frozenset({_E.CONCURRENT_TRANSACTIONS, _E.NOT_ENOUGH_REPLICAS, _E.COORDINATOR_LOAD_IN_PROGRESS})
FATAL_TO_WRITES: Final = frozenset({_E.INVALID_PRODUCER_ID_MAPPING, _E.PRODUCER_FENCED})


class Phase(IntEnum):
    """The requests whose answers a producer waits for; DONE: it has ended."""

    INIT = 0
    ADD = 1
    PRODUCE = 2
    END = 3
    DONE = 4


class Client(NamedTuple):
    """The state of a producer.

    `slots` has the progress of each request of the phase: two of PRODUCE, one of the others. `fates` has a letter per
    transaction: C and A for an acknowledged commit or abort, c and a for a requested one, - for neither. `renews`: the
    producer requests a new epoch after this abort, or now.
    """

    who: int
    phase: Phase = Phase.INIT
    producer_id: int = -1
    epoch: int = -1
    sequences: tuple[int, int] = (0, 0)
    slots: tuple[int, ...] = (ASKED,)
    commit: bool = False
    renews: bool = False
    fates: str = ""

    @property
    def txn(self) -> int:
        return len(self.fates)


class Turn(NamedTuple):
    """A producer after an event, and the requests that it no longer waits for but that may still arrive."""

    client: int
    left: tuple[Request, ...] = ()
    copies: int = 0


class Clients:
    """All known states of the producers, and their steps. Each step is computed once."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.known: Interned[Client] = Interned()
        self._requests: dict[int, tuple[tuple[int, Request], ...]] = {}
        self._answered: dict[tuple[int, int, Reply], tuple[Turn, ...]] = {}

    def number(self, client: Client) -> int:
        return self.known.number(client, client)

    def first(self, who: int) -> tuple[Turn, ...]:
        """Return the first turns of a producer: it sends InitProducerId, which arrives at any time."""
        return self._sent((Client(who), ()))

    def requests(self, number: int) -> tuple[tuple[int, Request], ...]:
        """Return (slot, request) for each request on its way."""
        known = self._requests.get(number)
        if known is None:
            client = self.known[number]
            asked = [at for at, slot in enumerate(client.slots) if slot == ASKED and client.phase is not Phase.DONE]
            known = self._requests[number] = tuple((slot, _request(client, slot)) for slot in asked)
        return known

    def holds(self, number: int) -> bool:
        """Return whether the coordinator has a request that it has not answered yet."""
        return HELD in self.known[number].slots

    def held(self, number: int, slot: int) -> int:
        """Return the state after the coordinator has received the request and will answer it later."""
        return self.number(_with_slot(self.known[number], slot, HELD))

    def disconnected(self, number: int) -> int:
        """Return the state after the coordinator has crashed: the producer sends unanswered requests again."""
        client = self.known[number]
        slots = tuple(ASKED if slot == HELD else slot for slot in client.slots)
        return self.number(client._replace(slots=slots))

    def answered(self, number: int, slot: int, reply: Reply) -> tuple[Turn, ...]:
        """Return the possible turns of the producer after this answer."""
        key = (number, slot, reply)
        known = self._answered.get(key)
        if known is None:
            turns: tuple[Turn, ...] = ()
            for each in self._next(self.known[number], slot, reply):
                turns += self._sent(each)
            known = self._answered[key] = turns
        return known

    def gives_up(self, number: int) -> tuple[Turn, ...]:
        """Return the turns of a producer that stops waiting for its writes."""
        client = self.known[number]
        if client.phase is not Phase.PRODUCE:
            return ()
        return self._sent(self._abandon(client))

    # --- parts

    def _next(self, client: Client, slot: int, reply: Reply) -> list[tuple[Client, tuple[Request, ...]]]:
        if reply.error in RETRIABLE:
            return [(_with_slot(client, slot, ASKED), ())]
        if client.phase is Phase.PRODUCE:
            return self._after_write(client, slot, reply)
        if reply.error:
            letter = ("c" if client.commit else "a") if client.phase is Phase.END else "-"
            return [(self._done(client._replace(fates=client.fates + letter)), ())]
        if client.phase is Phase.INIT:
            born = client._replace(
                producer_id=reply.producer_id, epoch=reply.epoch, sequences=(0, 0), commit=False, renews=False
            )
            return [(self._begin(born), ())]
        if client.phase is Phase.ADD:
            return [(_writing(client), ())]
        return [(each, ()) for each in self._after_end(client, reply)]

    def _after_write(self, client: Client, slot: int, reply: Reply) -> list[tuple[Client, tuple[Request, ...]]]:
        if not reply.error:
            client = _with_slot(client, slot, ANSWERED)
            if ASKED in client.slots:
                return [(client, ())]
            first, second = client.sequences
            client = client._replace(sequences=(first + 1, second + 1))
            ending = client._replace(phase=Phase.END, slots=(ASKED,))
            return [(ending._replace(commit=commit), ()) for commit in (True, False)]
        refused = _with_slot(client, slot, ANSWERED)
        if reply.error in FATAL_TO_WRITES:
            return [(self._done(client._replace(fates=client.fates + "-")), _under_way(refused))]
        return [self._abandon(client, slot)]

    def _abandon(self, client: Client, refused: int = -1) -> tuple[Client, tuple[Request, ...]]:
        """Begin an abort. No sequence is used again, because an unacknowledged batch may have been written."""
        left = _under_way(client if refused < 0 else _with_slot(client, refused, ANSWERED))
        sequences = (client.sequences[0] + 1, client.sequences[1] + 1)
        ending = client._replace(phase=Phase.END, slots=(ASKED,), commit=False, renews=True, sequences=sequences)
        return ending, left

    def _after_end(self, client: Client, reply: Reply) -> list[Client]:
        ended = client._replace(fates=client.fates + ("C" if client.commit else "A"), renews=False)
        if self.bounds.generations[client.who] == V2:
            moved = ended._replace(producer_id=reply.producer_id, epoch=reply.epoch, sequences=(0, 0), commit=False)
            return [self._begin(moved)]
        ended = ended._replace(commit=False)
        if not client.renews:
            return [self._begin(ended)]
        renewed = ended._replace(phase=Phase.INIT, slots=(ASKED,), renews=True)
        last = ended.txn >= self.bounds.transactions[client.who]
        return [renewed, self._begin(ended)] if self.bounds.old_clients and not last else [renewed]

    def _begin(self, client: Client) -> Client:
        if client.txn >= self.bounds.transactions[client.who]:
            return self._done(client)
        if self.bounds.generations[client.who] == V2:
            return _writing(client)
        return client._replace(phase=Phase.ADD, slots=(ASKED,))

    @staticmethod
    def _done(client: Client) -> Client:
        """Return the final state of a producer, which keeps only the outcomes of its transactions."""
        return Client(client.who, Phase.DONE, slots=(), fates=client.fates)

    def _sent(self, turn: tuple[Client, tuple[Request, ...]]) -> tuple[Turn, ...]:
        """Return the turn once for each subset of its sent requests of which copies stay in the network.

        A copy is made when its request is sent. This covers later copies too, because a copy may arrive at any time.
        """
        client, left = turn
        number = self.number(client)
        if ANSWERED in client.slots:
            return (Turn(number, left),)  # the producer has sent nothing
        sent = [request for _slot, request in self.requests(number)]
        turns = []
        for count in range(min(self.bounds.copies, len(sent)) + 1):
            for copied in combinations(sent, count):
                turns.append(Turn(number, left + copied, count))
        return tuple(turns)


def _request(client: Client, slot: int) -> Request:
    who, txn, producer_id, epoch = client.who, client.txn, client.producer_id, client.epoch
    if client.phase is Phase.INIT:
        expected = (producer_id, epoch) if client.renews else (-1, -1)
        return Request(Kind.INIT, who, txn, *expected)
    if client.phase is Phase.ADD:
        return Request(Kind.ADD, who, txn, producer_id, epoch)
    if client.phase is Phase.PRODUCE:
        return Request(Kind.PRODUCE, who, txn, producer_id, epoch, slot, client.sequences[slot])
    return Request(Kind.END, who, txn, producer_id, epoch, commit=client.commit)


def _under_way(client: Client) -> tuple[Request, ...]:
    return tuple(_request(client, slot) for slot, state in enumerate(client.slots) if state == ASKED)


def _writing(client: Client) -> Client:
    return client._replace(phase=Phase.PRODUCE, slots=(ASKED, ASKED))


def _with_slot(client: Client, slot: int, state: int) -> Client:
    slots = list(client.slots)
    slots[slot] = state
    return client._replace(slots=tuple(slots))
