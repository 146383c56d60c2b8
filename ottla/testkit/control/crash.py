"""Crash of the process, as by `kill -9`. shell"""

import logging
import os
import signal
from typing import NoReturn

from ottla.testkit.faults.fault import Fault

log = logging.getLogger(__name__)


def crash(fault: Fault) -> NoReturn:
    """Kill this process, without flushing or closing anything."""
    log.warning("Crash injected by fault %d (%s)", fault.id, fault.describe())
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)  # if the signal is not delivered yet
