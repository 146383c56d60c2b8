"""End of a command together with the process that started it. shell"""

import os
import signal
import sys
import threading


def stop_at_end_of_input() -> None:
    """Send this process SIGTERM when its standard input ends, because the process at the other end of the pipe ended.

    This works for every end of that process, `kill -9` included, and on every system with pipes.
    """
    threading.Thread(target=_wait, args=(sys.stdin.fileno(),), name="end-of-input", daemon=True).start()


def _wait(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
