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

from typing import Final

# Numbers, because each event of a connection compares them.
NEW: Final = 0
"""Begins the first request; others go first while the turn budget is spent: thousands may connect at once."""
IDLE: Final = 1
"""Begins the next request."""
MUTED: Final = 2
"""Begins none before a timer fires, because a quota was violated."""
SERVING: Final = 3
"""Runs the handler of a request, whose bytes are in the receive buffer."""
PRODUCING: Final = 4
"""A Produce waits; its records are in the receive buffer."""
WAITING: Final = 5
"""Another request waits; its message owns its data."""
REFUSED: Final = 6
"""Begins none; the client may read the reason before a timer fires."""
CLOSING: Final = 7
"""Begins none, and closes when all queued replies are sent."""
CLOSED: Final = 8
"""Does nothing more."""

# The requests that a connection still begins.
TAKES_ALL: Final = 0
TAKES_RECEIVED: Final = 1
"""Those that have arrived, because the peer has closed its side."""
TAKES_NONE: Final = 2
"""None, because the broker stops."""

# The reasons why a connection is not read.
NOT_PAUSED: Final = 0
UNSENT: Final = 1
"""The socket does not take the replies."""
MEMORY: Final = 2
"""The request that is being received waits for memory."""
AHEAD: Final = 3
"""What was received while no request may begin fills the receive buffer."""
