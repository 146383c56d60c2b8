"""What a handler gets and what it may answer. pure"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.costs import AUTHORIZE_US
from ottla.broker.events import Events
from ottla.broker.foreign import Strangers
from ottla.broker.log.long_work import LongWork
from ottla.broker.memory import MOST_MEMORY_BYTES, Claim, Memory, Room
from ottla.broker.metrics import Metrics
from ottla.broker.ports.workers import LaterWorkers, Workers
from ottla.broker.quotas.quotas import QuotaManagers, RequestQuota, windows_of
from ottla.broker.security.authorizer import Authorizer, Need
from ottla.broker.security.mechanism import Mechanisms
from ottla.broker.security.session import Session
from ottla.broker.tap import Tap
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


def _no_problem(config: "Config") -> str:
    return ""


def _nobody_is_told(request: "Request", need: Need, name: str) -> None:
    """A refusal is in the answer already."""


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
    metrics: Metrics = field(default_factory=Metrics)
    tap: Tap = field(init=False, default_factory=Tap)
    strangers: Strangers = field(init=False, default_factory=Strangers)
    events: Events | None = field(init=False, default=None)
    """Who is told what happens, for others to see; None if nobody can ask."""
    tls_problem: "Callable[[Config], str]" = field(init=False, default=_no_problem)
    """Why the keystores of the listeners cannot be used with this configuration, or an empty string."""
    authorizer: Authorizer | None = field(init=False, default=None)
    """None: everybody may do everything."""
    on_denied: "Callable[[Request, Need, str], None]" = field(init=False, default=_nobody_is_told)
    """Hears of each request for what the client may not do: what right it lacks, and on which resource."""
    mechanisms: Mapping[str, Mechanisms] = field(init=False, default_factory=dict)
    """What logs clients in on each listener with SASL, by the listener's name."""
    quotas: QuotaManagers = field(init=False)

    def __post_init__(self, memory_bytes: int, workers: Workers | None) -> None:
        self.memory = Memory(self.turns, memory_bytes)
        self.quotas = QuotaManagers(self.turns, self.clock.monotonic_ms, windows_of(self.config))
        self.long_work = LongWork(self.turns, workers or LaterWorkers(self.turns.next_turn), memory_bytes // 4)

    def may(self, request: "Request", need: Need, name: str) -> bool:
        """Whether the client may do this to the resource of that name. The question is charged for."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        self.turns.charged_us += AUTHORIZE_US
        if authorizer.authorize(request.session, need, name):
            return True
        if not need.is_quiet:
            self.on_denied(request, need, name)
        return False

    def watch(self) -> Events:
        """Keep from now on what happens, for who asks."""
        self.events = self.transactions.states.events = Events(self.clock.now_ms, self.transactions.count_open)
        return self.events


class Request:
    """One request: its header, its decoded body, who sent it, and the memory that it holds if it is large."""

    __slots__ = ("api_key", "api_version", "body", "claim", "client_id", "correlation_id", "quota", "session")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        session: Session,
        body: Any,
        claim: Claim | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.claim = claim
        self.session = session
        self.quota: RequestQuota | None = None
        """What it takes of the quotas of its client; None where nobody has any."""

    @property
    def peer(self) -> str:
        """HOST:PORT of the client."""
        return self.session.peer

    @property
    def about(self) -> dict[str, object]:
        """The fields of a line in the log: who asks for what."""
        try:
            api = ApiKey(self.api_key).title
        except ValueError:
            api = str(self.api_key)
        return {"api": api, "version": self.api_version, "client_id": self.client_id, "peer": self.peer}

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
    closes: str = ""
    """Why the connection is closed when this is sent; empty if it is not."""


class Close(NamedTuple):
    """No reply: the connection is closed, and the log says why (a failed Produce with acks=0)."""

    reason: str


class NoReply:
    """Nothing is sent and the connection stays open (Produce with acks=0)."""


NO_REPLY: Final = NoReply()

Reply = Encoded | Close | NoReply

Handle = Callable[[Broker, Request], Coroutine[Wait[Any], None, Reply]]


class Api(NamedTuple):
    """One served API: the versions that are answered, the handler, and the rights that it asks for."""

    key: ApiKey
    min_version: int
    max_version: int
    handle: Handle
    needs: Sequence[Need]

    @property
    def title(self) -> str:
        """Kafka's own name for it, for logs and messages."""
        return self.key.title
