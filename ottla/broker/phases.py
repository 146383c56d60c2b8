"""The phases of a connection, and the reasons why it is not read. pure

A connection begins a request in the first two phases alone, and only while all replies before it are sent or queued.

| phase     | may become                                                 |
|-----------|------------------------------------------------------------|
| NEW       | IDLE, SERVING, CLOSING, CLOSED                             |
| IDLE      | MUTED, SERVING, REFUSED, CLOSING, CLOSED                   |
| MUTED     | IDLE, REFUSED, CLOSING, CLOSED                             |
| SERVING   | IDLE, PRODUCING, WAITING, REFUSED, CLOSING, CLOSED         |
| PRODUCING | IDLE, REFUSED, CLOSING, CLOSED                             |
| WAITING   | IDLE, REFUSED, CLOSING, CLOSED                             |
| REFUSED   | CLOSING, CLOSED                                            |
| CLOSING   | CLOSED                                                     |
| CLOSED    |                                                            |
"""

from enum import Enum, IntEnum


class Phase(IntEnum):
    """Phase of a connection: what it does with requests."""

    NEW = 0  # begins the first one; others go first while the turn budget is spent: thousands may connect at once
    IDLE = 1  # begins the next one
    MUTED = 2  # begins none before a timer fires, because a quota was violated
    SERVING = 3  # runs the handler of one, whose bytes are in the receive buffer
    PRODUCING = 4  # a Produce waits; its records are in the receive buffer
    WAITING = 5  # another request waits; its message owns its data
    REFUSED = 6  # begins none; the client may read the reason before a timer fires
    CLOSING = 7  # begins none, and closes when all queued replies are sent
    CLOSED = 8  # does nothing more


class Intake(Enum):
    """Requests that a connection still begins."""

    ALL = 0
    RECEIVED = 1  # those that have arrived, because the peer has closed its side
    NONE = 2  # none, because the broker stops


class PauseReason(Enum):
    """Reason why a connection is not read."""

    UNSENT = 0  # the socket does not take the replies
    MEMORY = 1  # the request that is being received waits for memory
    AHEAD = 2  # what was received while no request may begin fills the receive buffer


NEW, IDLE, MUTED, SERVING, PRODUCING, WAITING, REFUSED, CLOSING, CLOSED = Phase
