"""Whether a client has hung up whose socket is not read: an event loop tells of that only where it reads. shell"""

import select
from array import array
from fcntl import ioctl
from termios import FIONREAD
from typing import Final

# Linux tells of it with POLLRDHUP, whatever lies unread; where there is none, nobody is missed until he is read.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)


def has_hung_up(descriptor: int, needed_bytes: int) -> bool:
    """Whether the peer will send nothing more, and less than `needed_bytes` of what it has sent lies in the socket."""
    if descriptor < 0 or not _HUNG_UP:
        return False
    poll = select.poll()
    poll.register(descriptor, _HUNG_UP)
    return bool(poll.poll(0)) and unread_bytes(descriptor) < needed_bytes


def unread_bytes(descriptor: int) -> int:
    """How much lies in the socket."""
    count = array("i", [0])
    try:
        ioctl(descriptor, FIONREAD, count)
    except OSError:  # it has broken off
        return 0
    return count[0]
