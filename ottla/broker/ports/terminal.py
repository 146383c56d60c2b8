"""The terminal that a process was started from. shell"""

import os


def has_terminal() -> bool:
    """Return whether the process has a controlling terminal. A daemon has none; closing the terminal window takes it
    away."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
