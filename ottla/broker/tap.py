"""Where requests and their replies can be watched as they pass a broker's connections. pure"""

from collections.abc import Callable, Sequence

from ottla.broker.memory import Room
from ottla.broker.outbox import Part

Send = Callable[[Sequence[Part], Room | None], None]
Refuse = Callable[[str], None]
Heard = Callable[[memoryview, str, Send, Refuse], tuple[Send, Refuse]]
"""Gets a frame, which is valid during the call, the peer, and what takes the reply or the reason why there is none.
Returns what is to take them instead: it must call the other at once, with the same."""


class Tap:
    """One of a broker. It stands in front of the dispatcher, so it has what clients see, the faults of a test too."""

    __slots__ = ("heard",)

    def __init__(self) -> None:
        self.heard: Heard | None = None
        """None while nobody listens, which is all that a request looks at then."""
