"""The end of the process, as `kill -9` brings it. shell"""

import logging
import os
import signal
from typing import NoReturn

from ottla.testkit.faults.fault import Fault

log = logging.getLogger(__name__)


def crash(fault: Fault) -> NoReturn:
    """Kill this process: nothing is flushed, closed or said to anybody."""
    log.warning("Crash: fault %d says so (%s)", fault.id, fault.describe())
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)  # the signal has been sent, not yet delivered
