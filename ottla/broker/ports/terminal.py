"""The terminal that a process was started from. shell"""

import os


def has_terminal() -> bool:
    """Whether there is one: a daemon has none, and nobody has one whose window was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
