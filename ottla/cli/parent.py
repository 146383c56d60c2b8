"""The end of a command with that of the process that has started it. shell"""

import os
import signal
import sys
import threading


def stop_at_end_of_input() -> None:
    """Send this process SIGTERM when its standard input ends, because the process at the other end of the pipe ended.

    It works however that process ended, `kill -9` included, and wherever there are pipes.
    """
    threading.Thread(target=_wait, args=(sys.stdin.fileno(),), name="end-of-input", daemon=True).start()


def _wait(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
