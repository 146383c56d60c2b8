"""What a handler gets and what it may answer. pure"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.counts import Counts
from ottla.broker.foreign import Strangers
from ottla.broker.log.long_work import LongWork
from ottla.broker.memory import MOST_MEMORY_BYTES, Claim, Memory, Room
from ottla.broker.ports.workers import LaterWorkers, Workers
from ottla.broker.turns import Wait
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import NodeEndpoint

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata import Cluster
    from ottla.broker.config import Config
    from ottla.broker.group.coordinator import GroupCoordinator
    from ottla.broker.log.log_manager import LogManager
    from ottla.broker.outbox import Part
    from ottla.broker.ports.clock import Clock
    from ottla.broker.turns import Turns
    from ottla.broker.txn.coordinator import TransactionCoordinator

DEFAULT_LISTENER: Final = "PLAINTEXT"


@dataclass(slots=True)
class Broker:
    """The domain objects that handlers call; built by `assembly.py`."""

    config: "Config"
    clock: "Clock"
    turns: "Turns"
    logs: "LogManager"
    cluster: "Cluster"
    transactions: "TransactionCoordinator"
    groups: "GroupCoordinator"
    endpoints: Mapping[str, NodeEndpoint]
    """Where clients of a listener, by its name, reach this broker; without those that nobody is told of."""
    memory_bytes: InitVar[int] = MOST_MEMORY_BYTES
    memory: Memory = field(init=False)
    """What clients may make the broker hold, `memory_bytes` in all."""
    workers: InitVar[Workers | None] = None
    long_work: LongWork = field(init=False)
    """Batches that are worked on hold a quarter of `memory_bytes` beyond that; without `workers` they take turns."""
    counts: Counts = field(init=False, default_factory=Counts)
    strangers: Strangers = field(init=False, default_factory=Strangers)

    def __post_init__(self, memory_bytes: int, workers: Workers | None) -> None:
        self.memory = Memory(self.turns, memory_bytes)
        self.long_work = LongWork(self.turns, workers or LaterWorkers(self.turns.next_turn), memory_bytes // 4)


class Request:
    """One request: its header, its decoded body, where it came from, and the memory that it holds if it is large.

    `listener_name` is Kafka's `RequestContext.listenerName`: the listener that it came in on.
    """

    __slots__ = ("api_key", "api_version", "body", "claim", "client_id", "correlation_id", "listener_name", "peer")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        peer: str,
        body: Any,
        claim: Claim | None = None,
        listener_name: str = DEFAULT_LISTENER,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer
        self.body = body
        self.claim = claim
        self.listener_name = listener_name

    def forget_body(self) -> None:
        """Keep nothing of the body, and hold no memory for it; for who is about to wait for other clients."""
        self.body = None
        self.release()

    def release(self) -> None:
        """Hold no memory any more."""
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.release()


class Encoded(NamedTuple):
    """A reply that its handler encoded itself: buffers of one frame, in order, size prefix included.

    `room` is what the buffers hold, if they may be large: it goes when they are sent.
    """

    buffers: "Sequence[Part]"
    room: Room | None = None
    error_code: int = 0
    """The error of the whole request, where the API has one."""


class Close(NamedTuple):
    """No reply: the connection is closed, and the log says why (a failed Produce with acks=0)."""

    reason: str


class NoReply:
    """Nothing is sent and the connection stays open (Produce with acks=0)."""


NO_REPLY: Final = NoReply()

Reply = Encoded | Close | NoReply

Handle = Callable[[Broker, Request], Coroutine[Wait[Any], None, Reply]]


class Api(NamedTuple):
    """One served API: the versions that are answered, and the handler."""

    key: ApiKey
    min_version: int
    max_version: int
    handle: Handle

    @property
    def title(self) -> str:
        """Kafka's own name for it, for logs and messages."""
        return self.key.title
