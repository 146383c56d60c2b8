"""A listener on the requests and replies of a broker's connections. pure"""

from collections.abc import Callable, Sequence

from ottla.broker.memory import ReplyReservation
from ottla.broker.outbox import Part
from ottla.broker.security.session import Session

Send = Callable[[Sequence[Part], ReplyReservation | None], None]
Refuse = Callable[[str], None]
OnRequest = Callable[[memoryview, Session, Send, Refuse], tuple[Send, Refuse]]
"""Gets a frame, which is valid during the call, its session, and the callbacks for the reply and for a refusal. Returns
the callbacks to use instead of them; each must call the original one at once, with the same arguments."""


class RequestObserver:
    """The listener of one broker. It is called before the dispatcher, so it gets exactly what clients get, with the
    injected faults of a test."""

    def __init__(self) -> None:
        self.on_request: OnRequest | None = None
        """The listener, or None. A request without a listener costs only this check."""
