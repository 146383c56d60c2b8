"""Detection of clients that hung up while their socket is not read, which an event loop does not report. shell"""

import select
from array import array
from fcntl import ioctl
from termios import FIONREAD
from typing import Final

# Linux reports it with POLLRDHUP even with unread data. Other systems lack it: there the next read finds it.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)


def has_hung_up(descriptor: int, needed_bytes: int) -> bool:
    """Return whether the peer has closed its side and fewer than `needed_bytes` unread bytes are in the socket."""
    if descriptor < 0 or not _HUNG_UP:
        return False
    poll = select.poll()
    poll.register(descriptor, _HUNG_UP)
    return bool(poll.poll(0)) and unread_bytes(descriptor) < needed_bytes


def unread_bytes(descriptor: int) -> int:
    """Return the number of unread bytes in the socket; 0 if the connection is broken."""
    count = array("i", [0])
    try:
        ioctl(descriptor, FIONREAD, count)
    except OSError:  # the connection is broken
        return 0
    return count[0]
